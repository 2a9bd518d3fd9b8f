"""What it costs to watch machines with an agent: reports through the real function, checks and sweeps, hour after hour.

Invariant: a machine's cost is what it adds to a stack that has none; what is reported is as large as on a real machine
(`machine_reports`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpulease.domain.lease import LeaseState
from gpulease.domain.policy import Signal
from gpulease_local.simulate.workloads import HOUR, MINUTE, Session, Workload
from gpulease_sim.vultr import Settings
from gpulease_sim.vultr.settings import VM

from bench.metered_stack import Assumed, MeteredStack, Stack, Use
from bench.prices import HOURS_PER_MONTH

IDLE_LIMIT_SECONDS = 1800
POLICY = {"idle": {"after_seconds": IDLE_LIMIT_SECONDS}}
USED_SECONDS, QUIET_SECONDS = 19 * MINUTE, 29 * MINUTE
"""Of a machine used in turns: it is let alone until just before its limit, which is when its agent reports most."""
CYCLE_SECONDS = USED_SECONDS + QUIET_SECONDS
LONGEST_SECONDS = 24 * HOUR
ASKED_EVERY_SECONDS = 0.2
SETTLE_SECONDS = 300.0
"""Until the last machine runs and reports."""


@dataclass(frozen=True)
class Watched:
    """So many machines used in one way, watched for so long."""

    machines: int
    in_turns: bool
    seconds: float

    @property
    def formula(self) -> str:
        """How a machine's month follows from what is measured."""
        hours = self.seconds / HOUR
        return (
            f"(what {self.machines} machines use in {hours:g} h x {HOURS_PER_MONTH}/{hours:g} - what the stack uses"
            f" without them) / {self.machines}"
        )


IN_USE = Watched(machines=10, in_turns=False, seconds=5 * CYCLE_SECONDS)
IN_TURNS = Watched(machines=10, in_turns=True, seconds=5 * CYCLE_SECONDS)


def used(in_turns: bool) -> Workload:
    """GPU work without an end, or in turns."""
    if not in_turns:
        return Workload("busy", (Session(0.0, LONGEST_SECONDS, Signal.GPU),), idle_after_seconds=IDLE_LIMIT_SECONDS)
    turns = int(LONGEST_SECONDS // CYCLE_SECONDS)
    sessions = (Session(n * CYCLE_SECONDS, n * CYCLE_SECONDS + USED_SECONDS, Signal.GPU) for n in range(turns))
    return Workload("in turns", tuple(sessions), idle_after_seconds=IDLE_LIMIT_SECONDS)


def watched_month(stack: Stack, assumed: Assumed, watched: Watched, request: Mapping[str, Any]) -> tuple[Use, Use]:
    """A month of the whole stack with these machines, without what it took to start them; and the hours' detail.

    With no machine: what the stack uses without them, over the same hours after a lease that has ended.
    """
    quick = replace(VM, active_seconds=(1, 1), ok_seconds=(1, 1), slow_ok_probability=0, ssh_seconds=(1, 1))
    settings = Settings(vm=quick, capacity={"*/*": 10_000})
    workload = used(watched.in_turns)
    world = MeteredStack(stack, assumed, settings, 1, workload_of=lambda name: workload)
    try:
        began = world.virtual.clock.time()
        before = world.up(**request, name="before")
        world.wait(before, LeaseState.RUNNING, asking=False)
        world.down(before)
        world.wait(before, LeaseState.RELEASED, asking=False)
        leases = []
        for number in range(watched.machines):
            leases.append(world.up(**request, name=f"box-{number}", policy=POLICY))
            world.virtual.run_for(ASKED_EVERY_SECONDS)
        # From the beginning of a turn, so that whole turns are measured.
        begins = began + CYCLE_SECONDS if watched.in_turns else world.virtual.clock.time() + SETTLE_SECONDS
        world.virtual.run_for(begins - world.virtual.clock.time())
        _all_run(world, leases)
        world.meter.take()
        world.virtual.run_for(watched.seconds)
        detail, use = world.meter.detail, world.meter.take()
        _all_run(world, leases)
        times = HOURS_PER_MONTH * HOUR / watched.seconds
        return Counter({name: amount * times for name, amount in use.items()}), detail
    finally:
        world.close()


def _all_run(world: MeteredStack, leases: list[str]) -> None:
    states = Counter(world.virtual.lease(lease).state for lease in leases)
    if set(states) - {LeaseState.RUNNING}:
        raise AssertionError(f"not all run: {states}")


def of_one(stack: Stack, assumed: Assumed, watched: Watched, request: Mapping[str, Any]) -> tuple[Use, Use]:
    """What each of these machines adds to a stack's month, and the detail of all of them in those hours."""
    month, detail = watched_month(stack, assumed, watched, request)
    without, _ = watched_month(stack, assumed, replace(watched, machines=0), request)
    added = {name: (amount - without[name]) / watched.machines for name, amount in month.items()}
    return Counter({name: amount for name, amount in added.items() if amount > 0}), detail
