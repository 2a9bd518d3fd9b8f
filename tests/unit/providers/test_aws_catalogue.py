"""gpuhunt's catalogue of AWS as the adapter reads it, and what it makes of it."""

import io
import zipfile
from decimal import Decimal

import pytest
from gpuhunt import AcceleratorVendor, CatalogItem, CPUArchitecture  # type: ignore[import-untyped]
from gpuhunt._internal.storage import dump  # type: ignore[import-untyped]
from gpulease.domain.selection import matching
from gpulease.domain.spec import LeaseSpec
from gpulease.errors import ProviderRejected, ProviderUnavailable, ProviderUnexpected
from gpulease.providers.aws.catalogue import download, rows_of
from gpulease.providers.aws.options import CatalogueRow
from gpulease.providers.http import Fault, RawResponse, TransportError
from gpulease.providers.offers_gpuhunt import collect
from gpulease_sim.aws import Fault as ApiFault

from tests.support.aws_world import OTHER_REGION, REGION, AwsWorld
from tests.support.provider_world import Lines, ManualClock, VultrWorld
from tests.unit.providers.test_http import Scripted

URL = "https://catalogue.test"
ITEMS = [
    CatalogItem(
        provider="aws", instance_name="g6.xlarge", location="us-east-1", price=0.8048, cpu=4, memory=16.0, gpu_count=1,
        gpu_name="L4", gpu_memory=24.0, spot=False, disk_size=None, gpu_vendor=AcceleratorVendor.NVIDIA,
    ),
    CatalogItem(
        provider="aws", instance_name="g5g.xlarge", location="us-east-1", price=0.21, cpu=4, memory=8.0, gpu_count=1,
        gpu_name="T4G", gpu_memory=16.0, spot=True, disk_size=None, gpu_vendor=AcceleratorVendor.NVIDIA,
        cpu_arch=CPUArchitecture.ARM,
    ),
    CatalogItem(
        provider="aws", instance_name="m7i.large", location="us-east-1", price=0.1, cpu=2, memory=8.0, gpu_count=0,
        gpu_name=None, gpu_memory=None, spot=False, disk_size=None,
    ),
]  # fmt: skip


@pytest.fixture
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file as gpuhunt itself writes it."""
    file = tmp_path_factory.mktemp("catalogue") / "aws.csv"
    dump(ITEMS, str(file))
    return file.read_text(encoding="utf-8")


def zipped(text: str, name: str = "aws.csv") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, text)
    return content.getvalue()


def answered(*bodies: bytes) -> Scripted:
    return Scripted(*(RawResponse(200, {}, body) for body in bodies))


def test_the_file_of_gpuhunt_is_read_with_exact_prices(published: str) -> None:
    transport = answered(b"20261130-42\n", zipped(published))

    rows = download(transport, URL, Lines())

    assert rows == [
        CatalogueRow("g6.xlarge", "us-east-1", Decimal("0.8048"), 4, 16.0, "L4", 1, 24.0),
        CatalogueRow("g5g.xlarge", "us-east-1", Decimal("0.21"), 4, 8.0, "T4G", 1, 16.0, spot=True, cpu_arch="arm64"),
    ]
    assert [url for _, url, _, _ in transport.sent] == [
        f"{URL}/aws/version",
        f"{URL}/aws/20261130-42/catalog.zip",
    ]


def test_rows_that_cannot_be_read_are_counted_and_left_out(published: str) -> None:
    log = Lines()

    rows = rows_of(published.replace("0.21", "a fifth"), log)

    assert [row.plan for row in rows] == ["g6.xlarge"]
    assert log.lines == [("warning", "catalogue_rows_not_read", {"provider": "aws", "rows": 1})]


@pytest.mark.parametrize(
    "bodies",
    [
        (b"../../etc/passwd",),
        (b"",),
        (b"1", b"no zip"),
        (b"1", zipped("x", "other.csv")),
        (b"1", zipped("instance_name,price\n")),
    ],
    ids=["path", "empty", "no zip", "no file", "no rows"],
)
def test_a_catalogue_that_makes_no_sense_is_no_catalogue(bodies: tuple[bytes, ...]) -> None:
    with pytest.raises(ProviderUnexpected):
        download(answered(*bodies), URL, Lines())


def test_no_answer_and_a_refusal_are_told_as_such() -> None:
    for script in (TransportError(Fault.NOT_SENT), RawResponse(403, {}, b"denied")):
        with pytest.raises(ProviderUnavailable):
            download(Scripted(script), URL, Lines())


def test_an_offer_costs_all_that_its_machine_costs() -> None:
    offer = next(o for o in AwsWorld().provider.offers() if o.plan == "g6.xlarge" and not o.spot)

    # $0.8048 for the machine, 100 GB at $0.08 a month, and $0.005 for the address.
    assert offer.price_per_hour_usd == Decimal("0.8048") + Decimal("0.010959") + Decimal("0.005")
    larger = offer.with_disk(200)
    assert (larger.disk_gb, larger.price_per_hour_usd) == (200, offer.price_per_hour_usd + Decimal("0.010959"))
    assert offer.with_disk(50) == offer == offer.with_disk(None)
    assert offer.with_disk(20_000) == offer


def test_a_region_that_does_not_answer_hides_no_other() -> None:
    world = AwsWorld()
    world.cloud.faults.add(ApiFault(region=OTHER_REGION, code="InternalError"))

    offers = world.provider.offers()

    assert {offer.region for offer in offers} == {REGION}
    assert ("warning", "region_not_offered") in {line[:2] for line in world.log.lines}


def test_without_any_region_that_answers_there_are_no_offers_to_tell_of() -> None:
    world = AwsWorld()
    world.cloud.faults.add(ApiFault(code="InternalError"))

    with pytest.raises(ProviderUnavailable):
        world.provider.offers()
    with pytest.raises(ProviderRejected):
        AwsWorld(regions=()).provider.offers()


def test_offers_come_out_of_gpuhunts_catalogue_as_they_went_in() -> None:
    world = AwsWorld()
    given = world.provider.offers()

    collected = collect([world.provider, VultrWorld().provider], clock=ManualClock(), log=Lines())

    assert not collected.failures
    aws = next(snapshot for snapshot in collected.snapshots if snapshot.provider == "aws")
    assert {offer.key: offer for offer in aws.offers} == {offer.key: offer for offer in given}
    assert {snapshot.provider for snapshot in collected.snapshots if snapshot.offers} == {"aws", "vultr"}


def test_a_larger_disk_makes_an_offer_fit_at_its_price() -> None:
    offers = AwsWorld().provider.offers()

    fits = matching(LeaseSpec(gpu=("L4",), min_disk_gb=500), offers)

    assert {offer.disk_gb for offer in fits} == {500}
    small = {offer.key: offer.price_per_hour_usd for offer in matching(LeaseSpec(gpu=("L4",)), offers)}
    assert all(offer.price_per_hour_usd > small[offer.key] for offer in fits)
    assert matching(LeaseSpec(gpu=("L4",), min_disk_gb=20_000), offers) == []
