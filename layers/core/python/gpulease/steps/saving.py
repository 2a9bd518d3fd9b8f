"""One look at an agent that has time to save the cache: it is asked, waited for, and not waited for any longer.

Shared by the pause and the release. Invariants: it is asked once, whoever looks; the row of the agent may be read or
written in vain, and the end that stands in the ledger holds all the same.
"""

from gpulease.domain.agent import AgentRecord
from gpulease.domain.flush import Word, asked, by_this_clock, ended, heard, moved_on, open_flush, postponed
from gpulease.domain.lease import Flush
from gpulease.domain.record import LeaseRecord
from gpulease.errors import LeaseConflict, LedgerUnavailable
from gpulease.ports import Deps


def let_save(record: LeaseRecord, deps: Deps) -> LeaseRecord:
    """The record after the look; while the agent is waited for `open_flush` of its lease says so.

    Raises LeaseConflict, LeaseSuperseded: somebody else changed the lease meanwhile.
    """
    lease, stored, now = record.lease, open_flush(record.lease), deps.clock.now()
    if stored is None:
        return record
    flush = by_this_clock(stored, now)
    try:
        agent = deps.agents.load(lease.id)
    except LedgerUnavailable as error:
        deps.log.warning("agent_not_read", lease_id=lease.id, reason=str(error))
        if now < flush.deadline:
            return _noted(record, flush, deps)
        return _end(record, Word.LATE, None, deps)
    later = moved_on(flush, agent, now)
    word = heard(later, agent, now)
    if word is not Word.SAVING:
        return _end(record, word, agent, deps)
    record = _noted(record, later, deps)
    if agent is not None and (wish := asked(later, agent, now)) is not None:
        _ask(wish, deps)
    return record


def _noted(record: LeaseRecord, flush: Flush, deps: Deps) -> LeaseRecord:
    if flush == record.lease.flush:
        return record
    deps.ledger.commit(postponed(record, flush, deps.clock.now()))
    return deps.ledger.load(record.lease.id)


def _end(record: LeaseRecord, word: Word, agent: AgentRecord | None, deps: Deps) -> LeaseRecord:
    deps.ledger.commit(ended(record, word, deps.clock.now(), agent))
    return deps.ledger.load(record.lease.id)


def _ask(wish: AgentRecord, deps: Deps) -> None:
    try:
        deps.agents.save(wish)
    except (LeaseConflict, LedgerUnavailable):
        # A report came at this very moment: asked at the next look.
        deps.log.info("agent_row_busy", lease_id=wish.lease_id)
