"""Ends a lease on its user's word. Safe to repeat: a lease that is on its way out is answered as it is."""

from gpulease.api.accept import start
from gpulease.api.problems import unavailable
from gpulease.domain.flush import Word, ended, open_flush
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.transitions import cancel
from gpulease.errors import LeaseConflict, LeaseSuperseded
from gpulease.ports import Deps
from gpulease.saving import flush_before_end

MAX_TRIES = 5
"""Each lost try means that another writer got ahead, which a lease's few workflows cannot do for long."""


def give_back(record: LeaseRecord, deps: Deps, detail: str, *, at_once: bool = False) -> LeaseRecord:
    """The lease with everything marked for giving back, and `release` started.

    `at_once`: its agent is not waited for, also where it is saving the cache already.
    """
    for _ in range(MAX_TRIES):
        change = _change(record, deps, detail, at_once)
        if change is not None:
            try:
                deps.ledger.commit(change)
            except (LeaseConflict, LeaseSuperseded):
                record = deps.ledger.load(record.lease.id)
                continue
            record = deps.ledger.load(record.lease.id)
        if record.lease.state is not LeaseState.RELEASED:
            # Harmless when it runs already, and mends a start that failed.
            start(deps, record.lease, "release")
        return record
    raise unavailable(
        "lease_busy",
        "the lease is being changed by somebody else at this moment; nothing was done, repeat the request",
        retry_after_seconds=1,
    )


def _change(record: LeaseRecord, deps: Deps, detail: str, at_once: bool) -> Change | None:
    """What has to be written; None = it has been."""
    now = deps.clock.now()
    if record.lease.state is LeaseState.RELEASED:
        return None
    if record.lease.state is LeaseState.RELEASING:
        return ended(record, Word.SKIPPED, now) if at_once and open_flush(record.lease) is not None else None
    flush = None if at_once else flush_before_end(record, deps, now)
    return cancel(record, now=now, reason=Reason.USER, detail=detail, flush=flush)
