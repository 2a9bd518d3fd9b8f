"""What a load, a commit and a look at what is due cost in the SQLite ledger, and that the last depends on what is due.

Run: ``python bench/bench_ledger.py``. Prints one line per size; ends with an error when a look with nothing due takes
more than twice as long among 100,000 leases as among 1,000.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from gpulease.domain.lease import LeaseState  # noqa: E402
from gpulease.ledger.sqlite import SqliteLedger  # noqa: E402
from gpulease.ports import Change  # noqa: E402

from tests.support.ledger_samples import CountingIds, a_lease, a_resource, an_event, at  # noqa: E402

SIZES = (10, 1_000, 100_000)
DUE = (0, 100)
RATIO_LIMIT = 2.0
_ROUNDS = 2_000
_NOW = at(3600)


@dataclass(frozen=True)
class Figures:
    """Microseconds per call, medians."""

    load: float
    commit: float
    due: dict[int, float]


def microseconds(call: Callable[[int], object], rounds: int = _ROUNDS) -> float:
    """The median time of a call, over several rounds."""
    times = []
    for turn in range(rounds):
        start = time.perf_counter_ns()
        call(turn)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


def measure(size: int, path: str) -> Figures:
    """Fill a ledger with so many running leases, one machine each, and measure."""
    ledger = SqliteLedger(path)
    numbers, ids = CountingIds(), list[str]()
    for turn in range(size):
        lease_id = numbers.lease_id()
        ids.append(lease_id)
        lease = a_lease(lease_id, owner=f"owner-{turn % 50}", state=LeaseState.RUNNING, next_check_at=at(7200))
        ledger.create_lease(lease, [an_event(lease_id)])
        ledger.commit(Change(lease_id, resources=(a_resource(lease_id),)))
    sample = ids[:: max(1, size // 1000)]

    def commit(turn: int) -> None:
        record = ledger.load(sample[turn % len(sample)])
        resource = record.resources[0].model_copy(update={"status": f"active {turn}"})
        lease = record.lease.model_copy(update={"updated_at": at(turn)})
        change = Change(lease.id, lease, (resource,), (an_event(lease.id, turn),), lease.epoch)
        start = time.perf_counter_ns()
        ledger.commit(change)
        commits.append(time.perf_counter_ns() - start)

    commits: list[int] = []
    microseconds(commit)
    load = microseconds(lambda turn: ledger.load(sample[turn % len(sample)]))
    due = {0: microseconds(lambda _: ledger.due(_NOW))}
    for lease_id in ids[: max(DUE)]:
        lease = ledger.load(lease_id).lease
        ledger.commit(Change(lease_id, lease.model_copy(update={"next_check_at": at(60)})))
    due[max(DUE)] = microseconds(lambda _: ledger.due(_NOW))
    ledger.close()
    return Figures(load, statistics.median(commits) / 1000, due)


def main(sizes: tuple[int, ...] = SIZES) -> int:
    """Measure in memory and in a file, print, and return the exit status."""
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        for where in ("memory", "file"):
            nothing_due = {}
            for size in sizes:
                path = ":memory:" if where == "memory" else str(Path(folder) / f"{size}.db")
                figures = measure(size, path)
                nothing_due[size] = figures.due[0]
                print(
                    f"{where:6} {size:7,} leases: load {figures.load:6.1f} us, commit {figures.commit:6.1f} us "
                    f"(lease, resource, event), due {figures.due[0]:5.1f} us with none due, "
                    f"{figures.due[100]:5.1f} us with {min(size, 100)} due",
                    flush=True,
                )
            if len(sizes) > 1:
                ratio = nothing_due[sizes[-1]] / nothing_due[sizes[-2]]
                print(
                    f"{where:6} nothing due, {sizes[-1]:,} to {sizes[-2]:,} leases: {ratio:.2f} (limit {RATIO_LIMIT})"
                )
                status |= ratio > RATIO_LIMIT
    return status


if __name__ == "__main__":
    sys.exit(main())
