"""What the control plane costs: per lease, per month idle, and per month of machines that run, with agents or without.

Run: ``make bench-cost``, or ``python -m bench.bench_cost [--json] [--machines 10 1000]``. Whole leases run through the
real state machines and functions in virtual time against the simulated Vultr; `metering` counts, `prices` knows what
AWS charges. A lease's cost is what it adds: the same stretch of time without it is subtracted.

Measured: state transitions, calls, rows and their bytes, log lines, and the functions' own CPU time on this computer,
stretched by the share of a vCPU that their memory buys. Assumed, each an option: seconds of a provider call, of a
DynamoDB call and of a cold start; bytes that Lambda and API Gateway log per call. Every function is cold once per lease
(the dearest case), and a probe of a closed port takes its whole time-out. The user waits with the CLI throughout,
except for a lease called unattended.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from gpulease.domain.lease import LeaseState
from gpulease_sim.vultr import Settings
from gpulease_sim.vultr.settings import METAL, VM

from bench.cost_report import WATCHED, Measured, document, lines
from bench.metered_stack import Assumed, MeteredStack, Stack, Use
from bench.prices import HOURS_PER_MONTH
from bench.watched import IN_TURNS, IN_USE, of_one

HOUR = 3600.0
DAY = 24 * HOUR
SETTLE_SECONDS = 1200.0
METAL_BOOT_SECONDS = 42 * 60.0
METAL_SSH_SECONDS = 180.0
VM_LEASES = 5


# --- what is measured -------------------------------------------------------------------------------------------------


def lease_use(
    stack: Stack, assumed: Assumed, settings: Settings, seed: int, request: Mapping[str, Any], *, asking: bool = True
) -> tuple[Use, Use]:
    """What one lease of one running hour adds, and the detail of that time. `asking`: the user waits with the CLI."""
    world = MeteredStack(stack, assumed, settings, seed)
    try:
        # Once before, so that the sweep knows the place and goes there also without the lease.
        first = world.up(**request)
        world.wait(first, LeaseState.RUNNING)
        world.down(first)
        world.wait(first, LeaseState.RELEASED)
        world.virtual.run_for(SETTLE_SECONDS)
        world.all_cold()
        began = world.virtual.clock.time()
        world.meter.take()
        lease = world.up(**request)
        world.wait(lease, LeaseState.RUNNING, asking=asking)
        world.virtual.run_for(HOUR)
        world.down(lease)
        world.wait(lease, LeaseState.RELEASED, asking=asking)
        detail, used = world.meter.detail, world.meter.take()
        took = world.virtual.clock.time() - began
        world.virtual.run_for(SETTLE_SECONDS)
        world.meter.take()
        world.virtual.run_for(took)
        used.subtract(world.meter.take())
        return Counter({name: max(amount, 0) for name, amount in used.items()}), detail
    finally:
        world.close()


def idle_use(stack: Stack, assumed: Assumed, settings: Settings, request: Mapping[str, Any]) -> Use:
    """A month of a stack that had a lease once and has none now."""
    world = MeteredStack(stack, assumed, settings, 1)
    try:
        lease = world.up(**request)
        world.wait(lease, LeaseState.RUNNING)
        world.down(lease)
        world.wait(lease, LeaseState.RELEASED)
        return _month(world, DAY)
    finally:
        world.close()


def watching_use(stack: Stack, assumed: Assumed, machines: int, request: Mapping[str, Any]) -> Use:
    """A month of looking after so many machines that run, without what it took to start them."""
    quick = replace(VM, active_seconds=(1, 1), ok_seconds=(1, 1), slow_ok_probability=0, ssh_seconds=(1, 1))
    world = MeteredStack(stack, assumed, Settings(vm=quick), 1)
    try:
        leases = []
        for number in range(machines):
            leases.append(world.up(**request, name=f"box-{number}"))
            world.virtual.run_for(1.0)
        world.virtual.run_for(SETTLE_SECONDS)
        states = Counter(world.virtual.lease(lease).state for lease in leases)
        if states != {LeaseState.RUNNING: machines}:
            raise AssertionError(f"not all run: {states}")
        return _month(world, HOUR)
    finally:
        world.close()


def _month(world: MeteredStack, seconds: float) -> Use:
    world.virtual.run_for(SETTLE_SECONDS)
    world.meter.take()
    world.virtual.run_for(seconds)
    times = HOURS_PER_MONTH * HOUR / seconds
    return Counter({name: amount * times for name, amount in world.meter.take().items()})


VM_REQUEST: Mapping[str, Any] = {"plan_kinds": ["vm"], "gpu": ["A16"], "private_network": "none"}
NETWORK_REQUEST: Mapping[str, Any] = {**VM_REQUEST, "private_network": "required"}
METAL_REQUEST: Mapping[str, Any] = {"plan_kinds": ["bare_metal"], "gpu_count": 4, "private_network": "none"}


def metal_settings() -> Settings:
    """Ready 42 minutes after the create call."""
    active = METAL_BOOT_SECONDS - METAL_SSH_SECONDS
    metal = replace(METAL, active_seconds=(active, active), ssh_seconds=(METAL_SSH_SECONDS, METAL_SSH_SECONDS))
    return Settings(metal=metal)


def measure(assumed: Assumed, machines: list[int]) -> Measured:
    """Everything."""
    stack = Stack.read()
    seeds = range(1, VM_LEASES + 1)
    leases = {
        "vm": [lease_use(stack, assumed, Settings(), seed, VM_REQUEST) for seed in seeds],
        "vm_unattended": [lease_use(stack, assumed, Settings(), seed, VM_REQUEST, asking=False) for seed in seeds],
        "vm_with_network": [lease_use(stack, assumed, Settings(), seed, NETWORK_REQUEST) for seed in seeds],
        "bare_metal": [lease_use(stack, assumed, metal_settings(), 1, METAL_REQUEST)],
        "bare_metal_unattended": [lease_use(stack, assumed, metal_settings(), 1, METAL_REQUEST, asking=False)],
    }
    fixed = {"alarms": stack.alarms, "dashboards": stack.dashboards, "secrets": 1}
    months = {"idle": idle_use(stack, assumed, Settings(), VM_REQUEST)}
    for number in machines:
        months[f"watching_{number}"] = watching_use(stack, assumed, number, VM_REQUEST)
    watched, details, formulas = watched_uses(stack, assumed, months["idle"], machines)
    uses = {name: _mean([use for use, _ in of_kind]) for name, of_kind in leases.items()}
    measured = {name: _mean([detail for _, detail in of_kind]) for name, of_kind in leases.items()}
    measured |= {name: dict(detail) for name, detail in details.items()}
    months |= {name: use for name, use in watched.items() if name not in WATCHED}
    uses |= {name: dict(watched[name]) for name in WATCHED}
    uses |= {name: {**use, **fixed} for name, use in months.items()}
    return Measured(uses, measured, formulas, stack.traced)


def watched_uses(
    stack: Stack, assumed: Assumed, idle: Use, machines: list[int]
) -> tuple[dict[str, Use], dict[str, Use], dict[str, str]]:
    """A month of one machine with an agent, and of the stack with so many: uses, details and formulas by name."""
    uses: dict[str, Use] = {}
    details: dict[str, Use] = {}
    formulas: dict[str, str] = {}
    for name, watched in zip(WATCHED, (IN_USE, IN_TURNS), strict=True):
        uses[name], details[name] = of_one(stack, assumed, watched, VM_REQUEST)
        formulas[name] = watched.formula
    for number in machines:
        of_all = {what: amount * number for what, amount in uses["watched_in_turns"].items()}
        uses[f"watched_{number}"] = Counter({what: idle[what] + of_all.get(what, 0) for what in {*idle, *of_all}})
        formulas[f"watched_{number}"] = f"a month idle + {number} x one of them"
    return uses, details, formulas


def _mean(counters: list[Use]) -> dict[str, float]:
    together = sum(counters, Counter())
    return {name: amount / len(counters) for name, amount in together.items()}


def main(arguments: list[str]) -> int:
    """Measure and print; missed aims are said, and are no error."""
    parser = argparse.ArgumentParser(prog="bench_cost", description="What the control plane costs.")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--machines", type=int, nargs="+", default=[10, 1000], help="how many are watched")
    usual = Assumed()
    for name, value in asdict(usual).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    given = parser.parse_args(arguments)
    assumed = Assumed(**{name: getattr(given, name) for name in asdict(usual)})
    measured = measure(assumed, given.machines)
    if given.json:
        print(json.dumps(document(measured, assumed), indent=1))
    else:
        print("\n".join(lines(measured, assumed, given.machines)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
