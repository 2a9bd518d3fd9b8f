"""Attaching and detaching Vultr's blocks: late, refused in many words, and never asked twice."""

from dataclasses import replace

import pytest
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind
from gpulease.errors import (
    ProviderBusy,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
)
from gpulease.ports import Ref
from gpulease_sim.vultr.faults import Fault, lost_answer

from tests.support.provider_contract import MARKER, ready_machine
from tests.support.provider_world import VultrWorld, ref_of
from tests.support.volume_contract import (
    VOLUME_MARKER,
    attached,
    is_free,
    ready_volume,
    volume_request,
    wait_until,
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


def test_an_attach_asks_once_and_without_a_restart(world: VultrWorld) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    since = len(world.cloud.calls)

    world.provider.attach_volume(ref_of(volume), ref_of(machine))
    world.advance(30)

    assert [call.path for call in list(world.cloud.calls)[since:]] == [f"/blocks/{volume.provider_id}/attach"]
    again = world.provider.observe(ref_of(machine))
    assert isinstance(again, Observation) and again.condition is Condition.READY


@pytest.mark.parametrize("reworded", [False, True])
def test_attaching_what_is_attached_there_is_done(world: VultrWorld, reworded: bool) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    attached(world, volume, machine)
    if reworded:
        world.reword()

    world.provider.attach_volume(ref_of(volume), ref_of(machine))


@pytest.mark.parametrize("reworded", [False, True])
def test_a_block_that_is_being_made_or_is_on_its_way_means_later(world: VultrWorld, reworded: bool) -> None:
    behave(world, active_seconds=(15, 15), attach_seconds=(15, 15))
    machine = ready_machine(world, PlanKind.VM)
    volume = world.provider.create_volume(volume_request(world))
    if reworded:
        world.reword()

    with pytest.raises(ProviderBusy):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))
    world.advance(15)
    world.provider.attach_volume(ref_of(volume), ref_of(machine))
    with pytest.raises(ProviderBusy):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))
    world.advance(15)
    world.provider.attach_volume(ref_of(volume), ref_of(machine))


@pytest.mark.parametrize("reworded", [False, True])
def test_a_locked_machine_means_later(world: VultrWorld, reworded: bool) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    if reworded:
        world.reword()
    world.cloud.machine(machine.provider_id).locked_until = world.clock.seconds + 60

    with pytest.raises(ProviderBusy):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))

    world.advance(61)
    world.provider.attach_volume(ref_of(volume), ref_of(machine))


@pytest.mark.parametrize("reworded", [False, True])
def test_attaching_what_is_gone_or_going_is_rejected(world: VultrWorld, reworded: bool) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    if reworded:
        world.reword()

    with pytest.raises(ProviderRejected, match="no such block"):
        world.provider.attach_volume(volume_ref(GONE_ID), ref_of(machine))
    with pytest.raises(ProviderRejected, match="no such VM"):
        world.provider.attach_volume(ref_of(volume), Ref(ResourceKind.INSTANCE, "ewr", MARKER, GONE_ID, "vm"))
    world.provider.destroy(ref_of(machine))
    # Not every read shows that a machine is going.
    with pytest.raises((ProviderBusy, ProviderRejected)):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))
    world.advance(60)
    with pytest.raises(ProviderRejected, match="no such VM"):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))


@pytest.mark.parametrize("status", [400, 409, 422, 500])
def test_an_unknown_refusal_of_an_attach_that_nothing_explains_means_later(world: VultrWorld, status: int) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(Fault(method="POST", path=ATTACH, execute=False, status=status, error="No."))

    with pytest.raises(ProviderBusy, match="not now"):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))


def test_an_error_after_which_it_is_attached_is_no_error(world: VultrWorld) -> None:
    behave(world, attach_seconds=(0, 0))
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(Fault(method="POST", path=ATTACH, status=500, error="No."))

    world.provider.attach_volume(ref_of(volume), ref_of(machine))

    seen = world.provider.observe(ref_of(volume))
    assert isinstance(seen, Observation) and seen.attached


@pytest.mark.parametrize("path", [ATTACH, DETACH])
def test_lost_and_throttled_calls_are_sent_once(world: VultrWorld, path: str) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    attached(world, volume, machine)
    call = world.provider.attach_volume if path == ATTACH else world.provider.detach_volume
    before = sent(world, "POST")
    world.cloud.faults.add(lost_answer("POST", path), Fault(method="POST", path=path, execute=False, status=429))

    with pytest.raises(ProviderUnavailable):
        call(ref_of(volume), ref_of(machine))
    with pytest.raises(ProviderThrottled):
        call(ref_of(volume), ref_of(machine))

    assert sent(world, "POST") == before + 2


def test_an_attach_that_was_forgotten_shows_as_free(world: VultrWorld) -> None:
    behave(world, attach_lost_probability=1)
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)

    world.provider.attach_volume(ref_of(volume), ref_of(machine))
    world.advance(600)

    seen = world.provider.observe(ref_of(volume))
    assert isinstance(seen, Observation) and is_free(seen)


def test_a_detach_reaches_an_attach_that_does_not_show_yet(world: VultrWorld) -> None:
    behave(world, attach_seconds=(300, 300))
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    world.provider.attach_volume(ref_of(volume), ref_of(machine))

    world.provider.detach_volume(ref_of(volume), ref_of(machine))
    world.advance(600)

    seen = world.provider.observe(ref_of(volume))
    assert isinstance(seen, Observation) and is_free(seen)


@pytest.mark.parametrize("reworded", [False, True])
def test_a_detach_that_is_stuck_means_later(world: VultrWorld, reworded: bool) -> None:
    behave(world, stuck_detach_probability=1, stuck_detach_failures=(5, 5))
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    attached(world, volume, machine)
    if reworded:
        world.reword()

    for _ in range(5):
        with pytest.raises(ProviderBusy):
            world.provider.detach_volume(ref_of(volume), ref_of(machine))
    world.provider.detach_volume(ref_of(volume), ref_of(machine))

    wait_until(world, volume, is_free)


def test_a_block_that_keeps_the_name_of_its_dead_machine_is_freed_by_a_detach(world: VultrWorld) -> None:
    behave(world, never_detaches_probability=1)
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    attached(world, volume, machine)
    world.provider.destroy(ref_of(machine))
    world.advance(10_000)
    seen = world.provider.observe(ref_of(volume))
    assert isinstance(seen, Observation) and seen.attached_to == machine.provider_id
    with pytest.raises(ProviderBusy):
        world.provider.destroy(ref_of(volume))

    world.provider.detach_volume(ref_of(volume), ref_of(machine))

    wait_until(world, volume, is_free)


def test_a_machine_that_starts_again_is_not_disturbed_by_a_refused_detach(world: VultrWorld) -> None:
    volume, machine = ready_volume(world), ready_machine(world, PlanKind.VM)
    attached(world, volume, machine)
    world.cloud.machine(machine.provider_id).locked_until = world.clock.seconds + 60

    with pytest.raises(ProviderBusy):
        world.provider.detach_volume(ref_of(volume), ref_of(machine))

    assert wait_until(world, volume, lambda seen: seen.attached).attached_to == machine.provider_id
