"""What `check_leases` does about leases that are paused, or on the way there or back, beside their workflows."""

from datetime import datetime, timedelta

from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.pause import release_warning_at, warned_of_release
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind
from gpulease.domain.resume import LONGEST_PATIENCE, given_up_resuming
from gpulease.ports import Deps
from gpulease.steps.pausing import decided, tell_if_stuck

GRACE = timedelta(minutes=15)
"""After the last deadline; a workflow acts within one poll of it when it can act at all."""


def check_pausing(record: LeaseRecord, deps: Deps, now: datetime) -> LeaseRecord:
    """The lease after what was due has been told."""
    if record.lease.state is LeaseState.PAUSING:
        return tell_if_stuck(record, deps)
    warn = release_warning_at(record.lease)
    if warn is not None and warn <= now:
        deps.ledger.commit(warned_of_release(record, now))
        return deps.ledger.load(record.lease.id)
    return record


def give_up_resuming(record: LeaseRecord, deps: Deps, now: datetime) -> bool:
    """End a resume whose workflow cannot: nothing of it is deleted, and what may run is stopped. True = it was."""
    if record.lease.state is not LeaseState.RESUMING or not _is_too_late(record, now):
        return False
    why = "its workflow could not end it by its deadline"
    decided(given_up_resuming(record, now, Reason.NOT_READY_IN_TIME, why), deps)
    return True


def _is_too_late(record: LeaseRecord, now: datetime) -> bool:
    progress, attempt = record.lease.resume, record.lease.attempt
    if progress is None:
        return False
    if attempt is None or (attempt.number <= progress.attempts_before and progress.started_at is None):
        # Nothing was started yet. Looking for a new machine has limits of its own, as provisioning has.
        return attempt is not None and now >= max(progress.give_up_at, progress.requested_at + LONGEST_PATIENCE) + GRACE
    if not record.of_kind(ResourceKind.INSTANCE, attempt.number):
        return False
    deadlines = [attempt.ready_deadline]
    deadlines += [attempt.network_deadline] if attempt.network_deadline is not None else []
    return now >= max(deadlines) + GRACE
