"""`python -m gpulease_local.demo`: a lease that goes idle and comes back with its data (`demo_idle.py`), then five that
meet what real clouds do; through the real API, in about a minute.

Invariants: its own temporary folder and a free port, no network beyond loopback, no key; the last line is computed from
the simulated provider's own book, and the exit status is 1 when that line, or a story, is not what it should be.
"""

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from gpulease.domain.record import LeaseRecord
from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import Client
from gpulease_sim.vultr import BookObject, VultrCloud

from gpulease_local import demo_idle
from gpulease_local.books import MACHINES, Comparison, all_records, compare
from gpulease_local.demo_cases import (
    CANCEL_AFTER_SECONDS,
    CASES,
    Case,
    Evidence,
    faults_for,
    settings_for,
)
from gpulease_local.demo_view import Row, View
from gpulease_local.server import LocalServer, Options

TIME_SCALE = 100.0
LIMIT_SECONDS = 150.0
"""Wall time after which the demo gives up and says what is missing."""
_TURN_SECONDS = 0.1


@dataclass(frozen=True)
class Verdict:
    """The last line and the exit status."""

    leases: int
    """With a machine in the provider's book."""
    running_ok: int
    found: Comparison
    expected_leases: int
    expected_running: int
    untold: tuple[str, ...]
    """Cases whose mishap did not take place."""

    @property
    def line(self) -> str:
        """The demo's last line."""
        return (
            f"demo: leases={self.leases} running_ok={self.running_ok} released={self.found.released} "
            f"billed_at_provider={self.found.billed} orphans={self.found.orphans} duplicates={self.found.duplicates}"
        )

    @property
    def status(self) -> int:
        """0 when all is as it should be."""
        good = self.found.clean and self.running_ok == self.expected_running
        good = good and self.expected_leases == self.leases == self.found.leases
        return 0 if good and not self.untold else 1


class Demo:
    """One run over a started server, whose engine moves in a thread of its own."""

    def __init__(self, server: LocalServer, cloud: VultrCloud, cases: Sequence[Case], view: View) -> None:
        self._server = server
        self._cloud = cloud
        self._cases = cases
        self._view = view
        self._rows = {case.name: Row(case.name, case.story) for case in cases}
        self._ids: dict[str, str] = {}
        content = json.loads((server.public_folder / "api.json").read_text(encoding="utf-8"))
        self._client = Client(content["url"], content["token"])
        self._give_up = monotonic() + LIMIT_SECONDS

    def play(self) -> bool:
        """Ask for all leases, wait until they run, give them back; False when time ran out first."""
        for case in self._cases:
            self._ask(case)
        return self._until("running", cancelling=True) and self._give_back() and self._until("released")

    def _ask(self, case: Case) -> None:
        if case.cheapest_vanishes:
            cheapest = self._client.preview(case.body()).offers[0]
            settings = self._cloud.settings
            spots = settings.vanishing | {f"{cheapest.region}/{cheapest.plan}"}
            self._cloud.settings = replace(settings, vanishing=spots)
        lease = self._client.create_lease(case.body(), idempotency_key=f"demo-{case.name}")
        self._ids[case.name] = lease.id

    def _give_back(self) -> bool:
        for lease_id in self._ids.values():
            self._client.release(lease_id)
        return True

    def _until(self, state: str, *, cancelling: bool = False) -> bool:
        cancelled = set[str]()
        while True:
            for case in self._cases:
                row, lease_id = self._rows[case.name], self._ids[case.name]
                row.lease = self._client.lease(lease_id)
                row.events = list(self._client.all_events(lease_id))
                if cancelling and case.cancelled and case.name not in cancelled and self._old_enough(row):
                    self._client.release(lease_id)
                    cancelled.add(case.name)
            self._view.show(list(self._rows.values()), self._server.stack.deps.clock.now())
            reached = {state, "released"}
            if all(row.lease is not None and row.lease.state in reached for row in self._rows.values()):
                return True
            if monotonic() > self._give_up:
                return False
            sleep(_TURN_SECONDS if not cancelling or cancelled else _TURN_SECONDS / 10)

    def _old_enough(self, row: Row) -> bool:
        created = next((event.at for event in row.events if event.kind == "instance_created"), None)
        now = self._server.stack.deps.clock.now()
        return created is not None and now >= created + timedelta(seconds=CANCEL_AFTER_SECONDS)

    def judge(self) -> Verdict:
        """Hold the provider's book against the ledger and each case against its story."""
        deps = self._server.stack.deps
        book, records = self._cloud.book_objects(), all_records(deps.ledger)
        found = compare(book, records, deps.policy.deployment, deps.clock.now())
        happened = {case.name: self._happened(case, book, records) for case in self._cases}
        self._view.bill(found, happened)
        for finding in found.findings:
            self._view.say(f"found: {finding}")
        return Verdict(
            leases=sum(bool(machines_of(record, book)) for record in records),
            running_ok=sum(ran_well(record, book) for record in records),
            found=found,
            expected_leases=len(self._cases),
            expected_running=sum(not case.cancelled for case in self._cases),
            untold=tuple(name for name, story in happened.items() if story is None),
        )

    def _happened(self, case: Case, book: Sequence[BookObject], records: Sequence[LeaseRecord]) -> str | None:
        record = next((each for each in records if each.lease.id == self._ids[case.name]), None)
        if record is None:
            return None
        machines = machines_of(record, book)
        ids = {machine.id for machine in machines}
        faults = self._cloud.faults
        acted = sum(times for fault, times in zip(faults.faults(), faults.acted(), strict=True) if fault == case.fault)
        return case.happened(
            Evidence(
                record=record,
                machines=machines,
                calls=[call for call in self._cloud.calls if ids.intersection(call.path.split("/"))],
                events=list(self._client.all_events(record.lease.id)),
                faults_acted=acted,
            )
        )


def machines_of(record: LeaseRecord, book: Sequence[BookObject]) -> list[BookObject]:
    """The machines that the book has under this lease's markers."""
    markers = {resource.marker for resource in record.resources}
    return [each for each in book if each.kind in MACHINES and markers.intersection(each.markers)]


def ran_well(record: LeaseRecord, book: Sequence[BookObject]) -> bool:
    """Whether, by the book, a machine of this lease was active at the moment the lease was called running."""
    if record.lease.running_at is None:
        return False
    moment = record.lease.running_at.timestamp()
    return any(
        each.active is not None and each.active <= moment and (each.destroyed is None or moment < each.destroyed)
        for each in machines_of(record, book)
    )


def run(
    out: TextIO,
    *,
    cases: Sequence[Case] = CASES,
    time_scale: float = TIME_SCALE,
    terminal: bool | None = None,
    before_judging: Callable[[VultrCloud], None] | None = None,
) -> int:
    """Play the demo and return the exit status. `before_judging` may tamper with the book, to see the check fail."""
    with tempfile.TemporaryDirectory(prefix="gpulease-demo-") as folder:
        options = Options(
            port=0,
            data_dir=Path(folder) / "local",
            home=Path(folder),
            time_scale=time_scale,
            simulator=settings_for(cases),
            faults=faults_for(cases),
        )
        server = LocalServer(options, {})
        loop = threading.Thread(target=server.run, name="engine")
        loop.start()
        try:
            return _play_and_judge(server, cases, out, terminal, before_judging)
        finally:
            server.stopping.set()
            loop.join()
            server.close()


def _play_and_judge(
    server: LocalServer,
    cases: Sequence[Case],
    out: TextIO,
    terminal: bool | None,
    before_judging: Callable[[VultrCloud], None] | None,
) -> int:
    if server.cloud is None:
        raise RuntimeError("the demo needs the simulated provider")
    view = View(out, server.stack.deps.clock.now(), terminal)
    demo = Demo(server, server.cloud, cases, view)
    try:
        in_time = demo.play()
    finally:
        view.end()
    if not in_time:
        view.say(f"gave up after {LIMIT_SECONDS:g} s")
    if before_judging is not None:
        before_judging(server.cloud)
    verdict = demo.judge()
    for name in verdict.untold:
        view.say(f"found: {name} did not go wrong as planned")
    view.say(verdict.line)
    return verdict.status if in_time else 1


def main() -> int:
    """The command line: no options. First the lease that goes idle, then the five that meet what real clouds do."""
    act = demo_idle.play(lambda line: print(line, flush=True))
    print(f"{act.line}\n", flush=True)
    status = run(sys.stdout)
    return status if act.good else 1


if __name__ == "__main__":
    sys.exit(main())
