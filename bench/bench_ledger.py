"""What a load, a commit and a look at what is due cost in the SQLite ledger, and that the last depends on what is due.

Prints one line per size; ends with an error when a look with nothing due takes more than twice as long among 100,000
leases as among 1,000.

    python -m bench.bench_ledger [--json]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from gpulease.domain.lease import LeaseState  # noqa: E402
from gpulease.ledger.sqlite import SqliteLedger  # noqa: E402
from gpulease.ports import Change  # noqa: E402

from tests.support.ledger_samples import CountingIds, a_lease, a_resource, an_event, at  # noqa: E402

SIZES = {"memory": (10, 1_000, 100_000), "file": (10, 1_000)}
DUE = (0, 100)
RATIO_LIMIT = 2.0
_ROUNDS = 2_000
_NOW = at(3600)


@dataclass(frozen=True)
class Figures:
    """Medians, in microseconds per call."""

    leases: int
    load: float
    commit_lease: float
    commit_lease_resource_event: float
    due_none: float
    due_hundred: float
    """With 100 due, or all where there are fewer."""

    def __str__(self) -> str:
        return (
            f"{self.leases:7,} leases: load {self.load:5.1f} us, commit {self.commit_lease:5.1f} us (lease), "
            f"{self.commit_lease_resource_event:5.1f} us (lease, resource, event), "
            f"due {self.due_none:4.1f} us (none), {self.due_hundred:4.1f} us (100)"
        )


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

    commits: dict[int, list[int]] = {1: [], 3: []}

    def commit(turn: int) -> None:
        record = ledger.load(sample[turn % len(sample)])
        lease = record.lease.model_copy(update={"updated_at": at(turn)})
        resource = record.resources[0].model_copy(update={"status": f"active {turn}"})
        three_rows = Change(lease.id, lease, (resource,), (an_event(lease.id, turn),), lease.epoch)
        change = three_rows if turn % 2 else Change(lease.id, lease)
        start = time.perf_counter_ns()
        ledger.commit(change)
        commits[3 if turn % 2 else 1].append(time.perf_counter_ns() - start)

    microseconds(commit)
    load = microseconds(lambda turn: ledger.load(sample[turn % len(sample)]))
    due = {0: microseconds(lambda _: ledger.due(_NOW))}
    for lease_id in ids[: max(DUE)]:
        lease = ledger.load(lease_id).lease
        ledger.commit(Change(lease_id, lease.model_copy(update={"next_check_at": at(60)})))
    due[max(DUE)] = microseconds(lambda _: ledger.due(_NOW))
    ledger.close()
    return Figures(
        leases=size,
        load=load,
        commit_lease=statistics.median(commits[1]) / 1000,
        commit_lease_resource_event=statistics.median(commits[3]) / 1000,
        due_none=due[0],
        due_hundred=due[max(DUE)],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in memory and in a file, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, microseconds per call")
    as_json = parser.parse_args(arguments).json
    found: dict[str, list[Figures]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for where, sizes in SIZES.items():
            for size in sizes:
                path = ":memory:" if where == "memory" else str(Path(folder) / f"{size}.db")
                figures = measure(size, path)
                found.setdefault(where, []).append(figures)
                if not as_json:
                    print(f"{where:6} {figures}", flush=True)
    *_, small, large = found["memory"]
    ratio = large.due_none / small.due_none
    if as_json:
        figures_by_place = {where: [asdict(figures) for figures in of_place] for where, of_place in found.items()}
        print(json.dumps({"microseconds": figures_by_place, "nothing_due_ratio": round(ratio, 2)}))
    else:
        print(f"nothing due, {large.leases:,} to {small.leases:,} leases: {ratio:.2f} (limit {RATIO_LIMIT})")
    return int(ratio > RATIO_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
