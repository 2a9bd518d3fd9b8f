"""Letting the agent save and unmount the cache before its machine is stopped or given back, as pure functions.

Invariants: who decides that a machine goes writes down at once until when it is waited for, so no process that dies can
make it longer; the end is moved on only by an agent that says it is still saving, and never beyond `latest`; whatever
the agent does or does not do, the machine goes at that end. Until then it is billed, and the lease says so.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil

from gpulease.domain.agent import AgentRecord, is_silent
from gpulease.domain.event import Event, Fact
from gpulease.domain.lease import Flush, Lease, LeaseState, PauseMode
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState

FLUSH_TIME = timedelta(seconds=90)
"""Since it was asked, or last said that it still saves. It hears of it with its next report, within a minute."""
LONGEST_FLUSH = timedelta(minutes=15)
"""In all. At 100 MB/s some 90 GB get out in that time."""
MOVED_BY_LEAST = timedelta(seconds=30)
"""The end is moved in steps of at least so much: a write costs money, and reports come every ten seconds."""
LOOK_SECONDS = 5
LOOK_LATER_SECONDS = 15
"""Once it takes long, a few seconds more of it do not matter."""
STOPPING = "its machine to stop"
KEEPING_CACHE = "its machine to be given back; its cache is kept"
GIVING_BACK = "everything to be given back"
_TOLD = ("object store", "flush", "unmount")
"""Problems of an agent, by their beginnings, that make a save less than whole."""


class Word(StrEnum):
    """What became of asking."""

    SAVING = "saving"
    SAVED = "saved"
    SILENT = "silent"
    """No agent (any more) that could hear it."""
    LATE = "late"
    SKIPPED = "skipped"
    """By its owner's word."""


def new_flush(attempt: int, now: datetime) -> Flush:
    return Flush(attempt=attempt, requested_at=now, deadline=now + FLUSH_TIME, latest=now + LONGEST_FLUSH)


def by_this_clock(flush: Flush, now: datetime) -> Flush:
    """With ends counted from now where the clock was set back since: else it would be waited for that much longer."""
    return new_flush(flush.attempt, now) if flush.requested_at - now > MOVED_BY_LEAST else flush


def open_flush(lease: Lease) -> Flush | None:
    """What is waited for now; None = nothing is."""
    moving = lease.state in (LeaseState.PAUSING, LeaseState.RELEASING)
    return lease.flush if moving and lease.flush is not None and lease.flush.ended_at is None else None


def can_hear(agent: AgentRecord | None, attempt: int, now: datetime) -> bool:
    """Whether the agent of this attempt's machine has reported, and not missed its last reports."""
    if agent is None or agent.attempt != attempt or agent.first_report_at is None:
        return False
    return not is_silent(agent, now)


def heard(flush: Flush, agent: AgentRecord | None, now: datetime) -> Word:
    """How it stands. `flush` as moved on by this agent's word."""
    if agent is not None and agent.attempt == flush.attempt and _has_saved(flush, agent):
        return Word.SAVED
    if not can_hear(agent, flush.attempt, now):
        return Word.SILENT
    return Word.SAVING if now < flush.deadline else Word.LATE


def _has_saved(flush: Flush, agent: AgentRecord) -> bool:
    """Since it was asked. Asking clears what was said before, and the clock may have been set back after it."""
    told = [at for at in (agent.flushed_at, agent.flush_wanted_at) if at is not None]
    return agent.flushed_at is not None and max(told) >= flush.requested_at


def moved_on(flush: Flush, agent: AgentRecord | None, now: datetime) -> Flush:
    """With the end that follows from the agent's last word that it still saves."""
    if agent is None or agent.attempt != flush.attempt or agent.saving_at is None:
        return flush
    deadline = min(agent.saving_at + FLUSH_TIME, flush.latest)
    if deadline <= flush.deadline:
        return flush
    if deadline - flush.deadline < MOVED_BY_LEAST and flush.deadline - now > MOVED_BY_LEAST:
        return flush
    return flush.model_copy(update={"deadline": deadline})


def asked(flush: Flush, agent: AgentRecord, now: datetime) -> AgentRecord | None:
    """The agent's row with the wish; None = it has it."""
    if agent.flush_wanted_at is not None and agent.flush_wanted_at >= flush.requested_at:
        return None
    # Never before the request, which would have it asked, and its answer cleared, at each look.
    at = max(now, flush.requested_at)
    update = {"flush_wanted_at": at, "flush_until": flush.latest, "flushed_at": None, "saving_at": None}
    return agent.model_copy(update=update)


def look_seconds(flush: Flush, now: datetime) -> int:
    """Until the next look, which is never later than the end."""
    usual = LOOK_SECONDS if now - flush.requested_at <= FLUSH_TIME else LOOK_LATER_SECONDS
    return max(1, min(usual, ceil((flush.deadline - now).total_seconds())))


def waiting_text(flush: Flush) -> str:
    return f"its cache to be saved (until {flush.latest:%H:%M} UTC at most)"


# --- changes ----------------------------------------------------------------------------------------------------------


def held_back(resource: Resource, flush: Flush) -> Resource:
    """A machine marked for giving back whose turn comes when its cache is saved; others are returned as they are."""
    if resource.kind is not ResourceKind.INSTANCE or resource.attempt != flush.attempt or resource.release is None:
        return resource
    if resource.state is not ResourceState.RELEASING or resource.release.tries:
        return resource
    turn = flush.ended_at or flush.deadline
    return resource.model_copy(
        update={"release": resource.release.model_copy(update={"not_before": turn, "next_try_at": turn})}
    )


def postponed(record: LeaseRecord, flush: Flush, now: datetime) -> Change:
    """Write a later end down."""
    lease = record.lease.model_copy(update={"flush": flush, "updated_at": now})
    return Change(lease_id=lease.id, lease=lease, resources=_held_back(record, flush), epoch=lease.epoch)


def ended(record: LeaseRecord, word: Word, now: datetime, agent: AgentRecord | None = None) -> Change:
    """Nothing is waited for any more; the machine's turn is now. Raises ValueError when nothing is waited for."""
    lease, flush = record.lease, open_flush(record.lease)
    if flush is None:
        raise ValueError(f"lease {lease.id} waits for no agent")
    flush = flush.model_copy(update={"ended_at": now, "ended": word.value})
    changed = lease.model_copy(update={"flush": flush, "updated_at": now, "waiting_for": _waits_then(lease)})
    told = _told(lease, flush, word, now, agent)
    return Change(
        lease_id=lease.id, lease=changed, resources=_held_back(record, flush), events=(told,), epoch=lease.epoch
    )


def _held_back(record: LeaseRecord, flush: Flush) -> tuple[Resource, ...]:
    """Those that were held back when they were marked: a double of the machine goes at its own turn."""
    held = (each for each in record.resources if each.release is not None and each.release.not_before is not None)
    return tuple(after for each in held if (after := held_back(each, flush)) is not each)


def _waits_then(lease: Lease) -> str:
    if lease.state is LeaseState.RELEASING or lease.pause is None:
        return GIVING_BACK
    return STOPPING if lease.pause.mode is PauseMode.STOP else KEEPING_CACHE


def _told(lease: Lease, flush: Flush, word: Word, now: datetime, agent: AgentRecord | None) -> Event:
    seconds = max(0, int((now - flush.requested_at).total_seconds()))
    problems = [text for text in agent.problems if text.startswith(_TOLD)] if agent is not None else []
    kind, level = "cache_not_saved", "warning"
    if word is Word.SAVED and not problems:
        kind, level, text = "cache_saved", "info", f"the cache is saved and unmounted, after {seconds} s"
    elif word is Word.SAVED:
        text = f"the cache is unmounted, and was not saved whole: {'; '.join(problems)}"
    elif word is Word.SILENT:
        text = "the agent has gone silent: the machine goes without its cache having been saved"
    elif word is Word.SKIPPED:
        text = f"the machine goes at once, by its owner's word, {seconds} s after its cache was to be saved"
    else:
        text = f"the agent did not say in {seconds} s that the cache is saved: the machine goes without it"
    facts: dict[str, Fact] = {"word": word.value, "seconds": seconds}
    return Event(lease_id=lease.id, at=now, kind=kind, text=f"{lease.name}: {text}"[:600], level=level, facts=facts)
