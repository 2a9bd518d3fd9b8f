"""What many leases at once cost in provider calls, with and without shared readings, in virtual time.

Run: ``python -m bench.bench_calls [sizes]``. So many VMs are asked for within one minute at a simulated account that
takes 30 calls per second and has room for all; when all run they are given back. Prints provider calls per minute by
kind, the busiest second, refusals (429), ledger and shared-store operations per lease. "alone" is each workflow looking
for itself, at no common pace; ends with an error when the shared way is refused once.
"""

import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from gpulease.domain.lease import LeaseState  # noqa: E402
from gpulease.ledger.sqlite_shared import SqliteSharedReads  # noqa: E402
from gpulease.ports import Change, LeaseRecord, Ledger, SharedReads, SharedValue  # noqa: E402
from gpulease.providers.http import RawResponse, Transport  # noqa: E402
from gpulease_local.deps import LocalProviders  # noqa: E402
from gpulease_local.simulate.virtual import VirtualStack  # noqa: E402
from gpulease_local.world import DepsClock  # noqa: E402
from gpulease_sim.vultr import Settings  # noqa: E402

SIZES = (10, 100, 1_000)
ASKED_WITHIN_SECONDS = 60.0
PLAN = "vcg-l40s-16c-180g-48vram"
REQUEST: Mapping[str, Any] = {"regions": ["ewr"], "plans": [PLAN], "plan_kinds": ["vm"]}
PATIENCE_SECONDS = 3600.0


@dataclass
class Counted:
    """Calls of one run."""

    calls: list[tuple[float, str]] = field(default_factory=list)
    refused: int = 0
    operations: Counter[str] = field(default_factory=Counter)


class _Transport:
    def __init__(self, inner: Transport, counted: Counted, clock: Any) -> None:
        self._inner, self._counted, self._clock = inner, counted, clock

    def send(self, method: str, url: str, **rest: Any) -> RawResponse:
        """Pass it on, noting when and what."""
        path = re.sub(r"/[0-9a-f-]{36}", "/ID", url.partition("/v2")[2].partition("?")[0])
        self._counted.calls.append((self._clock(), f"{method} {re.sub(r'/regions/[a-z]+', '/regions/R', path)}"))
        answer = self._inner.send(method, url, **rest)
        self._counted.refused += answer.status == 429
        return answer


class _Ledger:
    def __init__(self, inner: Ledger, counted: Counted) -> None:
        self._inner, self._counted = inner, counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(self, lease_id: str) -> LeaseRecord:
        """Counted."""
        self._counted.operations["ledger reads"] += 1
        return self._inner.load(lease_id)

    def commit(self, change: Change) -> None:
        """Counted by rows."""
        self._counted.operations["ledger rows written"] += (
            len(change.resources) + len(change.events) + bool(change.lease)
        )
        self._inner.commit(change)


class _Shared:
    def __init__(self, inner: SharedReads, counted: Counted, *, off: bool) -> None:
        self._inner, self._counted, self._off = inner, counted, off

    def read(self, key: str) -> SharedValue | None:
        """Counted; without sharing nothing is known."""
        self._counted.operations["shared reads"] += not self._off
        return None if self._off else self._inner.read(key)

    def claim(self, key: str, now: datetime, lease_seconds: float) -> bool:
        """Counted; without sharing machines are looked at one by one and the rest is read by everybody."""
        if self._off:
            return "/machines/" not in key
        self._counted.operations["shared writes"] += 1
        return self._inner.claim(key, now, lease_seconds)

    def publish(self, key: str, value: str, as_of: datetime) -> None:
        """Counted."""
        if not self._off:
            self._counted.operations["shared writes"] += 1
            self._inner.publish(key, value, as_of)

    def reserve(
        self, key: str, now: datetime, spacing_seconds: float, within_seconds: float | None = None
    ) -> datetime | None:
        """Counted; without sharing there is no queue."""
        if self._off:
            return now
        self._counted.operations["shared writes"] += 1
        return self._inner.reserve(key, now, spacing_seconds, within_seconds)


@dataclass(frozen=True)
class Figures:
    """Of one run; times in seconds."""

    leases: int
    running: int
    all_running_after: float
    all_released_after: float
    phases: dict[str, tuple[int, float]]
    """Provisioning and giving back: calls, and how long it took."""
    kinds: Counter[str]
    busiest_second: int
    busiest_minute: int
    refused: int
    operations: Counter[str]


def measure(size: int, *, shared: bool, seed: int = 7) -> Figures:
    """One run."""
    counted = Counted()
    stack = VirtualStack(
        seed=seed,
        settings=Settings(),
        wrap_ledger=lambda ledger: _Ledger(ledger, counted),
        wrap_transport=lambda transport: _Transport(transport, counted, lambda: stack.clock.time()),
    )
    world, clock = stack.stack.world, DepsClock(stack.clock)
    store = _Shared(SqliteSharedReads(), counted, off=not shared)
    providers = LocalProviders(
        world.accounts, secrets=world.secrets, clock=clock, log=world.log, sleep=world.sleep, shared=store
    )
    stack.stack.deps = dataclasses.replace(stack.stack.deps, shared=store, providers=providers)
    stack.load()
    try:
        return _played(stack, counted, size)
    finally:
        stack.close()


def _played(stack: VirtualStack, counted: Counted, size: int) -> Figures:
    start = stack.clock.time()
    for number in range(size):
        at = start + ASKED_WITHIN_SECONDS * number / size
        stack.engine.call_at(at, lambda number=number: _void(stack.up(name=f"box-{number}", **REQUEST)))  # type: ignore[misc]
    counted.calls.clear()
    counted.operations.clear()
    stack.run_for(ASKED_WITHIN_SECONDS)

    def left() -> int:
        return sum(lease.state in (LeaseState.REQUESTED, LeaseState.PROVISIONING) for lease in stack.leases())

    stack.run_until(lambda: not left(), limit_seconds=PATIENCE_SECONDS, step_seconds=5)
    running_at, provisioning = stack.clock.time(), len(counted.calls)
    running = [lease.id for lease in stack.leases() if lease.state is LeaseState.RUNNING]
    for lease_id in running:
        stack.down(lease_id)
    stack.run_until(
        lambda: all(lease.state is LeaseState.RELEASED for lease in stack.leases()),
        limit_seconds=PATIENCE_SECONDS,
        step_seconds=5,
    )
    ended = stack.clock.time()
    seconds = Counter(int(at) for at, _ in counted.calls)
    minutes = Counter(int((at - start) // 60) for at, _ in counted.calls)
    return Figures(
        leases=size,
        running=len(running),
        all_running_after=running_at - start,
        all_released_after=ended - running_at,
        phases={
            "provisioning": (provisioning, running_at - start),
            "giving back": (len(counted.calls) - provisioning, ended - running_at),
        },
        kinds=Counter(kind for _, kind in counted.calls),
        busiest_second=max(seconds.values()),
        busiest_minute=max(minutes.values()),
        refused=counted.refused,
        operations=counted.operations,
    )


def _void(_: object) -> None:
    """A callback returns nothing."""


def describe(figures: Figures, how: str) -> list[str]:
    """For people."""
    per_lease = ", ".join(
        f"{count / figures.leases:.1f} {name}" for name, count in sorted(figures.operations.items()) if count
    )
    phases = "; ".join(
        f"{name} {calls:,} calls in {took:.0f} s = {calls * 60 / took:.0f} per minute"
        for name, (calls, took) in figures.phases.items()
    )
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in figures.kinds.most_common(7))
    return [
        f"{figures.leases:5,} leases, {how}: {figures.running:,} ran; {phases}",
        f"       busiest minute {figures.busiest_minute:,} calls, busiest second {figures.busiest_second}, "
        f"{figures.refused:,} refused with 429",
        f"       {kinds}",
        f"       per lease: {per_lease}",
    ]


def main(sizes: tuple[int, ...] = SIZES) -> int:
    """Measure, print, and return the exit status."""
    status = 0
    for size in sizes:
        for how, shared in (("alone ", False), ("shared", True)):
            figures = measure(size, shared=shared)
            print("\n".join(describe(figures, how)), flush=True)
            status |= shared and (figures.refused > 0 or figures.running < size)
    return status


if __name__ == "__main__":
    sys.exit(main(tuple(int(size) for size in sys.argv[1:]) or SIZES))
