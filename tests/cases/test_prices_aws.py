"""C63 at AWS: a spot price moves between the catalogue and the launch. It is asked anew, zone by zone, the cheapest
zone of now is tried first, and no launch may cost more than its owner's limit."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.providers.aws.prices import ROOT_DISK_GB, besides_compute_per_hour

from tests.support.cloud_world import ONE_SPOT, PLAN, REGION, CloudWorld

RELEASED, RUNNING = LeaseState.RELEASED, LeaseState.RUNNING
ZONES = "abcdf"
"""Those of the region that have the type."""
BESIDES = besides_compute_per_hour(REGION, ROOT_DISK_GB)
HISTORY = "DescribeSpotPriceHistory"


@pytest.fixture
def world() -> Iterator[CloudWorld]:
    made = CloudWorld()
    yield made
    made.close()


def moved(world: CloudWorld, otherwise: str, **zones: str) -> None:
    """What the zones ask from now on."""
    prices = {f"{REGION}{zone}/{PLAN}": Decimal(zones.get(zone, otherwise)) for zone in ZONES}
    world.set(spot_usd=prices)


def launches(world: CloudWorld) -> list[dict[str, str]]:
    return [dict(call.params) for call in world.calls("RunInstances")]


def zone_of(world: CloudWorld, lease_id: str) -> str:
    return world.machine_of(lease_id).zone


def test_c63_the_zone_that_is_cheapest_now_is_tried_first_and_its_price_is_the_records(world: CloudWorld) -> None:
    moved(world, "0.60", d="0.25")

    lease_id = world.running(**ONE_SPOT)

    [attempt] = world.lease(lease_id).attempts
    assert zone_of(world, lease_id) == f"{REGION}d"
    assert attempt.offer.price_per_hour_usd == Decimal("0.25") + BESIDES
    shown = world.stack.api("GET", f"/v1/leases/{lease_id}")
    billed = sum((e.hourly_usd for e in world.aws.book.billed() if e.id not in world.strangers), Decimal(0))
    assert Decimal(shown["price_per_hour_usd"]) == billed.quantize(Decimal("0.000001"))
    assert len(world.calls(HISTORY)) <= 2, "one for the order and one for the offer, whatever the number of zones"
    world.assert_right_at_the_end()


def test_c63_a_price_above_the_limit_is_refused_before_anything_is_launched(world: CloudWorld) -> None:
    moved(world, "0.60")

    lease_id = world.up(**ONE_SPOT, max_price_per_hour_usd="0.50")
    world.until(lease_id, RELEASED, within=120)

    lease = world.lease(lease_id)
    assert lease.reason is Reason.PRICE_CHANGED
    assert {each.reason for each in lease.attempts} == {Reason.PRICE_CHANGED}
    assert "0.50" in lease.reason_detail and "0.6" in lease.reason_detail
    assert launches(world) == [] and world.ours() == []
    world.assert_right_at_the_end()


def test_c63_only_a_zone_within_the_limit_is_asked(world: CloudWorld) -> None:
    moved(world, "0.60", c="0.40")

    lease_id = world.running(**ONE_SPOT, max_price_per_hour_usd="0.50")

    [launch] = launches(world)
    assert zone_of(world, lease_id) == f"{REGION}c"
    assert Decimal(launch["InstanceMarketOptions.SpotOptions.MaxPrice"]) == Decimal("0.50") - BESIDES
    world.assert_right_at_the_end()


def test_c63_a_price_that_rises_between_the_look_and_the_launch_costs_nothing(world: CloudWorld) -> None:
    world.before("RunInstances", lambda: moved(world, "0.60", f="0.30"), times=1)

    lease_id = world.running(**ONE_SPOT, max_price_per_hour_usd="0.50")

    refused, *others = world.calls("RunInstances")
    assert refused.code == "SpotMaxPriceTooLow"
    assert zone_of(world, lease_id) == f"{REGION}f"
    assert [each.code for each in others if not each.code] == [""]
    world.assert_right_at_the_end()


def test_c63_where_spot_prices_are_not_told_the_limit_still_holds(world: CloudWorld) -> None:
    world.fault(action=HISTORY, code="UnauthorizedOperation")
    moved(world, "0.60", f="0.45")

    lease_id = world.running(**ONE_SPOT, max_price_per_hour_usd="0.50", max_attempts=8)

    assert zone_of(world, lease_id) == f"{REGION}f"
    assert all(each["InstanceMarketOptions.SpotOptions.MaxPrice"] for each in launches(world))
    world.assert_right_at_the_end(may_log=("spot_prices_not_read",))
