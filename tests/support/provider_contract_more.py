"""The contract of `ports.Provider` for machines that can be stopped, and for volumes: any simulated provider that has
such. Subclass `StopContract` and `VolumeContract` beside `ProviderContract`, with the same fixture `world`.
"""

import contextlib
from collections.abc import Callable

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind, marker_for
from gpulease.errors import (
    CapacityRefused,
    InputInvalid,
    ProviderBusy,
    ProviderError,
    ProviderUnavailable,
    QuotaRefused,
)
from gpulease.ports import Ref, VolumeRequest

from tests.support.provider_contract import LONGEST_DESTRUCTION_SECONDS, MARKER, ready_machine
from tests.support.provider_world import DEPLOYMENT, World, ref_of

VOLUME_MARKER = marker_for(DEPLOYMENT, "c-aaaaaaaaaaaa.volume.1")
LONGEST_STOP_SECONDS = 300.0
LONGEST_START_SECONDS = 900.0
LONGEST_ATTACH_SECONDS = 120.0
SIZE_GB = 50


class StopContract:
    """Machines that can be stopped and are not billed for compute meanwhile."""

    def test_a_stopped_machine_has_no_address_and_starts_again(self, world: World, kind: PlanKind) -> None:
        machine = stoppable(world, kind)

        world.provider.stop(ref_of(machine))
        assert look(world, machine).condition in (Condition.STOPPING, Condition.STOPPED)
        world.advance(LONGEST_STOP_SECONDS)
        stopped = look(world, machine)
        assert stopped.condition is Condition.STOPPED and not stopped.address

        world.provider.start(ref_of(machine))
        assert look(world, machine).condition is Condition.PENDING
        world.advance(LONGEST_START_SECONDS)
        again = look(world, machine)
        assert again.condition is Condition.READY and again.address
        assert (again.provider_id, again.marker, again.zone) == (machine.provider_id, machine.marker, machine.zone)

    def test_stop_and_start_may_be_asked_for_twice(self, world: World, kind: PlanKind) -> None:
        machine = stoppable(world, kind)
        world.provider.start(ref_of(machine))
        assert look(world, machine).condition is Condition.READY

        world.provider.stop(ref_of(machine))
        world.provider.stop(ref_of(machine))
        world.advance(LONGEST_STOP_SECONDS)
        world.provider.stop(ref_of(machine))

        assert look(world, machine).condition is Condition.STOPPED

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_machine_that_is_stopping_cannot_be_started_yet(
        self, world: World, kind: PlanKind, reworded: bool
    ) -> None:
        machine = stoppable(world, kind)
        if reworded:
            world.reword()
        world.provider.stop(ref_of(machine))

        with pytest.raises(ProviderBusy):
            world.provider.start(ref_of(machine))

        world.advance(LONGEST_STOP_SECONDS)
        world.provider.start(ref_of(machine))

    @pytest.mark.parametrize("reworded", [False, True])
    @pytest.mark.parametrize("refused", [CapacityRefused, QuotaRefused])
    def test_a_refused_start_leaves_it_stopped(
        self, world: World, kind: PlanKind, refused: type[ProviderError], reworded: bool
    ) -> None:
        machine = stoppable(world, kind)
        world.provider.stop(ref_of(machine))
        world.advance(LONGEST_STOP_SECONDS)
        if reworded:
            world.reword()
        if refused is CapacityRefused:
            world.sell_out(world.offer(kind))
        else:
            world.reach_limit()

        with pytest.raises(refused):
            world.provider.start(ref_of(machine))

        assert look(world, machine).condition is Condition.STOPPED
        assert world.machines_made() == 1

    def test_a_stopped_machine_is_cheaper_and_still_ours(self, world: World, kind: PlanKind) -> None:
        machine = stoppable(world, kind)
        offer = world.offer(kind)
        world.provider.stop(ref_of(machine))
        world.advance(LONGEST_STOP_SECONDS)

        assert 0 <= world.provider.stopped_price_per_hour(offer) < offer.price_per_hour_usd / 2
        owned = [seen.provider_id for seen in world.provider.list_owned(machine.region, DEPLOYMENT)]
        assert machine.provider_id in owned

    def test_a_stopped_machine_can_be_destroyed(self, world: World, kind: PlanKind) -> None:
        machine = stoppable(world, kind)
        world.provider.stop(ref_of(machine))
        world.advance(LONGEST_STOP_SECONDS)

        world.provider.destroy(ref_of(machine))
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(machine)), Absent)


class VolumeContract:
    """Volumes that outlive machines."""

    def test_a_volume_becomes_usable_in_its_place(self, world: World, kind: PlanKind) -> None:
        machine = with_volumes(world, kind)

        made = make(world, machine)

        assert made.kind is ResourceKind.VOLUME and made.marker == VOLUME_MARKER and made.provider_id
        assert made.condition in (Condition.PENDING, Condition.READY)
        world.advance(LONGEST_ATTACH_SECONDS)
        seen = look(world, made)
        assert seen.condition is Condition.READY and not seen.attached_to and not seen.attached
        assert (seen.region, seen.zone, seen.size_gb) == (machine.region, machine.zone, SIZE_GB)

    def test_a_volume_is_found_by_exactly_its_marker(self, world: World, kind: PlanKind) -> None:
        machine = with_volumes(world, kind)
        made = make(world, machine)
        make(world, machine, VOLUME_MARKER + "0")
        make(world, machine, VOLUME_MARKER.upper())
        world.advance(LONGEST_ATTACH_SECONDS)

        found = world.provider.find(ref_of(made, by_marker=True))

        assert [each.provider_id for each in found] == [made.provider_id]

    def test_a_volume_whose_answer_is_lost_is_not_made_twice(self, world: World, kind: PlanKind) -> None:
        machine = with_volumes(world, kind)
        world.lose_next_volume_answer()

        with pytest.raises(ProviderUnavailable):
            make(world, machine)

        assert world.volumes_made() == 1
        world.advance(LONGEST_ATTACH_SECONDS)
        assert len(world.provider.find(Ref(ResourceKind.VOLUME, machine.region, VOLUME_MARKER))) == 1

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_shows_the_machine_that_has_it(self, world: World, kind: PlanKind, reworded: bool) -> None:
        machine = with_volumes(world, kind)
        volume = usable(world, machine)
        if reworded:
            world.reword()

        attached(world, volume, machine)
        world.provider.attach_volume(ref_of(volume), ref_of(machine))
        assert look(world, volume).attached_to == machine.provider_id

        detached(world, volume, machine)
        world.provider.detach_volume(ref_of(volume), ref_of(machine))
        assert not look(world, volume).attached_to

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_in_use_goes_to_nobody_else(self, world: World, kind: PlanKind, reworded: bool) -> None:
        machine = with_volumes(world, kind)
        other = ready_machine(world, kind, MARKER + "0")
        volume = usable(world, machine)
        attached(world, volume, machine)
        if reworded:
            world.reword()

        with pytest.raises(ProviderError) as caught:
            world.provider.attach_volume(ref_of(volume), ref_of(other))
        assert isinstance(caught.value, ProviderBusy)
        with contextlib.suppress(ProviderBusy):
            world.provider.detach_volume(ref_of(volume), ref_of(other))

        world.advance(LONGEST_ATTACH_SECONDS)
        assert look(world, volume).attached_to == machine.provider_id

    @pytest.mark.parametrize("reworded", [False, True])
    def test_only_a_free_volume_is_deleted(self, world: World, kind: PlanKind, reworded: bool) -> None:
        machine = with_volumes(world, kind)
        volume = usable(world, machine)
        attached(world, volume, machine)
        if reworded:
            world.reword()

        with pytest.raises(ProviderBusy):
            world.provider.destroy(ref_of(volume))
        assert look(world, volume).attached_to == machine.provider_id

        detached(world, volume, machine)
        world.provider.destroy(ref_of(volume))
        world.advance(LONGEST_ATTACH_SECONDS)
        assert isinstance(world.provider.observe(ref_of(volume)), Absent)
        assert isinstance(world.provider.observe(ref_of(volume, by_marker=True)), Absent)
        world.provider.destroy(ref_of(volume))

    def test_a_volume_outlives_its_machine_and_is_free_then(self, world: World, kind: PlanKind) -> None:
        machine = with_volumes(world, kind)
        volume = usable(world, machine)
        attached(world, volume, machine)

        world.provider.destroy(ref_of(machine))
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(machine)), Absent)
        seen = look(world, volume)
        assert seen.condition is Condition.READY and not seen.attached_to
        world.provider.detach_volume(ref_of(volume), ref_of(machine))

    def test_the_inventory_shows_volumes_attached_or_not(self, world: World, kind: PlanKind) -> None:
        machine = with_volumes(world, kind)
        volume, free = usable(world, machine), usable(world, machine, VOLUME_MARKER + "0")
        usable(world, machine, marker_for("dep12", "c-bbbbbbbbbbbb.volume.1"))
        attached(world, volume, machine)

        owned = {seen.provider_id for seen in world.provider.list_owned(machine.region, DEPLOYMENT)}

        assert owned == {machine.provider_id, volume.provider_id, free.provider_id}

    def test_a_read_that_failed_never_means_free_or_gone(self, world: World, kind: PlanKind) -> None:
        machine = with_volumes(world, kind)
        volume = usable(world, machine)
        attached(world, volume, machine)
        world.break_reads("{}", 200)

        with pytest.raises(ProviderError):
            world.provider.observe(ref_of(volume))
        with pytest.raises(ProviderError):
            world.provider.find(ref_of(volume))

    def test_volumes_cost_by_their_size_and_have_limits(self, world: World, kind: PlanKind) -> None:
        offer = offer_with_volumes(world, kind)

        assert world.provider.billing_rule(ResourceKind.VOLUME) is not BillingRule.FREE
        small, large = (world.provider.volume_price_per_month(offer.region, size) for size in (SIZE_GB, 2 * SIZE_GB))
        assert 0 < small < large
        with pytest.raises(InputInvalid) as caught:
            world.provider.volume_price_per_month(offer.region, 10_000_000)
        assert caught.value.field == "size_gb"

    def test_a_volume_of_another_place_is_not_usable(self, world: World, kind: PlanKind) -> None:
        offer = offer_with_volumes(world, kind)

        assert not world.provider.can_attach_volume(offer, "nowhere-1", offer.zone)
        if offer.zone:
            assert not world.provider.can_attach_volume(offer, offer.region, offer.zone + "x")


# --- steps that several rules have in common --------------------------------------------------------------------------


def stoppable(world: World, kind: PlanKind) -> Observation:
    """A ready machine of a provider whose machines can be stopped."""
    if not world.provider.can_stop(world.offer(kind)):
        pytest.skip("its machines cannot be stopped")
    return ready_machine(world, kind)


def offer_with_volumes(world: World, kind: PlanKind) -> Offer:
    offer = world.offer(kind)
    if not world.provider.can_attach_volume(offer, offer.region, offer.zone):
        pytest.skip("its machines take no volumes")
    return offer


def with_volumes(world: World, kind: PlanKind) -> Observation:
    """A ready machine that takes volumes."""
    offer_with_volumes(world, kind)
    return ready_machine(world, kind)


def look(world: World, seen: Observation) -> Observation:
    """It as it is now."""
    now = world.provider.observe(ref_of(seen))
    assert isinstance(now, Observation)
    return now


def make(world: World, machine: Observation, marker: str = VOLUME_MARKER) -> Observation:
    """A new volume where the machine is."""
    return world.provider.create_volume(
        VolumeRequest(machine.region, SIZE_GB, marker, "my-cache", zone=machine.zone, idempotency_token=marker)
    )


def usable(world: World, machine: Observation, marker: str = VOLUME_MARKER) -> Observation:
    made = make(world, machine, marker)
    world.advance(LONGEST_ATTACH_SECONDS)
    return look(world, made)


def attached(world: World, volume: Observation, machine: Observation) -> None:
    """Attach until it shows."""
    _until(
        world,
        lambda: world.provider.attach_volume(ref_of(volume), ref_of(machine)),
        lambda: look(world, volume).attached,
    )
    assert look(world, volume).attached_to == machine.provider_id


def detached(world: World, volume: Observation, machine: Observation) -> None:
    """Detach until it shows."""
    _until(
        world,
        lambda: world.provider.detach_volume(ref_of(volume), ref_of(machine)),
        lambda: not look(world, volume).attached_to,
    )


def _until(world: World, ask: Callable[[], None], done: Callable[[], bool]) -> None:
    for _ in range(30):
        with contextlib.suppress(ProviderBusy):
            ask()
        world.advance(15)
        if done():
            return
    raise AssertionError("it never showed")
