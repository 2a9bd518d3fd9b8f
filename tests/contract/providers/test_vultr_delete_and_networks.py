"""Deletes and networks: refusals mean later, and accepted means nothing yet."""

from dataclasses import replace

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind, marker_for
from gpulease.errors import (
    NetworkUnsupported,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    QuotaRefused,
)
from gpulease.ports import NetworkRequest, Ref
from gpulease_sim.vultr.faults import Fault, lost_answer

from tests.support.provider_contract import MARKER, NETWORK_MARKER, ready_machine
from tests.support.provider_world import DEPLOYMENT, VultrWorld, ref_of, request

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


def test_destroying_by_marker_destroys_every_twin(world: VultrWorld) -> None:
    first = ready_machine(world, PlanKind.VM)
    second = ready_machine(world, PlanKind.VM)

    world.provider.destroy(ref_of(first, by_marker=True))
    world.advance(300)

    assert not world.cloud.book.billed(free=False)
    assert first.provider_id != second.provider_id


def test_a_second_delete_while_it_is_going_is_accepted(world: VultrWorld) -> None:
    seen = ready_machine(world, PlanKind.VM)

    world.provider.destroy(ref_of(seen))
    world.provider.destroy(ref_of(seen))

    assert isinstance(world.provider.observe(ref_of(seen)), Observation)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=500, error="Something new", execute=False), ProviderBusy),
        (Fault(status=400, error="Something new", execute=False), ProviderBusy),
        (Fault(status=409, error="Something new", execute=False), ProviderBusy),
        (Fault(status=502, html=True), ProviderUnavailable),
        (Fault(cut=True), ProviderUnavailable),
        (Fault(status=429, execute=False), ProviderThrottled),
    ],
)
def test_a_delete_is_sent_once_and_its_refusals_mean_later(
    world: VultrWorld, fault: Fault, kind: type[ProviderError]
) -> None:
    seen = ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(replace(fault, method="DELETE"))

    with pytest.raises(ProviderError) as caught:
        world.provider.destroy(ref_of(seen))

    assert type(caught.value) is kind
    assert sum(call.method == "DELETE" for call in world.cloud.calls) == 1


def test_a_refusal_that_is_understood_takes_one_call(world: VultrWorld) -> None:
    made = world.provider.create_instance(request(world.offer(PlanKind.VM), MARKER))
    before = len(world.cloud.calls)

    with pytest.raises(ProviderBusy):
        world.provider.destroy(ref_of(made))

    assert len(world.cloud.calls) == before + 1


def test_an_accepted_delete_that_does_nothing_shows_in_the_next_look(world: VultrWorld) -> None:
    seen = ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(Fault(method="DELETE", effect="ignore", times=2))

    world.provider.destroy(ref_of(seen))
    world.advance(60)

    again = world.provider.observe(ref_of(seen))
    assert isinstance(again, Observation) and again.condition is Condition.READY


def test_a_network_refuses_to_go_while_and_after_its_machine_goes(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.VM)
    network = world.provider.create_network(NetworkRequest(offer.region, NETWORK_MARKER))
    machine = ready_machine(world, PlanKind.VM, network_provider_id=network.provider_id)

    world.provider.destroy(ref_of(machine))
    world.advance(31)
    assert isinstance(world.provider.observe(ref_of(machine)), Absent)
    gone_at = world.cloud.book.get(machine.provider_id).destroyed
    assert gone_at is not None
    world.clock.seconds = gone_at + 1
    with pytest.raises(ProviderBusy):
        world.provider.destroy(ref_of(network))

    world.advance(80)
    world.provider.destroy(ref_of(network))
    assert isinstance(world.provider.observe(ref_of(network)), Absent)


@pytest.mark.parametrize("reworded", [False, True])
def test_the_sixth_network_of_a_region_is_over_the_limit(world: VultrWorld, reworded: bool) -> None:
    if reworded:
        world.reword()
    for _ in range(5):
        world.provider.create_network(NetworkRequest("ewr", NETWORK_MARKER))

    with pytest.raises(QuotaRefused):
        world.provider.create_network(NetworkRequest("ewr", NETWORK_MARKER))
    world.provider.create_network(NetworkRequest("ord", NETWORK_MARKER))


def test_a_network_whose_create_answer_is_lost_is_found_by_its_description(world: VultrWorld) -> None:
    world.cloud.faults.add(lost_answer("POST", "/vpcs"))

    with pytest.raises(ProviderUnavailable):
        world.provider.create_network(NetworkRequest("ewr", NETWORK_MARKER))

    assert len(world.provider.find(net_ref(""))) == 1


def test_a_plan_without_networks_says_so(world: VultrWorld) -> None:
    world.cloud.settings = replace(world.cloud.settings, plans_without_vpc=frozenset({"vbm-48c-1024gb-4-a100-gpu"}))
    machine = ready_machine(world, PlanKind.BARE_METAL)
    network = world.provider.create_network(NetworkRequest(machine.region, NETWORK_MARKER))

    with pytest.raises(NetworkUnsupported):
        world.provider.attach_network(ref_of(machine), ref_of(network))
    world.reword()
    with pytest.raises(ProviderBusy):
        world.provider.attach_network(ref_of(machine), ref_of(network))


def test_a_transient_refusal_to_attach_means_later(world: VultrWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    network = world.provider.create_network(NetworkRequest(machine.region, NETWORK_MARKER))
    world.cloud.faults.add(
        Fault(method="POST", path=".*/attach", execute=False, status=500, error="Unable to attach VPC", times=6)
    )

    for _ in range(6):
        with pytest.raises(ProviderBusy):
            world.provider.attach_network(ref_of(machine), ref_of(network))


@pytest.mark.parametrize("reworded", [False, True])
def test_attaching_what_is_attached_is_done(world: VultrWorld, reworded: bool) -> None:
    offer = world.offer(PlanKind.VM)
    network = world.provider.create_network(NetworkRequest(offer.region, NETWORK_MARKER))
    machine = ready_machine(world, PlanKind.VM, network_provider_id=network.provider_id)
    if reworded:
        world.reword()

    world.provider.attach_network(ref_of(machine), ref_of(network))


@pytest.mark.parametrize("reworded", [False, True])
def test_attaching_what_is_not_there_is_rejected(world: VultrWorld, reworded: bool) -> None:
    machine = ready_machine(world, PlanKind.VM)
    elsewhere = world.provider.create_network(NetworkRequest("ord", NETWORK_MARKER))
    if reworded:
        world.reword()

    for network in (net_ref(GONE_ID), ref_of(elsewhere)):
        with pytest.raises(ProviderRejected):
            world.provider.attach_network(ref_of(machine), network)
    with pytest.raises(ProviderRejected):
        world.provider.attach_network(vm_ref(GONE_ID), ref_of(elsewhere))


def test_bare_metal_joins_one_network_only(world: VultrWorld) -> None:
    offer = world.offer(PlanKind.BARE_METAL)
    first, second = (world.provider.create_network(NetworkRequest(offer.region, NETWORK_MARKER)) for _ in range(2))
    machine = ready_machine(world, PlanKind.BARE_METAL, network_provider_id=first.provider_id)
    world.cloud.faults.add(Fault(method="POST", path=".*/attach", execute=False, status=400, error="No."))

    with pytest.raises(ProviderRejected, match="one VPC only"):
        world.provider.attach_network(ref_of(machine), ref_of(second))
