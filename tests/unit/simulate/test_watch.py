"""What the simulation knows of a lease by the provider's clock, whatever the functions' clock shows."""

from datetime import timedelta
from typing import Any, cast

from gpulease.domain.lease import LeaseState
from gpulease.domain.record import Change
from gpulease_local.simulate.invariants import Watch

from tests.support.ledger_samples import a_lease, at


def test_a_lease_ended_when_it_was_written_as_released_though_the_functions_clock_was_set_back() -> None:
    true_time = at(7200)
    watch = Watch(lambda: cast(Any, None), lambda: true_time.timestamp(), "d")
    released = a_lease(state=LeaseState.RELEASED, released_at=true_time - timedelta(minutes=4))

    watch.committed(Change(released.id, lease=released))

    assert watch.released_at == {released.id: true_time.timestamp()}


def test_a_lease_taken_up_again_has_not_ended() -> None:
    watch = Watch(lambda: cast(Any, None), lambda: at(7200).timestamp(), "d")
    released = a_lease(state=LeaseState.RELEASED, released_at=at(7200))
    watch.committed(Change(released.id, lease=released))

    watch.committed(Change(released.id, lease=a_lease(state=LeaseState.RELEASING)))

    assert watch.released_at == {}
