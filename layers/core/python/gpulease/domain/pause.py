"""Pausing: what a pause is for this machine, and the way to `paused`, as pure functions. Back: `domain/resume.py`.

A record and the time go in, the Change to commit comes out. Invariants: `paused` is written only when nothing of the
machine's compute is billed, and from `pausing` on until it is ready again no address of it is known, as its old one may
belong to somebody else.
"""

from datetime import datetime, timedelta
from decimal import Decimal

from gpulease.domain.cache import has_left_all
from gpulease.domain.event import Event
from gpulease.domain.flush import KEEPING_CACHE, STOPPING, waiting_text
from gpulease.domain.lease import (
    Flush,
    Lease,
    LeaseState,
    PauseMode,
    PauseProgress,
    Reason,
)
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Rate, Resource, ResourceKind, ResourceState
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event, moved, to_release

STOP_AGAIN_AFTER = (timedelta(seconds=120), timedelta(seconds=240), timedelta(seconds=480))
"""After a stop that was accepted and has no effect. An orderly shutdown takes minutes, and asking hurries nothing."""
UNCLEAR_AGAIN_AFTER = timedelta(seconds=20)
"""After a stop without an answer, where the machine is not seen stopping: to ask twice is harmless."""
STUCK_AFTER = timedelta(minutes=10)
RELEASE_WARNING = timedelta(hours=24)
RELEASE_NOTICE = "paused for long"
RESUME_NOTICE = "the resume did not work"
BUDGET_NOTICE = "a window wants it to run, and its budget does not pay for that; raise the budget"
REFUSED_WARNING = "it cannot be paused"
HALTED_WARNING = "it is stopped and still billed in full"


# --- what a pause is --------------------------------------------------------------------------------------------------


def pause_mode(*, can_stop: bool, has_cache: bool) -> PauseMode | None:
    """What a pause does where machines can (not) be stopped without being billed; None = it would keep nothing."""
    if can_stop:
        return PauseMode.STOP
    return PauseMode.KEEP_CACHE if has_cache else None


def may_pause(lease: Lease) -> str:
    """Why a lease cannot be paused now, as the code of a problem; empty = it can."""
    return _refusal(lease, LeaseState.RUNNING, "not_running")


def may_resume(lease: Lease) -> str:
    """Why a lease cannot be resumed now; empty = it can."""
    if lease.state is LeaseState.PAUSING:
        return "being_paused"
    return _refusal(lease, LeaseState.PAUSED, "not_paused")


def _refusal(lease: Lease, wanted: LeaseState, otherwise: str) -> str:
    if lease.state is wanted:
        return ""
    if lease.state is LeaseState.RELEASING:
        return "being_released"
    return "released" if lease.state is LeaseState.RELEASED else otherwise


# --- running to paused ------------------------------------------------------------------------------------------------


def request_pause(
    record: LeaseRecord, *, now: datetime, mode: PauseMode, reason: Reason, detail: str = "", flush: Flush | None = None
) -> Change:
    """Running → pausing. `flush`: the agent's time to save the cache first. Raises ValueError in other states."""
    if record.lease.state is not LeaseState.RUNNING:
        raise ValueError(f"lease {record.lease.id} is {record.lease.state}")
    return pausing(record, now, mode, reason, detail, flush)


def pausing(
    record: LeaseRecord, now: datetime, mode: PauseMode, reason: Reason, detail: str, flush: Flush | None
) -> Change:
    lease = record.lease
    progress = PauseProgress(mode=mode, reason=reason, detail=detail[:500], requested_at=now)
    waiting = STOPPING if mode is PauseMode.STOP else KEEPING_CACHE
    changed = moved(
        lease,
        LeaseState.PAUSING,
        now,
        epoch=lease.epoch + 1,
        restarts=0,
        pause=progress,
        resume=None,
        flush=flush,
        waiting_for=waiting if flush is None else waiting_text(flush),
        notices=without(lease.notices, RESUME_NOTICE),
        next_check_at=now + CHECK_WORKFLOW_EVERY,
    )
    text = f"pausing {lease.name}: {reason}" + (f" ({detail})" if detail else "")
    told = event(lease.id, now, "pause_requested", text[:600], mode=mode.value, reason=reason.value)
    return change(changed, lease.epoch, (told,), without_address(record))


def without_address(record: LeaseRecord) -> tuple[Resource, ...]:
    """Machines whose address may soon be somebody else's (C40), without it."""
    held = (r for r in record.of_kind(ResourceKind.INSTANCE) if r.state is ResourceState.HELD and r.address)
    return tuple(r.model_copy(update={"address": ""}) for r in held)


def asked_to_stop(progress: PauseProgress, now: datetime) -> PauseProgress:
    """One stop call more, that was accepted."""
    patience = STOP_AGAIN_AFTER[min(progress.tries, len(STOP_AGAIN_AFTER) - 1)]
    update = {
        "tries": progress.tries + 1,
        "last_asked_at": now,
        "next_try_at": now + patience,
        "last_error": "",
    }
    return progress.model_copy(update=update)


def unclear_stop(progress: PauseProgress, now: datetime, error: str) -> PauseProgress:
    """One stop call without an answer: it may have been carried out, or never have arrived."""
    update = {"last_asked_at": now, "next_try_at": now + UNCLEAR_AGAIN_AFTER, "last_error": error[:300]}
    return progress.model_copy(update=update)


def refused_to_stop(progress: PauseProgress, now: datetime, error: str, again_after: timedelta) -> PauseProgress:
    """One stop call that was refused for now, or not sent at all."""
    return progress.model_copy(update={"last_error": error[:300], "next_try_at": now + again_after})


def should_ask_again(progress: PauseProgress, now: datetime, *, stopping: bool) -> bool:
    """Whether a stop is asked for (again); what is seen stopping is left alone for as long as the longest patience."""
    if progress.last_asked_at is None:
        return progress.next_try_at is None or progress.next_try_at <= now
    if stopping and now - progress.last_asked_at < STOP_AGAIN_AFTER[-1]:
        return False
    return progress.next_try_at is None or progress.next_try_at <= now


def stopping_since(progress: PauseProgress, flush: Flush | None) -> datetime:
    """From when the machine is to stop: the time in which its agent saves the cache is not held against it."""
    return progress.requested_at if flush is None else flush.ended_at or flush.deadline


def is_stuck(progress: PauseProgress, now: datetime, flush: Flush | None = None) -> bool:
    """Whether people must be told that the machine is still billed. Once."""
    return progress.alarmed_at is None and now - stopping_since(progress, flush) >= STUCK_AFTER


def seen_stopped(resource: Resource, now: datetime, words: str, stopped_price: Decimal) -> Resource:
    """The machine as stopped, at the price of a stopped one from now on, and without an address."""
    if resource.stopped_at is not None:
        return resource
    rates = resource.rates
    if rates and rates[-1].usd_per_hour != stopped_price:
        rates = (*rates, Rate(since=max(now, rates[-1].since), usd_per_hour=stopped_price))
    return resource.model_copy(
        update={"stopped_at": now, "status": words, "address": "", "rates": rates, "absences": 0}
    )


def seen_started(resource: Resource, since: datetime, words: str, price: Decimal) -> Resource:
    """The machine as running again, at its full price since the start was asked for."""
    if resource.stopped_at is None:
        return resource
    rates = resource.rates
    if rates and rates[-1].usd_per_hour != price:
        rates = (*rates, Rate(since=max(since, rates[-1].since), usd_per_hour=price))
    return resource.model_copy(update={"stopped_at": None, "status": words, "rates": rates, "absences": 0})


def switched_to_keep_cache(record: LeaseRecord, now: datetime, why: str) -> Change:
    """The provider refuses to stop this machine for good, and there is a cache: that is kept, the machine goes."""
    lease, progress = record.lease, _progress(record)
    changed = lease.model_copy(
        update={
            "pause": progress.model_copy(update={"mode": PauseMode.KEEP_CACHE, "last_error": why[:300]}),
            "updated_at": now,
            "waiting_for": KEEPING_CACHE,
        }
    )
    text = f"the machine cannot be stopped ({why}); it is given back and its cache is kept"
    told = event(lease.id, now, "pause_mode_changed", text[:600], "warning", mode=PauseMode.KEEP_CACHE.value)
    return change(changed, lease.epoch, (told,))


def keep_cache(record: LeaseRecord, now: datetime) -> Change | None:
    """End the attempt and mark its machine and network for giving back; None = that has been done."""
    lease, progress = record.lease, _progress(record)
    attempt = lease.attempt
    if attempt is None:
        return None
    ended = attempt.model_copy(update={"ended_at": now, "reason": progress.reason, "detail": "paused"})
    attempts = tuple(ended if a.number == attempt.number else a for a in lease.attempts)
    marked = tuple(m for r in record.resources if (m := to_release(r, now)) is not r)
    changed = lease.model_copy(update={"attempts": attempts, "updated_at": now})
    told = event(lease.id, now, "machine_given_back", f"{lease.name}: the machine is given back, its cache is kept")
    return change(changed, lease.epoch, (told,), marked)


def keep_cache_done(record: LeaseRecord) -> bool:
    """Whether all that was given back is proven gone, and no cache counts a machine of this lease any more."""
    gone = all(resource.state is ResourceState.RELEASED for resource in record.resources)
    return gone and has_left_all(record.lease)


def is_paused_in_fact(record: LeaseRecord) -> bool:
    """Whether no compute of it is billed: what must be so before anybody is told `paused` (law 11)."""
    progress = record.lease.pause
    if progress is None:
        return False
    if progress.mode is PauseMode.KEEP_CACHE:
        return keep_cache_done(record)
    machines = [m for m in record.of_kind(ResourceKind.INSTANCE) if m.state is not ResourceState.RELEASED]
    return all(m.stopped_at is not None for m in machines if m.state is ResourceState.HELD)


def paused(record: LeaseRecord, now: datetime, text: str) -> Change:
    """Pausing → paused. `text` says what is billed from now on. Raises ValueError while compute is billed."""
    lease = record.lease
    if not is_paused_in_fact(record):
        raise ValueError(f"lease {lease.id}: its machine is not proven stopped")
    done = resting(record, now)
    told = event(lease.id, now, "paused", text, reason=str(_progress(record).reason), mode=_progress(record).mode.value)
    return change(done, lease.epoch, (told,))


def not_paused(record: LeaseRecord, now: datetime, why: str, address: str) -> Change:
    """Pausing → running: the provider refuses to stop this machine for good. Nothing was given back."""
    lease = record.lease
    warning = f"{REFUSED_WARNING}: {why}"[:500]
    running = moved(
        lease,
        LeaseState.RUNNING,
        now,
        epoch=lease.epoch + 1,
        restarts=0,
        pause=None,
        flush=None,
        waiting_for="",
        # Idleness counts anew, so that a pause that cannot be is not tried every minute.
        ready_at=now,
        warnings=tuple(dict.fromkeys((*lease.warnings, warning))),
        next_check_at=now + CHECK_WORKFLOW_EVERY,
    )
    machines = tuple(
        m.model_copy(update={"address": address, "absences": 0})
        for m in record.of_kind(ResourceKind.INSTANCE)
        if m.state is ResourceState.HELD
    )
    told = event(lease.id, now, "pause_refused", f"{lease.name} stays running and billed: {warning}", "error")
    return change(running, lease.epoch, (told,), machines)


# --- paused -----------------------------------------------------------------------------------------------------------


def release_at(lease: Lease) -> datetime | None:
    """When a paused lease is given back by its policy; None = never, or it is not paused."""
    limit = lease.rules.paused.release_after_seconds
    if lease.state is not LeaseState.PAUSED or lease.paused_at is None or limit is None:
        return None
    return lease.paused_at + timedelta(seconds=limit)


def release_warning_at(lease: Lease) -> datetime | None:
    """When its owner is told of that: a day before, and at half of a short limit. None = told already, or never."""
    end, limit = release_at(lease), lease.rules.paused.release_after_seconds
    if end is None or limit is None or any(n.startswith(RELEASE_NOTICE) for n in lease.notices):
        return None
    return end - min(RELEASE_WARNING, timedelta(seconds=limit / 2))


def warned_of_release(record: LeaseRecord, now: datetime) -> Change:
    """The notice and the event before a paused lease is given back."""
    lease, end = record.lease, release_at(record.lease)
    text = f"{RELEASE_NOTICE}: given back at {end:%Y-%m-%d %H:%M} UTC unless it is resumed before"
    told = event(lease.id, now, "paused_release_soon", f"{lease.name}: {text}", "warning")
    return change(lease.model_copy(update={"notices": (*lease.notices, text), "updated_at": now}), lease.epoch, (told,))


# --- parts ------------------------------------------------------------------------------------------------------------


def resting(record: LeaseRecord, now: datetime, since: datetime | None = None) -> Lease:
    at = since or now
    lease = moved(
        record.lease, LeaseState.PAUSED, now, paused_at=at, resume=None, flush=None, waiting_for="", restarts=0
    )
    # The next check knows the limits that apply, and when the one after it has to come.
    return lease.model_copy(update={"next_check_at": now + CHECK_WORKFLOW_EVERY})


def without(texts: tuple[str, ...], beginning: str) -> tuple[str, ...]:
    return tuple(text for text in texts if not text.startswith(beginning))


def _progress(record: LeaseRecord) -> PauseProgress:
    if record.lease.pause is None:
        raise ValueError(f"lease {record.lease.id} is not being paused")
    return record.lease.pause


def change(lease: Lease, epoch: int, events: tuple[Event, ...] = (), resources: tuple[Resource, ...] = ()) -> Change:
    """`epoch`: the one that the stored lease must have."""
    return Change(lease_id=lease.id, lease=lease, resources=resources, events=events, epoch=epoch)
