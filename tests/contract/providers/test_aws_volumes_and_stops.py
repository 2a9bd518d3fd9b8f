"""Volumes, stopping and starting on AWS (cases C36, C38, C39, C40)."""

from dataclasses import replace
from typing import TypeGuard

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import marker_for
from gpulease.errors import (
    CapacityRefused,
    ProviderBusy,
    ProviderRejected,
)
from gpulease_sim.aws import Fault, no_capacity

from tests.support.aws_world import (
    STEADY,
    AwsWorld,
    launch,
)
from tests.support.provider_contract import ready_machine
from tests.support.provider_world import DEPLOYMENT, ref_of
from tests.support.stop_contract import LONGEST_START_SECONDS, LONGEST_STOP_SECONDS, look
from tests.support.volume_contract import attached, is_free, ready_volume, wait_until

SPOT_MARKER = marker_for(DEPLOYMENT, "l-bbbbbbbbbbbb.instance.1")


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


# --- volumes ----------------------------------------------------------------------------------------------------------


def test_c36_a_volume_that_hangs_in_detaching_is_not_free_until_its_machine_is_gone(world: AwsWorld) -> None:
    machine, volume = ready_machine(world, PlanKind.VM), ready_volume(world)
    other = launch(world, SPOT_MARKER)
    world.advance(200)
    attached(world, volume, machine)
    world.cloud.mount(volume.provider_id)

    world.provider.detach_volume(ref_of(volume), ref_of(machine))
    world.advance(1200)

    assert look(world, volume).attached_to == machine.provider_id
    with pytest.raises(ProviderBusy):
        world.provider.attach_volume(ref_of(volume), ref_of(other))
    world.provider.destroy(ref_of(machine))
    wait_until(world, volume, is_free)
    attached(world, volume, other)


@pytest.mark.parametrize(("plan", "fits"), [("p3.2xlarge", False), ("p3dn.24xlarge", True), ("g6e.xlarge", True)])
def test_a_machine_whose_disks_do_not_say_what_they_are_gets_no_volume(world: AwsWorld, plan: str, fits: bool) -> None:
    """On Xen a volume shows as `/dev/xvdf` without any id; nothing is formatted or mounted on a guess."""
    offer = world.offer(PlanKind.VM).model_copy(update={"plan": plan})

    assert world.provider.can_attach_volume(offer, offer.region, offer.zone) is fits


def test_several_volumes_get_names_of_their_own(world: AwsWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    volumes = [ready_volume(world, marker_for(DEPLOYMENT, f"c-aaaaaaaaaaaa.volume.{n}")) for n in (1, 2, 3)]

    for volume in volumes:
        attached(world, volume, machine)

    assert {look(world, volume).attached_to for volume in volumes} == {machine.provider_id}


def test_a_device_name_that_is_taken_unseen_is_left_for_the_next(world: AwsWorld) -> None:
    machine, volume = ready_machine(world, PlanKind.VM), ready_volume(world)
    world.cloud.faults.add(
        Fault(action="AttachVolume", params="Device=/dev/sdf", code="InvalidParameterValue", execute=False)
    )

    attached(world, volume, machine)

    asked = [call.params["Device"] for call in world.cloud.calls if call.action == "AttachVolume"]
    assert asked == ["/dev/sdf", "/dev/sdg"]


def test_a_full_machine_takes_no_more_volumes(world: AwsWorld) -> None:
    machine, volume = ready_machine(world, PlanKind.VM), ready_volume(world)
    world.set(attach_limit=0)

    with pytest.raises(ProviderRejected):
        world.provider.attach_volume(ref_of(volume), ref_of(machine))


def test_a_stopped_machine_tells_which_volumes_hang_at_it_and_takes_one_as_it_lies_there(world: AwsWorld) -> None:
    """So that one which somebody has detached from it is missed at the look before a start, without a further call."""
    machine, volume = ready_machine(world, PlanKind.VM), ready_volume(world)
    attached(world, volume, machine)
    world.provider.stop(ref_of(machine))
    world.advance(LONGEST_STOP_SECONDS)
    before = world.provider.observe(ref_of(machine))

    world.provider.detach_volume(ref_of(volume), ref_of(machine))
    leaving = world.provider.observe(ref_of(machine))
    wait_until(world, volume, is_free)
    without = world.provider.observe(ref_of(machine))
    attached(world, volume, machine)
    again = world.provider.observe(ref_of(machine))

    told = [volume.provider_id in (seen.volume_ids or ()) for seen in (before, leaving, without, again) if _shown(seen)]
    assert told == [True, False, False, True]


def _shown(seen: Observation | Absent) -> TypeGuard[Observation]:
    return isinstance(seen, Observation) and seen.condition is Condition.STOPPED and seen.volume_ids is not None


# --- stop and start ---------------------------------------------------------------------------------------------------


def test_c38_c39_a_refused_start_is_one_call_and_hinders_no_other_machine(world: AwsWorld) -> None:
    machines = [
        launch(world, marker_for(DEPLOYMENT, f"l-aaaaaaaaaaaa.instance.{n}"), idempotency_token=f"{n}") for n in (1, 2)
    ]
    world.advance(200)
    for machine in machines:
        world.provider.stop(ref_of(machine))
    world.advance(LONGEST_STOP_SECONDS)
    world.cloud.faults.add(no_capacity(params=f"={machines[0].provider_id}", status=500))
    before = world.calls("StartInstances")

    with pytest.raises(CapacityRefused):
        world.provider.start(ref_of(machines[0]))
    world.provider.start(ref_of(machines[1]))

    assert world.calls("StartInstances") == before + 2
    world.advance(LONGEST_START_SECONDS)
    assert [look(world, each).condition for each in machines] == [Condition.STOPPED, Condition.READY]
    assert look(world, machines[0]).marker == machines[0].marker and world.machines_made() == 2


def test_c40_the_address_goes_with_the_stop_and_another_comes_with_the_start(world: AwsWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    world.provider.stop(ref_of(machine))
    assert not look(world, machine).address
    world.advance(LONGEST_STOP_SECONDS)
    assert not look(world, machine).address
    world.provider.start(ref_of(machine))
    world.advance(LONGEST_START_SECONDS)

    again = look(world, machine)

    assert again.address and again.address != machine.address


def test_a_start_that_falls_back_tells_why(world: AwsWorld) -> None:
    world.set(instance=replace(STEADY, start_failure="Server.InsufficientInstanceCapacity"))
    machine = ready_machine(world, PlanKind.VM)
    world.provider.stop(ref_of(machine))
    world.advance(LONGEST_STOP_SECONDS)

    world.provider.start(ref_of(machine))
    world.advance(LONGEST_START_SECONDS)

    seen = look(world, machine)
    assert (seen.condition, seen.reason) == (Condition.STOPPED, "no_capacity")


def test_a_spot_machine_cannot_be_stopped(world: AwsWorld) -> None:
    offer = world.offer(PlanKind.VM, spot=True)
    machine = launch(world, offer=offer)
    world.advance(200)

    assert not world.provider.can_stop(offer)
    with pytest.raises(ProviderRejected):
        world.provider.stop(ref_of(machine))


def test_a_shutdown_from_inside_stops_what_can_be_started_again_and_ends_what_cannot(world: AwsWorld) -> None:
    machine = launch(world)
    spot = launch(world, SPOT_MARKER, offer=world.offer(PlanKind.VM, spot=True))
    world.advance(200)

    for each in (machine, spot):
        world.cloud.guest_shutdown(each.provider_id)
    world.advance(100)

    assert look(world, machine).condition is Condition.STOPPED
    assert isinstance(world.provider.observe(ref_of(spot)), Absent)
