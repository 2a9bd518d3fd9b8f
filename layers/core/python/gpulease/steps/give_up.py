"""No offer is left, or a failure that no other offer mends: end the lease with the reason that tells the user most.

A resume that comes to nothing ends nothing: the lease is paused as before, with a notice (law 12).
"""

from gpulease.domain.cache import place_of, spec_of
from gpulease.domain.lease import IN_PROVISION, LeaseState, Reason, ResumeMode
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resume import given_up_resuming
from gpulease.domain.selection import reason_to_give_up
from gpulease.domain.transitions import cancel
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.cache import cache_of
from gpulease.steps.pausing import decided
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"given_up", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.REQUESTED, *IN_PROVISION)
    if record.lease.state is LeaseState.RESUMING:
        return _stays_paused(record, deps)
    reason, detail = reason_to_give_up(record.lease)
    cache = cache_of(record.lease, deps)
    if cache is not None and (place := place_of(spec_of(cache.lease))):
        detail = f"{detail}; its cache {cache.lease.name} is in {place}"
    deps.ledger.commit(cancel(record, now=deps.clock.now(), reason=reason, detail=detail))
    # Should this be where the process dies, `check_leases` finds a releasing lease without a workflow.
    start_release(deps.ledger.load(command.lease_id), deps)
    return Outcome("given_up")


def _stays_paused(record: LeaseRecord, deps: Deps) -> Outcome:
    lease, now = record.lease, deps.clock.now()
    attempt = lease.attempt
    starting = lease.resume is not None and lease.resume.mode is ResumeMode.START
    if starting and attempt is not None and attempt.reason in (Reason.LOST, Reason.INTERRUPTED):
        # Its stopped machine was started and is gone: there is nothing left to be paused.
        change = cancel(record, now=now, reason=attempt.reason, detail=attempt.detail)
        deps.ledger.commit(change)
        start_release(deps.ledger.load(lease.id), deps)
        return Outcome("given_up")
    if starting and attempt is not None:
        reason, detail = attempt.reason or Reason.NOT_READY_IN_TIME, attempt.detail
    else:
        reason, detail = reason_to_give_up(lease)
    decided(given_up_resuming(record, now, reason, detail), deps)
    return Outcome("given_up")
