"""Vultr's block storage as volumes, and why nothing is stopped there: what the generic rules do not say."""

from dataclasses import replace
from decimal import Decimal

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind, marker_for
from gpulease.errors import (
    CapacityRefused,
    InputInvalid,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Once, Ref, VolumeRequest
from gpulease.providers.vultr.blocks import HDD_REGIONS, NVME_REGIONS
from gpulease_sim.vultr.catalog import REGIONS
from gpulease_sim.vultr.faults import Fault
from gpulease_sim.vultr.settings import BlockBehaviour

from tests.support.provider_contract import MARKER, ready_machine
from tests.support.provider_world import DEPLOYMENT, VultrWorld, ref_of
from tests.support.volume_contract import (
    SIZE_GB,
    VOLUME_MARKER,
    attached,
    ready_volume,
    volume_request,
)

GONE_ID = "00000000-0000-4000-8000-000000000000"
ATTACH, DETACH = "/blocks/[^/]+/attach", "/blocks/[^/]+/detach"


@pytest.fixture
def world() -> VultrWorld:
    return VultrWorld()


def volume_ref(provider_id: str, region: str = "ewr") -> Ref:
    return Ref(ResourceKind.VOLUME, region, VOLUME_MARKER, provider_id)


def behave(world: VultrWorld, **changes: object) -> None:
    block = replace(world.cloud.settings.block, **changes)  # type: ignore[arg-type]
    world.cloud.settings = replace(world.cloud.settings, block=block)


def sent(world: VultrWorld, method: str, path: str = "") -> int:
    return sum(call.method == method and path in call.path for call in world.cloud.calls)


@pytest.mark.parametrize("kind", [PlanKind.VM, PlanKind.BARE_METAL])
def test_a_halted_machine_would_be_billed_so_none_is_stopped(world: VultrWorld, kind: PlanKind) -> None:
    offer, ref = world.offer(kind), Ref(ResourceKind.INSTANCE, "ewr", MARKER, GONE_ID, kind.value)
    before = len(world.cloud.calls)

    assert not world.provider.can_stop(offer)
    assert not world.provider.capabilities.stop_stops_billing
    for call in (world.provider.stop, world.provider.start):
        with pytest.raises(ProviderRejected, match="billed in full"):
            call(ref)
    with pytest.raises(ProviderRejected, match="billed in full"):
        world.provider.stopped_price_per_hour(offer)
    assert len(world.cloud.calls) == before


def test_regions_and_sizes_are_those_that_the_provider_sells() -> None:
    nvme = {region for region, place in REGIONS.items() if "block_storage_high_perf" in place.wire()["options"]}
    some = {region for region, place in REGIONS.items() if "block_storage" in " ".join(place.wire()["options"])}

    assert nvme == NVME_REGIONS
    assert some == NVME_REGIONS | HDD_REGIONS


@pytest.mark.parametrize(
    ("region", "size_gb", "price"),
    [("ewr", 10, "1.00"), ("ewr", 10_000, "1000"), ("dfw", 40, "1.000"), ("dfw", 40_000, "1000"), ("syd", 100, "10")],
)
def test_the_price_is_by_size_and_sort_and_is_what_the_provider_charges(
    world: VultrWorld, region: str, size_gb: int, price: str
) -> None:
    assert world.provider.volume_price_per_month(region, size_gb) == Decimal(price)

    made = world.provider.create_volume(VolumeRequest(region, size_gb, VOLUME_MARKER, ""))

    world.advance(3600 * 731)
    assert world.cloud.book.get(made.provider_id).hourly_usd * 730 == Decimal(price)
    assert world.provider.billing_rule(ResourceKind.VOLUME) is BillingRule.STARTED_HOUR


@pytest.mark.parametrize(
    ("region", "size_gb", "field"),
    [
        ("ewr", 9, "size_gb"),
        ("ewr", 10_001, "size_gb"),
        ("dfw", 39, "size_gb"),
        ("dfw", 40_001, "size_gb"),
        ("mars", 100, "region"),
    ],
)
def test_what_is_not_sold_is_refused_before_any_call(world: VultrWorld, region: str, size_gb: int, field: str) -> None:
    with pytest.raises(InputInvalid) as priced:
        world.provider.volume_price_per_month(region, size_gb)
    with pytest.raises(InputInvalid) as created:
        world.provider.create_volume(VolumeRequest(region, size_gb, VOLUME_MARKER, ""))

    assert priced.value.field == created.value.field == field
    assert not world.cloud.calls


def test_bare_metal_other_regions_and_zones_take_no_volume(world: VultrWorld) -> None:
    vm, metal = world.offer(PlanKind.VM), world.offer(PlanKind.BARE_METAL)

    assert world.provider.can_attach_volume(vm, "ewr", "")
    assert not world.provider.can_attach_volume(metal, "ewr", "")
    assert not world.provider.can_attach_volume(vm, "ord", "")
    assert not world.provider.can_attach_volume(vm, "ewr", "us-east-1a")
    with pytest.raises(InputInvalid):
        world.provider.create_volume(VolumeRequest("ewr", SIZE_GB, VOLUME_MARKER, "", "us-east-1a"))


def test_bare_metal_and_other_regions_are_refused_without_a_call(world: VultrWorld) -> None:
    metal = Ref(ResourceKind.INSTANCE, "ewr", MARKER, GONE_ID, "bare_metal")
    elsewhere = Ref(ResourceKind.INSTANCE, "ord", MARKER, GONE_ID, "vm")

    for instance in (metal, elsewhere):
        with pytest.raises(ProviderRejected):
            world.provider.attach_volume(volume_ref(GONE_ID), instance)

    assert not world.cloud.calls


@pytest.mark.parametrize("reworded", [False, True])
def test_bare_metal_that_is_not_known_to_be_such_is_refused_by_what_the_provider_shows(
    world: VultrWorld, reworded: bool
) -> None:
    volume, metal = ready_volume(world), ready_machine(world, PlanKind.BARE_METAL)
    if reworded:
        world.reword()

    with pytest.raises(ProviderRejected, match="no such VM"):
        world.provider.attach_volume(ref_of(volume), replace(ref_of(metal), subkind=""))


def test_the_marker_is_the_label_of_the_one_create_call(world: VultrWorld) -> None:
    made = world.provider.create_volume(volume_request(world))

    assert world.cloud.book.get(made.provider_id).label == VOLUME_MARKER
    assert world.cloud.book.get(made.provider_id).markers == (VOLUME_MARKER,)
    assert sent(world, "POST", "/blocks") == 1


def test_a_marker_that_might_be_cut_is_not_sent(world: VultrWorld) -> None:
    with pytest.raises(ProviderRejected, match="might be cut"):
        world.provider.create_volume(volume_request(world, marker_for(DEPLOYMENT, "c" * 120)))

    assert not sent(world, "POST")


def test_a_region_without_stock_is_no_capacity(world: VultrWorld) -> None:
    world.cloud.settings = replace(world.cloud.settings, blocks_sold_out=frozenset({"ewr/high_perf"}))

    with pytest.raises(CapacityRefused, match="inferred"):
        world.provider.create_volume(volume_request(world))

    assert world.volumes_made() == 0


def test_a_sort_that_a_region_no_longer_sells_is_rejected_by_what_the_provider_lists(world: VultrWorld) -> None:
    regions = '{"regions": [{"id": "ewr", "options": ["kubernetes"]}], "meta": {"total": 1, "links": {"next": ""}}}'
    world.cloud.faults.add(
        Fault(method="POST", execute=False, status=400, error="No."),
        Fault(method="GET", path="/regions", execute=False, body=regions),
    )

    with pytest.raises(ProviderRejected, match="not sold in this region") as caught:
        world.provider.create_volume(volume_request(world))

    assert type(caught.value) is ProviderRejected


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_that_cannot_be_explained_leaves_it_open_whether_a_block_was_made(
    world: VultrWorld, status: int
) -> None:
    wanted = volume_request(world)
    world.cloud.faults.add(
        Fault(method="POST", execute=False, status=400, error="No."),
        Fault(method="GET", path="/regions", execute=False, status=status),
    )

    with pytest.raises(ProviderUnexpected, match="could not find out why"):
        world.provider.create_volume(wanted)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=500, error="Something new"), ProviderUnavailable),
        (Fault(status=502, html=True), ProviderUnavailable),
        (Fault(cut=True), ProviderUnavailable),
        (Fault(status=429, execute=False), ProviderThrottled),
        (Fault(body='{"block": {"id": "", "status": "pending", "region": "ewr"}}'), ProviderUnexpected),
        (Fault(body='{"block": {"status": "pending"}}'), ProviderUnexpected),
        (Fault(body="{}"), ProviderUnexpected),
    ],
)
def test_a_create_without_a_clear_answer_is_sent_once_and_stays_open(
    world: VultrWorld, fault: Fault, kind: type[ProviderError]
) -> None:
    world.cloud.faults.add(replace(fault, method="POST"))

    with pytest.raises(ProviderError) as caught:
        world.provider.create_volume(volume_request(world))

    assert type(caught.value) is kind
    assert sent(world, "POST") == 1


def test_a_new_block_is_missing_from_lists_for_less_than_the_visibility_window(world: VultrWorld) -> None:
    window = world.provider.visibility_window_seconds
    behave(world, list_lag_seconds=(window - 1, window - 1))
    made = world.provider.create_volume(volume_request(world))

    assert world.provider.find(ref_of(made, by_marker=True)) == []
    assert isinstance(world.provider.observe(ref_of(made)), Observation)
    world.advance(window)
    assert world.provider.find(ref_of(made, by_marker=True))


def test_a_missing_block_in_the_other_known_words_is_absent_in_one_call(world: VultrWorld) -> None:
    not_found = {"block": (404, "Block storage subscription not found.")}
    world.cloud.settings = replace(world.cloud.settings, not_found=not_found)

    assert isinstance(world.provider.observe(volume_ref(GONE_ID)), Absent)
    assert len(world.cloud.calls) == 1


def test_a_refused_read_in_unknown_words_is_checked_with_the_list(world: VultrWorld) -> None:
    volume = ready_volume(world)
    world.cloud.faults.add(Fault(method="GET", path="/blocks/[^/]+", execute=False, status=404, error="Hm."))

    seen = world.provider.observe(ref_of(volume))
    assert isinstance(seen, Observation) and "by list" in seen.words
    assert isinstance(world.provider.observe(volume_ref(GONE_ID)), Absent)


def test_an_answer_about_another_block_is_not_taken(world: VultrWorld) -> None:
    first = ready_volume(world)
    body = world.cloud.handle("GET", f"/blocks/{first.provider_id}", {}, {"Authorization": "Bearer k"}).body.decode()
    world.cloud.faults.add(Fault(method="GET", path="/blocks/[^/]+", execute=False, body=body))

    with pytest.raises(ProviderUnexpected, match="another block"):
        world.provider.observe(volume_ref(GONE_ID))


@pytest.mark.parametrize(
    ("status", "condition"),
    [
        ("pending", Condition.PENDING),
        ("active", Condition.READY),
        ("suspended", Condition.FAILED),
        ("destroying", Condition.DELETING),
        ("a word of next year", Condition.PENDING),
    ],
)
def test_state_words_of_blocks(world: VultrWorld, status: str, condition: Condition) -> None:
    body = f'{{"block": {{"id": "{GONE_ID}", "region": "EWR", "status": "{status}", "size_gb": 5}}}}'
    world.cloud.faults.add(Fault(method="GET", execute=False, body=body))

    seen = world.provider.observe(volume_ref(GONE_ID))

    assert isinstance(seen, Observation)
    assert (seen.condition, seen.words, seen.region, seen.size_gb) == (condition, status, "ewr", 5)


def test_a_block_in_use_is_never_even_asked_to_go(world: VultrWorld) -> None:
    world.cloud.settings = replace(world.cloud.settings, block_delete_detaches=True)
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    attached(world, volume, machine)

    with pytest.raises(ProviderBusy, match="attached to"):
        world.provider.destroy(ref_of(volume))

    assert not sent(world, "DELETE")


@pytest.mark.parametrize("reworded", [False, True])
def test_a_block_taken_between_the_look_and_the_delete_stays(world: VultrWorld, reworded: bool) -> None:
    behave(world, attach_seconds=(300, 300))
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    world.provider.attach_volume(ref_of(volume), ref_of(machine))
    if reworded:
        world.reword()

    with pytest.raises(ProviderBusy):
        world.provider.destroy(ref_of(volume))

    assert isinstance(world.provider.observe(ref_of(volume)), Observation)


def test_destroying_by_marker_destroys_every_twin(world: VultrWorld) -> None:
    for _ in range(2):
        seen = world.provider.create_volume(volume_request(world))
    world.advance(60)

    world.provider.destroy(ref_of(seen, by_marker=True))
    world.advance(60)

    assert not world.cloud.book.billed()


def test_an_accepted_delete_that_does_nothing_shows_in_the_next_look(world: VultrWorld) -> None:
    volume = ready_volume(world)
    world.cloud.faults.add(Fault(method="DELETE", effect="ignore", times=1))

    world.provider.destroy(ref_of(volume))
    world.advance(60)
    assert isinstance(world.provider.observe(ref_of(volume)), Observation)

    world.provider.destroy(ref_of(volume))
    world.advance(60)
    assert isinstance(world.provider.observe(ref_of(volume)), Absent)


@pytest.mark.parametrize("text", ["", "..", "all", f"{GONE_ID}/../x"])
def test_what_is_no_id_is_not_put_into_a_path(world: VultrWorld, text: str) -> None:
    machine = Ref(ResourceKind.INSTANCE, "ewr", MARKER, GONE_ID, "vm")

    with pytest.raises(ProviderRejected):
        world.provider.attach_volume(volume_ref(text), machine)
    with pytest.raises(ProviderRejected):
        world.provider.attach_volume(volume_ref(GONE_ID), replace(machine, provider_id=text))
    assert not world.cloud.calls


def test_volumes_are_found_on_every_page_and_read_once_for_all_regions(world: VultrWorld) -> None:
    world.cloud.settings = replace(world.cloud.settings, block=BlockBehaviour(list_lag_seconds=(0, 0)))
    made = [
        world.provider.create_volume(VolumeRequest(region, 10, marker_for(DEPLOYMENT, f"c-{number:012}.volume.1"), ""))
        for number, region in enumerate(["ewr", "ord"] * 252)
    ]
    once = Once()
    since = sent(world, "GET", "/blocks")

    listed = {
        region: list(world.provider.list_owned(region, DEPLOYMENT, once=once)) for region in ("ewr", "ord", "lax")
    }

    assert {region: len(seen) for region, seen in listed.items()} == {"ewr": 252, "ord": 252, "lax": 0}
    assert sent(world, "GET", "/blocks") - since == 2
    [last] = world.provider.find(ref_of(made[-1], by_marker=True))
    assert last.provider_id == made[-1].provider_id


def test_vultr_sells_no_speed(world: VultrWorld) -> None:
    wanted = replace(volume_request(world), throughput_mibps=400)

    for ask in (
        lambda: world.provider.volume_price_per_month(wanted.region, wanted.size_gb, 400),
        lambda: world.provider.create_volume(wanted),
    ):
        with pytest.raises(InputInvalid, match="no speed to buy") as refused:
            ask()
        assert refused.value.field == "throughput_mibps"
    assert world.volumes_made() == 0
