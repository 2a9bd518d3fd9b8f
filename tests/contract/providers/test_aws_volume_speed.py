"""The speed of a gp3 volume: as it comes, or bought, at the price that is told before."""

from dataclasses import replace
from decimal import Decimal

import pytest
from gpulease.domain.observation import Observation
from gpulease.errors import InputInvalid

from tests.support.aws_world import REGION, AwsWorld
from tests.support.provider_world import ref_of
from tests.support.volume_contract import volume_request


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


def month(world: AwsWorld, size_gb: int, throughput: int | None, region: str = REGION) -> Decimal:
    return world.provider.volume_price_per_month(region, size_gb, throughput)


@pytest.mark.parametrize(
    ("throughput", "dollars"),
    [
        (None, "16.00"),
        (125, "16.00"),
        (126, "16.04"),
        (400, "27.00"),
        (750, "41.00"),
        # Above 750 MiB/s four IOPS are needed for each; 3,000 are in the price.
        (751, "41.06"),
        (1000, "56.00"),
    ],
)
def test_what_is_over_125_mib_per_second_is_paid_for(world: AwsWorld, throughput: int | None, dollars: str) -> None:
    assert month(world, 200, throughput) == Decimal(dollars)


def test_a_dearer_region_asks_more_for_speed_too(world: AwsWorld) -> None:
    assert month(world, 100, 225, "eu-central-1") == Decimal("9.52") + 100 * Decimal("0.048")


@pytest.mark.parametrize(
    ("size_gb", "throughput", "told"),
    [
        (200, 124, "125 to 1000 MiB/s, not 124"),
        (200, 1001, "125 to 1000 MiB/s, not 1001"),
        (7, 1000, "needs a volume of 8 GB at least"),
    ],
)
def test_a_speed_that_aws_does_not_sell_is_refused_before_any_call(
    world: AwsWorld, size_gb: int, throughput: int, told: str
) -> None:
    wanted = replace(volume_request(world, size_gb=size_gb), throughput_mibps=throughput)

    for ask in (lambda: month(world, size_gb, throughput), lambda: world.provider.create_volume(wanted)):
        with pytest.raises(InputInvalid, match=told) as refused:
            ask()
        assert refused.value.field == "throughput_mibps"
    assert world.calls("CreateVolume") == 0


@pytest.mark.parametrize(("throughput", "iops"), [(None, "3000"), (400, "3000"), (750, "3000"), (1000, "4000")])
def test_a_volume_is_made_as_fast_as_it_was_asked_for_and_billed_as_told(
    world: AwsWorld, throughput: int | None, iops: str
) -> None:
    made = world.provider.create_volume(replace(volume_request(world, size_gb=200), throughput_mibps=throughput))
    world.advance(60)

    assert isinstance(world.provider.observe(ref_of(made)), Observation)
    [call] = [each for each in world.cloud.calls if each.action == "CreateVolume"]
    assert call.params.get("Throughput") == (str(throughput) if throughput else None)
    assert call.params.get("Iops", "3000") == iops
    [volume] = world.cloud.book.billed()
    assert volume.hourly_usd * 730 == pytest.approx(month(world, 200, throughput))
