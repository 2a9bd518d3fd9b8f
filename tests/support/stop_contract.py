"""The part of the provider contract that is about stopping and starting. Subclass `StopContract` beside
`ProviderContract`; kinds of machines that cannot be stopped are skipped.
"""

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.errors import CapacityRefused, ProviderBusy, ProviderError, QuotaRefused

from tests.support.provider_contract import LONGEST_DESTRUCTION_SECONDS, ready_machine
from tests.support.provider_world import DEPLOYMENT, World, ref_of

LONGEST_STOP_SECONDS = 300.0
LONGEST_START_SECONDS = 900.0


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


def stoppable(world: World, kind: PlanKind) -> Observation:
    """A ready machine of a provider whose machines can be stopped."""
    if not world.provider.can_stop(world.offer(kind)):
        pytest.skip("its machines cannot be stopped")
    return ready_machine(world, kind)


def look(world: World, seen: Observation) -> Observation:
    """It as it is now."""
    now = world.provider.observe(ref_of(seen))
    assert isinstance(now, Observation)
    return now
