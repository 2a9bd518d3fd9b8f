"""What the one-minute check and the five-minute sweep cost, by what exists and by what is due.

Run: ``python bench/bench_sweep.py``. SQLite ledger in memory, a provider that answers at once. Prints per size: ledger
calls and time of `check_leases` with 0 and 100 leases due, and of a sweep over 100 open machines beside so many closed
leases; then a sweep over 10,000 machines at the provider with its calls and its memory. Ends with an error when a check
with nothing due, or a sweep, takes more than twice as long among 100,000 leases as among 1,000.
"""

import statistics
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from gpulease.domain.lease import LeaseState  # noqa: E402
from gpulease.domain.resource import ResourceState, marker_for  # noqa: E402
from gpulease.ledger.sqlite import SqliteLedger  # noqa: E402
from gpulease.ledger.sqlite_agents import SqliteAgentStore  # noqa: E402
from gpulease.ledger.sqlite_drains import SqliteDrainStore  # noqa: E402
from gpulease.ledger.sqlite_sweeps import SqliteSweepStore  # noqa: E402
from gpulease.ports import Change, Policy  # noqa: E402
from gpulease.providers.http import RawResponse  # noqa: E402
from gpulease.steps import check_leases, sweep  # noqa: E402
from gpulease_local.failed_executions import LocalFailedExecutions  # noqa: E402

from tests.support.api_world import KeptLog, RecordedWorkflows, StillClock  # noqa: E402
from tests.support.ledger_samples import a_lease, a_resource, an_event, at  # noqa: E402
from tests.support.provider_world import VultrWorld  # noqa: E402

SIZES = (10, 1_000, 100_000)
DUE = 100
OPEN = 100
MACHINES = 10_000
RATIO_LIMIT = 2.0
ROUNDS = 300
DEPLOYMENT = "test"


@dataclass
class Counted:
    """A part that counts its calls by name."""

    part: Any
    calls: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.part, name)
        if callable(found):
            self.calls[name] += 1
        return found


class Machines:
    """A transport that shows so many machines of ours, 500 per page, without a simulator's cost."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls = 0

    def send(self, method: str, url: str, **_: object) -> RawResponse:
        """One page."""
        self.calls += 1
        lists = {"/vpcs": "vpcs", "/bare-metals": "bare_metals", "/blocks": "blocks", "/instances": "instances"}
        kind = next(kind for path, kind in lists.items() if path in url)
        total = self.count if kind == "instances" else 0
        start = int(url.partition("cursor=")[2] or 0)
        end = min(start + 500, total)
        rows = ",".join(_row(number) for number in range(start, end))
        following = str(end) if end < total else ""
        body = f'{{"{kind}": [{rows}], "meta": {{"total": {total}, "links": {{"next": "{following}", "prev": ""}}}}}}'
        return RawResponse(200, {}, body.encode())


def _provider_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def _row(number: int) -> str:
    marker = marker_for(DEPLOYMENT, f"{_lease_id(number)}.instance.1")
    return (
        f'{{"id": "{_provider_id(number)}", "region": "ewr", "plan": "vcg-l40s-16c-180g-48vram", "status": "active", '
        f'"power_status": "running", "server_status": "ok", "main_ip": "192.0.2.1", "tags": ["{marker}"], '
        '"date_created": "2026-01-01T00:00:00+00:00", "default_password": "************", "label": "box"}'
    )


def _lease_id(number: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    return "l-" + "".join(letters[(number >> (5 * place)) & 31] for place in range(12))


class Deps:
    """What the two schedules use."""

    def __init__(self, ledger: SqliteLedger, transport: Machines) -> None:
        self.ledger = Counted(ledger)
        self.sweeps = Counted(SqliteSweepStore())
        self.agents = SqliteAgentStore()
        self.drains = SqliteDrainStore()
        self.provider = VultrWorld().connect(transport)
        self.providers = self
        self.workflows = RecordedWorkflows()
        self.clock = StillClock(at(3600))
        self.failed_executions = LocalFailedExecutions(lambda: self.clock.now().timestamp())
        self.log = KeptLog()
        self.policy = Policy(deployment=DEPLOYMENT)
        self.notifier = self
        self.alarms = 0

    def get(self, _: str) -> Any:
        """The one account."""
        return self.provider

    def alarm(self, *_: object) -> None:
        """Counted, not sent."""
        self.alarms += 1


def filled(size: int, open_: int) -> SqliteLedger:
    """So many leases with one machine each; all but `open_` are released."""
    ledger = SqliteLedger(":memory:")
    for number in range(size):
        lease_id = _lease_id(number)
        live = number < open_
        state = LeaseState.RUNNING if live else LeaseState.RELEASED
        ledger.create_lease(a_lease(lease_id, state=state, next_check_at=at(7200) if live else None))
        held = ResourceState.HELD if live else ResourceState.RELEASED
        row = a_resource(lease_id, state=held, provider_id=_provider_id(number), held_at=at(0))
        ledger.commit(Change(lease_id, resources=(row,), events=(an_event(lease_id),)))
    return ledger


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e6


def reads(deps: Deps, call: Callable[[], object]) -> str:
    """Which calls of the ledger one run makes."""
    deps.ledger.calls.clear()
    call()
    return ", ".join(f"{count} {name}" for name, count in sorted(deps.ledger.calls.items())) or "none"


def make_due(deps: Deps, when: datetime, number: int) -> None:
    """Let so many leases be due."""
    for each in range(number):
        lease = deps.ledger.part.load(_lease_id(each)).lease
        change = Change(lease.id, lease.model_copy(update={"next_check_at": when}))
        deps.ledger.part.commit(change)


def one_sweep(deps: Deps) -> None:
    """Five minutes later, so that nothing is skipped."""
    deps.clock.advance(300)
    report = sweep.run(deps)  # type: ignore[arg-type]
    if (report.complete, report.incomplete, report.taken_up, report.lost) != (1, 0, 0, 0):
        raise AssertionError(report)


def main(sizes: tuple[int, ...] = SIZES, machines: int = MACHINES, rounds: int = ROUNDS) -> int:
    """Measure, print, and return the exit status."""
    nothing: dict[int, float] = {}
    swept: dict[int, float] = {}
    for size in sizes:
        open_ = min(size, OPEN)
        ledger = filled(size, open_)
        deps = Deps(ledger, Machines(open_))
        deps.sweeps.part.note_place("vultr", "ewr")

        def check(deps: Deps = deps) -> object:
            return check_leases.run(deps)  # type: ignore[arg-type]

        said = reads(deps, check)
        nothing[size] = milliseconds(check, rounds)
        print(f"{size:7,} leases, none due: check_leases {nothing[size]:7.3f} ms ({said})", flush=True)
        one_sweep(deps)
        said = reads(deps, lambda deps=deps: one_sweep(deps))  # type: ignore[misc]
        swept[size] = milliseconds(lambda deps=deps: one_sweep(deps), max(5, rounds // 10))  # type: ignore[misc]
        print(f"{size:7,} leases, {open_} open: sweep        {swept[size]:7.3f} ms ({said})", flush=True)
        make_due(deps, at(60), open_)
        start = time.perf_counter_ns()
        said = reads(deps, check)
        print(
            f"{size:7,} leases, {open_} due: check_leases {(time.perf_counter_ns() - start) / 1e6:7.3f} ms ({said})",
            flush=True,
        )
        ledger.close()
    status = _ratio("check_leases with nothing due", nothing, sizes) | _ratio("sweep", swept, sizes)
    _large(machines)
    return status


def _ratio(what: str, times: dict[int, float], sizes: tuple[int, ...]) -> int:
    if len(sizes) < 2:
        return 0
    ratio = times[sizes[-1]] / times[sizes[-2]]
    print(f"{what}, {sizes[-1]:,} to {sizes[-2]:,} leases: {ratio:.2f} (limit {RATIO_LIMIT})")
    return int(ratio > RATIO_LIMIT)


def _large(machines: int) -> None:
    """All of them ours and held."""
    ledger = filled(machines, machines)
    transport = Machines(machines)
    deps = Deps(ledger, transport)
    deps.sweeps.part.note_place("vultr", "ewr")
    one_sweep(deps)
    transport.calls = 0
    took = milliseconds(lambda: one_sweep(deps), 1)
    calls = transport.calls
    tracemalloc.start()
    one_sweep(deps)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    print(
        f"{machines:7,} machines at the provider: sweep {took:,.0f} ms, {calls} provider calls, {peak:.0f} MiB at most"
    )


if __name__ == "__main__":
    sys.exit(main())
