"""Resuming: the stopped machine again, or a new one, and what follows when neither can be had. Pure functions.

A record and the time go in, the Change to commit comes out. Invariants (law 12): a machine that once ran is given back
only where its owner asked for a new one instead, and only when that one runs; a resume that comes to nothing ends
`paused`, by way of stopping what it may have started.
"""

from datetime import datetime, timedelta
from decimal import Decimal

from gpulease.domain.event import Fact
from gpulease.domain.hand_over import to_be_tried_anew
from gpulease.domain.lease import (
    Attempt,
    Lease,
    LeaseState,
    PauseMode,
    PauseProgress,
    Reason,
    ResumeMode,
    ResumeProgress,
)
from gpulease.domain.pause import (
    BUDGET_NOTICE,
    RELEASE_NOTICE,
    RESUME_NOTICE,
    change,
    pausing,
    resting,
    seen_started,
    seen_stopped,
    without,
)
from gpulease.domain.policy import Capacity
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event, moved, to_release

START_PATIENCE = timedelta(minutes=2)
"""How long a start that is refused for lack of capacity is tried again, unless its owner gives more."""
START_AGAIN_AFTER = timedelta(seconds=30)
FALLS_BACK_AFTER = timedelta(seconds=15)
"""For the provider's reads to show the start."""
LONGEST_PATIENCE = timedelta(minutes=10)
"""For a machine that is still stopping, and for a provider that does not answer."""


def request_resume(
    record: LeaseRecord,
    *,
    now: datetime,
    detail: str = "",
    on_no_capacity: Capacity | None = None,
    patience: timedelta = START_PATIENCE,
) -> Change:
    """Paused → resuming, with the stopped machine or with a new one. Raises ValueError in other states."""
    lease = record.lease
    if lease.state is not LeaseState.PAUSED:
        raise ValueError(f"lease {lease.id} is {lease.state}")
    mode = ResumeMode.START if kept_machine(record) is not None else ResumeMode.NEW
    progress = ResumeProgress(
        mode=mode,
        requested_at=now,
        give_up_at=now + patience,
        on_no_capacity=on_no_capacity or lease.rules.on_no_capacity,
        attempts_before=len(lease.attempts),
    )
    notices = lease.notices
    for over in (RESUME_NOTICE, RELEASE_NOTICE, BUDGET_NOTICE):
        notices = without(notices, over)
    resuming = moved(
        lease,
        LeaseState.RESUMING,
        now,
        epoch=lease.epoch + 1,
        restarts=0,
        resume=progress,
        notices=notices,
        waiting_for="its machine to start" if mode is ResumeMode.START else "its first offer",
        next_check_at=now + CHECK_WORKFLOW_EVERY,
    )
    text = f"resuming {lease.name}" + (f" ({detail})" if detail else "")
    told = event(lease.id, now, "resume_requested", text[:600], mode=mode.value)
    return change(resuming, lease.epoch, (told,))


def kept_machine(record: LeaseRecord) -> Resource | None:
    """The machine that a pause has stopped; None = it was given back."""
    held = [m for m in record.of_kind(ResourceKind.INSTANCE) if m.state is ResourceState.HELD]
    current = record.lease.attempt
    of_attempt = [m for m in held if current is not None and m.attempt == current.number]
    return next(iter(of_attempt or held), None)


def asked_to_start(record: LeaseRecord, now: datetime) -> Change:
    """Written before each start call, so that twins of a step send one, and at most one goes out in 30 s."""
    lease, progress = record.lease, _resume(record)
    asked = progress.model_copy(
        update={
            "tries": progress.tries + 1,
            "last_asked_at": now,
            "next_try_at": now + START_AGAIN_AFTER,
            "refused_for": "",
        }
    )
    return change(lease.model_copy(update={"resume": asked, "updated_at": now}), lease.epoch)


def started(
    record: LeaseRecord, machine: Resource, now: datetime, *, words: str, price: Decimal, time_to_boot: timedelta
) -> Change:
    """The start was accepted, or is seen: its time to become ready begins, and so does its full price."""
    lease, progress = record.lease, _resume(record)
    since = progress.last_asked_at or now
    attempts = tuple(
        a.model_copy(update={"resumed_at": since, "ready_deadline": now + time_to_boot, "network_deadline": None})
        if a.number == machine.attempt
        else a
        for a in lease.attempts
    )
    changed = lease.model_copy(
        update={
            "attempts": attempts,
            "resume": progress.model_copy(update={"started_at": now, "last_error": ""}),
            "waiting_for": "the machine to become ready",
            "updated_at": now,
        }
    )
    told = event(lease.id, now, "instance_starting", f"{machine.kind} {machine.provider_id} starts again")
    return change(changed, lease.epoch, (told,), (seen_started(machine, since, words, price),))


def may_have_fallen_back(progress: ResumeProgress, now: datetime) -> bool:
    """Whether a machine that is seen stopped after an accepted start is at rest: right after the call it may be shown
    as it was before."""
    asked = progress.last_asked_at or progress.started_at
    return progress.started_at is not None and (asked is None or now - asked >= FALLS_BACK_AFTER)


def fell_back(
    record: LeaseRecord, machine: Resource, now: datetime, reason: Reason, *, words: str, stopped_price: Decimal
) -> Change:
    """A start that was accepted came to nothing, the machine is stopped: the same as a start that was refused (C38)."""
    lease, progress = record.lease, _resume(record)
    why = f"the start was accepted, then the provider showed {words}"
    refused = progress.model_copy(update={"started_at": None, "refused_for": reason.value, "last_error": why[:300]})
    waiting = f"capacity for {machine.plan}" if reason is Reason.NO_CAPACITY else "its machine to start"
    changed = lease.model_copy(update={"resume": refused, "waiting_for": waiting, "updated_at": now})
    text = f"{machine.kind} {machine.provider_id} did not start: {reason} ({words})"
    told = event(lease.id, now, "start_fell_back", text, "warning", resource_id=machine.id, reason=reason.value)
    return change(changed, lease.epoch, (told,), (seen_stopped(machine, now, words, stopped_price),))


def new_machine(record: LeaseRecord, now: datetime, reason: Reason, why: str) -> Change:
    """Its owner wants a fresh machine where the stopped one cannot be started; that one is kept until the new one
    runs. A decision of its own: what was started for the old way is fenced off."""
    lease, progress = record.lease, _resume(record)
    attempts = tuple(
        a.model_copy(update={"ended_at": now, "reason": reason, "detail": why[:500]}) if a.open else a
        for a in lease.attempts
    )
    changed = lease.model_copy(
        update={
            "attempts": attempts,
            "epoch": lease.epoch + 1,
            "restarts": 0,
            "resume": progress.model_copy(
                update={"mode": ResumeMode.NEW, "attempts_before": len(attempts), "last_error": why[:300]}
            ),
            "waiting_for": "its first offer",
            "updated_at": now,
            "next_check_at": now + CHECK_WORKFLOW_EVERY,
        }
    )
    text = f"{reason}: a new machine is looked for; the stopped one is kept until that runs ({why})"
    told = event(lease.id, now, "machine_replaced", text[:600], "warning", reason=reason.value)
    return change(changed, lease.epoch, (told,))


def back_to_paused(record: LeaseRecord, now: datetime, reason: Reason, why: str) -> Change:
    """Resuming → paused with a notice (law 12). What a new machine's tries have left is given back; the old one stays.

    Raises ValueError where a machine of it runs: that one has to be stopped (`stopped_again`).
    """
    lease, resume = record.lease, _resume(record)
    kept = kept_before(record)
    if kept is not None and may_run(record):
        raise ValueError(f"lease {lease.id}: {kept.id} may run")
    attempts = tuple(_after_failed_resume(a, kept, resume, now, reason) for a in lease.attempts)
    left = tuple(
        m for r in record.resources if r.attempt > resume.attempts_before and (m := to_release(r, now)) is not r
    )
    pause = lease.pause or PauseProgress(mode=PauseMode.KEEP_CACHE, reason=reason, requested_at=now)
    noted = lease.model_copy(
        update={
            "attempts": attempts,
            "epoch": lease.epoch + 1,
            "pause": pause.model_copy(update={"resume_failed": reason, "resume_failed_at": now}),
            "notices": (*without(lease.notices, RESUME_NOTICE), f"{RESUME_NOTICE}: {reason} ({why})"[:500]),
        }
    )
    done = resting(LeaseRecord(noted, record.resources), now, since=lease.paused_at)
    text = f"{lease.name} stays paused: {reason} ({why}); nothing of it was deleted"
    facts: dict[str, Fact] = {"reason": reason.value}
    told = event(lease.id, now, "resume_failed", text[:600], "warning", **facts)
    return change(done, lease.epoch, (told,), left)


def kept_before(record: LeaseRecord) -> Resource | None:
    """The machine from before the resume, kept while a new one is tried; None = the pause had given it back."""
    before = _resume(record).attempts_before
    held = (m for m in record.of_kind(ResourceKind.INSTANCE) if m.state is ResourceState.HELD)
    return next((m for m in held if m.attempt <= before), None)


def _after_failed_resume(
    attempt: Attempt, kept: Resource | None, resume: ResumeProgress, now: datetime, reason: Reason
) -> Attempt:
    if kept is not None and attempt.number == kept.attempt:
        # Open again: it is the one that the next resume starts.
        volume = to_be_tried_anew(attempt.volume)
        return attempt.model_copy(update={"ended_at": None, "reason": None, "detail": "", "volume": volume})
    if attempt.open and attempt.number > resume.attempts_before:
        return attempt.model_copy(update={"ended_at": now, "reason": attempt.reason or reason})
    return attempt


def stopped_again(record: LeaseRecord, now: datetime, reason: Reason, why: str) -> Change:
    """Resuming → pausing: the machine was started and did not become ready. It is stopped, never deleted (law 12)."""
    resume = _resume(record)
    kept = kept_before(record)
    attempts = tuple(_after_failed_resume(a, kept, resume, now, reason) for a in record.lease.attempts)
    noted = record.lease.model_copy(update={"attempts": attempts})
    machines = tuple(_as_running(m, noted, resume.last_asked_at or now) if m is kept else m for m in record.resources)
    stopping = pausing(LeaseRecord(noted, machines), now, PauseMode.STOP, reason, why, None)
    if stopping.lease is None or stopping.lease.pause is None:
        raise ValueError("a pause without its progress")
    notice = f"{RESUME_NOTICE}: {reason} ({why}); it is stopped again, nothing was deleted"[:500]
    lease = stopping.lease.model_copy(
        update={
            "notices": (*stopping.lease.notices, notice),
            "pause": stopping.lease.pause.model_copy(update={"resume_failed": reason, "resume_failed_at": now}),
        }
    )
    told = event(lease.id, now, "resume_failed", notice[:600], "warning", reason=reason.value)
    changed = tuple(m for m in machines if m is not record.resource(m.id))
    bare = tuple(m for m in stopping.resources if all(m.id != c.id for c in changed))
    changed = tuple(m.model_copy(update={"address": ""}) for m in changed)
    return Change(lease.id, lease, (*changed, *bare), (told, *stopping.events), stopping.epoch)


def _as_running(machine: Resource, lease: Lease, since: datetime) -> Resource:
    """As it may be: at its full price until it is seen stopped."""
    price = next(a.offer.price_per_hour_usd for a in lease.attempts if a.number == machine.attempt)
    return seen_started(machine, since, machine.status, price)


def gives_up_at(progress: ResumeProgress) -> datetime:
    """Until when a start is tried: as long as its owner waits for capacity, and longer for what is no refusal."""
    if progress.refused_for == Reason.NO_CAPACITY:
        return progress.give_up_at
    return max(progress.give_up_at, progress.requested_at + LONGEST_PATIENCE)


def may_run(record: LeaseRecord) -> bool:
    """Whether the kept machine runs or may have been started by a call whose answer is not known."""
    kept, progress = kept_before(record), _resume(record)
    if kept is None:
        return False
    return kept.stopped_at is None or (progress.tries > 0 and not progress.refused_for)


def given_up_resuming(record: LeaseRecord, now: datetime, reason: Reason, why: str) -> Change:
    """What ends a resume that came to nothing: paused, or stopped again first where the machine may run."""
    if may_run(record):
        return stopped_again(record, now, reason, why)
    return back_to_paused(record, now, reason, why)


def now_running(record: LeaseRecord, now: datetime, text: str) -> Change:
    """Provisioning or resuming → running. A machine that was kept while a new one was made is given back now."""
    lease = record.lease
    running = moved(
        lease,
        LeaseState.RUNNING,
        now,
        running_at=lease.running_at or now,
        ready_at=now,
        pause=None,
        resume=None,
        paused_at=None,
        waiting_for="",
        # The next check knows the limits that apply, and when the one after it has to come.
        next_check_at=now + CHECK_WORKFLOW_EVERY,
    )
    replaced: tuple[Resource, ...] = ()
    if lease.resume is not None and lease.resume.mode is ResumeMode.NEW:
        before = lease.resume.attempts_before
        replaced = tuple(m for r in record.resources if r.attempt <= before and (m := to_release(r, now)) is not r)
    return change(running, lease.epoch, (event(lease.id, now, "running", text),), replaced)


def counted_attempts(lease: Lease) -> tuple[Attempt, ...]:
    """The attempts that count for a lease's limits: those of this resume, or all."""
    return tuple(a for a in lease.attempts if lease.resume is None or a.number > lease.resume.attempts_before)


def _resume(record: LeaseRecord) -> ResumeProgress:
    if record.lease.resume is None:
        raise ValueError(f"lease {record.lease.id} is not being resumed")
    return record.lease.resume
