"""Whether a machine that is to go is first given the time in which its agent saves and unmounts the cache.

For whoever decides about such an end: API and steps. Only an end that was planned asks this; where a machine was lost,
taken back or never became ready there is nobody to ask.
"""

from datetime import datetime

from gpulease.domain.flush import can_hear, new_flush, open_flush
from gpulease.domain.lease import Attempt, Flush, Lease, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.errors import LeaseNotFound, LedgerUnavailable
from gpulease.pause_facts import machine_held
from gpulease.ports import Deps


def flush_before_end(record: LeaseRecord, deps: Deps, now: datetime) -> Flush | None:
    """The time that its agent gets; None = it is not asked: no cache, no machine that runs, or nobody who hears it."""
    lease, attempt = record.lease, record.lease.attempt
    under_way = open_flush(lease)
    if under_way is not None:
        # A pause that becomes a release: its agent was asked already.
        return under_way
    machine = machine_held(record)
    if lease.state is not LeaseState.RUNNING or attempt is None or machine is None or machine.stopped_at is not None:
        return None
    if not lease.cache_id or not _has_what_to_save(lease, attempt, deps):
        return None
    return new_flush(attempt.number, now) if _can_hear(lease.id, attempt.number, deps, now) else None


def _has_what_to_save(lease: Lease, attempt: Attempt, deps: Deps) -> bool:
    """Whether its machine has the cache's volume, or what is on it goes to an object store."""
    volume = attempt.volume
    if volume is not None and volume.attached_at is not None and not volume.left:
        return True
    try:
        cache = deps.ledger.load(lease.cache_id).lease
    except LeaseNotFound:
        return False
    except LedgerUnavailable as error:
        # A row that cannot be read must not keep a machine billed, nor have a cache lost: its agent is asked.
        deps.log.warning("cache_not_read", lease_id=lease.id, reason=str(error))
        return True
    return cache.cache is not None and cache.cache.object_store is not None


def _can_hear(lease_id: str, attempt: int, deps: Deps, now: datetime) -> bool:
    try:
        return can_hear(deps.agents.load(lease_id), attempt, now)
    except LedgerUnavailable as error:
        # Asked all the same: whoever waits for it looks again, and has an end.
        deps.log.warning("agent_not_read", lease_id=lease_id, reason=str(error))
        return True
