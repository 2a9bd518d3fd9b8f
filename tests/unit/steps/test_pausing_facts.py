"""What a resume in vain leaves is given back at once, and what was seen late says nothing of a machine that runs."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from gpulease.domain.lease import Reason
from gpulease.domain.policy import Capacity
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resume import asked_to_start, back_to_paused, new_machine, started
from gpulease.steps.pausing import decided, note_stopped

from tests.support.pause_records import FULL, STOPPED, after, later, machine, resuming


class Deps:
    """A ledger of one lease, and the workflows that were started."""

    def __init__(self, record: LeaseRecord) -> None:
        self.record = record
        self.started: list[str] = []
        self.ledger = SimpleNamespace(load=lambda lease_id: self.record, commit=self._commit)
        self.workflows = SimpleNamespace(start=lambda machine, *rest: self.started.append(machine))
        self.clock = SimpleNamespace(now=lambda: later(hours=2))

    def _commit(self, change: Change) -> None:
        self.record = after(self.record, change)


def test_a_new_machine_that_came_to_nothing_is_given_back_without_a_wait() -> None:
    record = resuming(Capacity.REPLACE)
    record = after(record, new_machine(record, later(hours=1), Reason.NO_CAPACITY, "none"))
    record = LeaseRecord(record.lease, (*record.resources, machine(attempt=2)))
    deps: Any = Deps(record)

    decided(back_to_paused(record, later(hours=2), Reason.NOT_READY_IN_TIME, "too late"), deps)

    assert deps.started == ["release"]


def test_a_machine_seen_stopped_before_it_was_started_again_keeps_its_full_price() -> None:
    record = resuming()
    record = after(record, asked_to_start(record, later(hours=1)))
    (kept,) = record.resources
    minutes = later(minutes=9) - later()
    change = started(record, kept, later(hours=1), words="pending", price=FULL, time_to_boot=minutes)
    deps: Any = Deps(after(record, change))

    note_stopped(deps.record, kept, "stopped", STOPPED, deps)

    (now,) = deps.record.resources
    assert now.stopped_at is None and now.rates[-1].usd_per_hour == Decimal(FULL)
