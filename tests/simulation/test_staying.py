"""Whole leases where calls wait between their looks, as on Lambda. Elsewhere in simulations each look is a call."""

import dataclasses

import pytest
from gpulease_local.simulate.run import Simulation


class Waiting:
    """`ports.Waits` in virtual time."""

    most_seconds = 90.0

    def __init__(self, simulation: Simulation) -> None:
        self._spend = simulation.stack.pass_time
        self.times = 0

    def sleep(self, seconds: float) -> None:
        """The seconds pass within the call."""
        self.times += 1
        self._spend(seconds)


@pytest.mark.parametrize("faults", ["none", "default"])
def test_leases_end_as_well_where_calls_look_more_than_once(faults: str) -> None:
    simulation = Simulation(leases=30, seed=5, faults=faults)
    waiting = Waiting(simulation)
    stack = simulation.stack.stack
    stack.deps = dataclasses.replace(stack.deps, waits=waiting)

    try:
        report = simulation.run()
    finally:
        simulation.stack.close()

    assert report.suspects == []
    assert report.ok
    assert waiting.times > 300
