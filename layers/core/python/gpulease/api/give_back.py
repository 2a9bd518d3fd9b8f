"""Ends a lease on its user's word. Safe to repeat: a lease that is on its way out is answered as it is."""

from gpulease.api.accept import start
from gpulease.api.problems import unavailable
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import LeaseRecord
from gpulease.domain.transitions import cancel
from gpulease.errors import LeaseConflict, LeaseSuperseded
from gpulease.ports import Deps

MAX_TRIES = 5
"""Each lost try means that another writer got ahead, which a lease's few workflows cannot do for long."""


def give_back(record: LeaseRecord, deps: Deps, detail: str) -> LeaseRecord:
    """The lease with everything marked for giving back, and `release` started."""
    for _ in range(MAX_TRIES):
        if record.lease.state is LeaseState.RELEASED:
            return record
        if record.lease.state is LeaseState.RELEASING:
            # Harmless when it runs already, and mends a start that failed.
            start(deps, record.lease, "release")
            return record
        change = cancel(record, now=deps.clock.now(), reason=Reason.USER, detail=detail)
        try:
            deps.ledger.commit(change)
        except (LeaseConflict, LeaseSuperseded):
            record = deps.ledger.load(record.lease.id)
            continue
        record = deps.ledger.load(record.lease.id)
        start(deps, record.lease, "release")
        return record
    raise unavailable(
        "lease_busy",
        "the lease is being changed by somebody else at this moment; nothing was done, repeat the request",
        retry_after_seconds=1,
    )
