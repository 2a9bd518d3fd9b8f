"""Creates: what they carry, and what each way of not working means."""

import base64
from dataclasses import replace

import pytest
from gpulease.domain.observation import Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind, marker_for
from gpulease.errors import (
    CapacityRefused,
    InputInvalid,
    ProviderAuthFailed,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import NetworkRequest, Ref
from gpulease_sim.vultr.faults import Fault

from tests.support.provider_contract import MARKER, NETWORK_MARKER
from tests.support.provider_world import DEPLOYMENT, KEY, VultrWorld, ref_of, request

GONE_ID = "00000000-0000-4000-8000-000000000000"
NO_ADDRESS = "0.0.0.0"  # noqa: S104 Vultr's text for "none yet"
NO_MARKER = marker_for(DEPLOYMENT, "l-zzzzzzzzzzzz.instance.1")


@pytest.fixture
def world() -> VultrWorld:
    return VultrWorld()


def vm_ref(provider_id: str, region: str = "ewr") -> Ref:
    return Ref(ResourceKind.INSTANCE, region, NO_MARKER, provider_id, "vm")


def net_ref(provider_id: str, region: str = "ewr") -> Ref:
    return Ref(ResourceKind.NETWORK, region, NETWORK_MARKER, provider_id)


def test_the_create_call_carries_marker_label_and_user_data(world: VultrWorld) -> None:
    data = b"#cloud-config\n\x00\xff"
    made = world.provider.create_instance(request(world.offer(PlanKind.VM), MARKER, user_data=data))

    machine = world.cloud.machine(made.provider_id)
    assert machine.tags == (MARKER,) and machine.label == "my-lease"
    assert base64.b64decode(machine.user_data) == data
    assert machine.os_id == 1743 and not machine.backups and not machine.ssh_key_ids
    assert not world.cloud.account.vpcs


def test_a_given_network_is_joined_in_the_create_call(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)
    network = world.provider.create_network(NetworkRequest(offer.region, NETWORK_MARKER))

    made = world.provider.create_instance(request(offer, MARKER, network_provider_id=network.provider_id))
    world.advance(20)

    seen = world.provider.observe(ref_of(made))
    assert isinstance(seen, Observation) and seen.network_ids == (network.provider_id,)


def test_too_long_user_data_and_a_wrong_image_make_no_call(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)

    with pytest.raises(ProviderRejected):
        world.provider.create_instance(request(offer, MARKER, user_data=b"x" * (64 * 1024 + 1)))
    with pytest.raises(InputInvalid):
        world.provider.create_instance(request(offer, MARKER, image="windows"))
    with pytest.raises(ProviderRejected):
        world.provider.create_instance(request(offer, ""))

    assert world.creates_seen() == 0


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", ProviderUnexpected),
        ("{}", ProviderUnexpected),
        ('{"instance": null}', ProviderUnexpected),
        ('{"instance": []}', ProviderUnexpected),
        ('{"instance": {"status": "pending"}}', ProviderUnexpected),
        ('{"instance": {"id": "", "region": "ewr", "status": "pending"}}', ProviderUnexpected),
        ('{"instance": {"id": "../x", "region": "ewr", "status": "pending"}}', ProviderUnexpected),
        ("<html>", ProviderUnavailable),
    ],
)
def test_a_garbled_answer_to_a_create_leaves_it_open_and_hides_the_password(
    world: VultrWorld, body: str, kind: type[ProviderError]
) -> None:
    offer = world.offer(PlanKind.VM)
    world.cloud.faults.add(Fault(method="POST", path="/instances", body=body))

    with pytest.raises(ProviderError) as caught:
        world.provider.create_instance(request(offer, MARKER))

    assert type(caught.value) is kind
    assert world.machines_made() == 1 and world.creates_seen() == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=500, error="Internal error"), ProviderUnavailable),
        (Fault(status=502, html=True), ProviderUnavailable),
        (Fault(status=504), ProviderUnavailable),
        (Fault(cut=True), ProviderUnavailable),
        (Fault(delay_seconds=56), ProviderUnavailable),
        (Fault(status=429, execute=False, retry_after=9), ProviderThrottled),
        (Fault(status=403, execute=False), ProviderAuthFailed),
    ],
)
def test_other_ends_of_a_create(world: VultrWorld, fault: Fault, kind: type[ProviderError]) -> None:
    offer = world.offer(PlanKind.VM)
    world.cloud.faults.add(replace(fault, method="POST", path="/instances"))

    with pytest.raises(ProviderError) as caught:
        world.provider.create_instance(request(offer, MARKER))

    assert type(caught.value) is kind and world.creates_seen() == 1
    assert world.machines_made() == (1 if fault.execute else 0)
    if kind is ProviderThrottled:
        assert caught.value.facts.retry_after_seconds == 9


@pytest.mark.parametrize("reworded", [False, True])
@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"plan": "vcg-gone"}, ProviderRejected),
        ({"plan": "vbm-48c-1024gb-4-a100-gpu"}, ProviderRejected),
        ({"region": "xyz"}, ProviderRejected),
    ],
)
def test_an_unknown_plan_or_region_is_rejected(
    world: VultrWorld, reworded: bool, changes: dict[str, str], kind: type[ProviderError]
) -> None:
    offer = world.offer(PlanKind.VM).model_copy(update=changes)
    if reworded:
        world.reword()

    with pytest.raises(ProviderError) as caught:
        world.provider.create_instance(request(offer, MARKER))

    assert type(caught.value) is kind


@pytest.mark.parametrize("reworded", [False, True])
@pytest.mark.parametrize("image", ["os:99999", "app:99999", "image:nosuch"])
def test_an_unknown_image_is_rejected_and_not_taken_for_a_limit(world: VultrWorld, reworded: bool, image: str) -> None:
    offer = world.offer(PlanKind.VM)
    if reworded:
        world.reword()

    with pytest.raises(ProviderRejected) as caught:
        world.provider.create_instance(request(offer, MARKER, image=image))

    assert type(caught.value) is ProviderRejected and "no such image" in caught.value.facts.message


def test_stock_that_vanished_in_between_is_no_capacity_by_its_words(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)
    world.cloud.faults.add(
        Fault(method="POST", path="/instances", execute=False, status=400, error="GPU sold out, sorry")
    )

    with pytest.raises(CapacityRefused, match="sold out"):
        world.provider.create_instance(request(offer, MARKER))


def test_when_the_reason_cannot_be_looked_up_the_create_stays_open(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)
    world.advance(3600)
    world.reword()
    world.reach_limit()
    world.cloud.faults.add(Fault(method="GET", execute=False, status=429))

    with pytest.raises(ProviderUnexpected, match="throttled"):
        world.provider.create_instance(request(offer, MARKER))


def test_plans_that_are_not_offered_are_logged(world: VultrWorld) -> None:
    plans = {offer.plan for offer in world.provider.offers()}

    logged = {str(facts["plan"]) for _, event, facts in world.log.lines if event == "gpu_plan_not_offered"}
    assert "vcg-h100-216c-1914gb-640vram" in logged and not plans & logged


def test_a_plan_that_the_list_of_all_plans_misses_is_still_offered(world: VultrWorld) -> None:
    empty = '{"plans": [], "meta": {"total": 0, "links": {"next": "", "prev": ""}}}'
    world.cloud.faults.add(Fault(method="GET", path="/plans", query="type=all", execute=False, body=empty))

    plans = {offer.plan for offer in world.provider.offers()}

    assert {"vcg-a40-24c-120g-48vram", "vcg-a16-2c-8g-2vram"} <= plans


def test_whole_gpu_plans_are_offered_where_they_are_in_stock_though_not_listed(world: VultrWorld) -> None:
    keys = {offer.key for offer in world.provider.offers()}

    assert "vultr/sea/vcg-a100-12c-120g-80vram/on-demand" in keys  # in stock, not listed
    assert "vultr/lax/vcg-a40-24c-120g-48vram/on-demand" in keys  # listed, not in stock


def test_offers_survive_that_stock_cannot_be_read(world: VultrWorld) -> None:
    world.cloud.faults.add(Fault(method="GET", path="/regions/.*", execute=False, status=429))

    keys = {offer.key for offer in world.provider.offers()}

    assert "vultr/lax/vcg-a40-24c-120g-48vram/on-demand" in keys
    assert "vultr/sea/vcg-a100-12c-120g-80vram/on-demand" not in keys
    assert [event for _, event, _ in world.log.lines if event == "stock_not_read"]


def test_live_of_an_unknown_plan_or_region_is_rejected(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)

    for change in ({"plan": "vcg-gone"}, {"region": "xyz"}, {"region": "../os"}, {"kind": PlanKind.BARE_METAL}):
        with pytest.raises(ProviderRejected):
            world.provider.live(offer.model_copy(update=change))


def test_a_preemptible_only_plan_is_never_in_stock(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM).model_copy(update={"plan": "vcg-h100-216c-1914gb-640vram", "region": "ord"})

    assert world.provider.live(offer).in_stock is False


def test_prices_are_read_again_after_a_minute(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)

    def plan_lists() -> int:
        return sum(call.path.startswith("/plans") for call in world.cloud.calls)

    before = plan_lists()
    world.provider.live(offer)
    assert plan_lists() == before
    world.advance(61)
    world.provider.live(offer)
    assert plan_lists() > before


def test_a_rotated_key_is_picked_up_without_a_second_machine(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)
    world.secrets.stored = "NEWKEY-" + KEY
    world.cloud.settings = replace(world.cloud.settings, api_keys=frozenset({"NEWKEY-" + KEY}))

    world.provider.create_instance(request(offer, MARKER))

    assert world.machines_made() == 1
