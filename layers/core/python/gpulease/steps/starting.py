"""Starting workflows from a decision that is already in the ledger. A doubled start is harmless by its name."""

from datetime import datetime, timedelta

from gpulease.domain.lease import execution_name
from gpulease.domain.record import LeaseRecord
from gpulease.domain.release import MAX_PAUSE_SECONDS
from gpulease.domain.resource import ResourceState
from gpulease.ports import Deps

OVERDUE = timedelta(seconds=MAX_PAUSE_SECONDS + 60)
"""A release whose next turn is so long past has no workflow behind it any more."""


def start_release(record: LeaseRecord, deps: Deps, suffix: str = "") -> None:
    lease = record.lease
    deps.workflows.start("release", execution_name(lease.id, "release", lease.epoch, suffix), lease.id, lease.epoch)


def start_overdue_release(record: LeaseRecord, deps: Deps, now: datetime) -> bool:
    """Start `release` again when something that should be on its way out is not being worked on. True = it was."""
    overdue = [
        r
        for r in record.resources
        if r.state is ResourceState.RELEASING and r.release is not None and r.release.next_try_at + OVERDUE < now
    ]
    if not overdue:
        return False
    # The name tells which turn was missed, so two checkers that notice it at once start one execution.
    missed = min(r.release.next_try_at for r in overdue if r.release is not None)
    start_release(record, deps, f"t{int(missed.timestamp())}")
    return True
