"""Start the stopped machine, with patience for lack of capacity; or go on with a new one where that is wanted.

Each call is written down before it is sent, so twins send one, and at most one goes out in half a minute. What became
of it is read, not concluded: cut off anywhere, the next turn looks first.
"""

from datetime import datetime, timedelta
from math import ceil

from gpulease.domain.agent import for_start
from gpulease.domain.cache import to_leave, volume_of
from gpulease.domain.hand_over import needs_volume, seen_by_resume, unseen
from gpulease.domain.lease import LeaseState, Reason, ResumeMode, ResumeProgress
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.policy import Capacity
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.resume import asked_to_start, given_up_resuming, gives_up_at, kept_machine, new_machine, started
from gpulease.domain.transitions import event
from gpulease.errors import (
    CapacityRefused,
    ProviderAuthFailed,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.pause_facts import offer_of_machine
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of, with_attempt
from gpulease.steps.cache import cache_of
from gpulease.steps.observing import throttled_pause_seconds
from gpulease.steps.pausing import decided, gone
from gpulease.steps.starting import go_on, start_release, workflow_name

OUTCOMES = frozenset(
    {"started", "waiting", "without_volume", "new_machine", "paused", "lost", "handed_over", "superseded"}
)
HAND_OVER_AFTER = timedelta(hours=6)
AUTH_PAUSE_SECONDS = 30
FINAL = frozenset({Reason.QUOTA_EXCEEDED, Reason.REJECTED})
"""Refusals that do not pass by waiting."""
STARTING = (Condition.PENDING, Condition.READY)


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.RESUMING)
    progress = record.lease.resume
    if progress is None:
        return Outcome("waiting")
    if progress.mode is ResumeMode.NEW:
        return _new_machine(record, deps)
    if command.started_at is not None and deps.clock.now() - command.started_at > HAND_OVER_AFTER:
        go_on(record, "resume", deps)
        return Outcome("handed_over")
    if progress.started_at is not None:
        return _cache_first(record, deps) or Outcome("started")
    machine = kept_machine(record)
    if machine is None:
        decided(given_up_resuming(record, deps.clock.now(), Reason.LOST, "its machine was given back"), deps)
        return Outcome("paused")
    return _turn(record, progress, machine, deps)


def _new_machine(record: LeaseRecord, deps: Deps) -> Outcome:
    lease = record.lease
    deps.workflows.start("provision", workflow_name(lease, "provision"), lease.id, lease.epoch)
    return Outcome("new_machine")


def _turn(record: LeaseRecord, progress: ResumeProgress, machine: Resource, deps: Deps) -> Outcome:
    """Look, then ask when it is time to."""
    provider, now = deps.providers.get(machine.account), deps.clock.now()
    over = now >= gives_up_at(progress) or progress.refused_for in FINAL
    try:
        seen = provider.observe(ref_of(machine))
    except ProviderError as error:
        if over:
            return _give_up(record, machine, _reason(error.reason), str(error), deps)
        return _not_now(machine, error, deps)
    if isinstance(seen, Absent):
        return Outcome("lost") if gone(record, machine, provider, deps) else Outcome("waiting", 5)
    record = _with_volume_as_shown(record, progress, seen, deps)
    if seen.condition in STARTING:
        if not progress.tries:
            # Somebody else has started it: what was told before that is as old as after a start of ours.
            _forget_old_reports(record, machine, deps)
        return _started(record, machine, seen.words, provider, deps)
    if over:
        why = progress.last_error or f"the provider shows {seen.words}"
        return _give_up(record, machine, _reason(progress.refused_for), why, deps)
    cache_first = _cache_first(record, deps)
    if cache_first is not None:
        return cache_first
    if progress.next_try_at is not None and now < progress.next_try_at:
        return Outcome("waiting", _until(progress, now))
    return _ask(record, machine, provider, deps)


def _with_volume_as_shown(record: LeaseRecord, progress: ResumeProgress, seen: Observation, deps: Deps) -> LeaseRecord:
    """The lease with its cache's volume noted as not attached where the machine is shown without it.

    Somebody may have detached it by hand from a machine that lay stopped for weeks, and started without it the machine
    would write to the directories below its mounts. The look that precedes a start tells it, so it costs no call.
    """
    lease = record.lease
    attempt = lease.attempt
    if attempt is None or attempt.volume is None or attempt.volume.attached_at is None or seen.volume_ids is None:
        return record
    if seen_by_resume(attempt.volume, progress):
        # Just read from the volume itself, which knows earlier than the machine.
        return record
    cache = cache_of(lease, deps)
    volume = volume_of(cache) if cache is not None else None
    if volume is None or volume.provider_id in seen.volume_ids:
        return record
    now = deps.clock.now()
    text = f"its cache's volume {volume.provider_id} is not at the stopped machine any more; it is attached again"
    told = event(lease.id, now, "cache_not_attached", f"{lease.name}: {text}", "warning", resource_id=volume.id)
    changed = with_attempt(lease, attempt.model_copy(update={"volume": unseen(attempt.volume)}))
    deps.ledger.commit(Change(lease_id=lease.id, lease=changed, events=(told,), epoch=lease.epoch))
    return deps.ledger.load(lease.id)


def _cache_first(record: LeaseRecord, deps: Deps) -> Outcome | None:
    """Where its cache's volume does not hang at the machine, that comes before the start: nothing is billed while it is
    waited for, and the agent of a machine that boots again expects it soon. None = it hangs there, or there is none."""
    attempt = record.lease.attempt
    if attempt is None or not needs_volume(attempt):
        return None
    if any(r.state is ResourceState.RELEASING for r in record.resources) or to_leave(record):
        # A new machine that was tried in vain may have it still, and what gave that back ended with the pause.
        start_release(record, deps, "cache")
    return Outcome("without_volume")


def _until(progress: ResumeProgress, now: datetime) -> int:
    """The pause before the next look: half a minute after the last call, and not beyond the patience."""
    wait = (min(progress.next_try_at or now, gives_up_at(progress)) - now).total_seconds()
    # After a call whose answer was lost it may be starting already.
    return max(1, ceil(wait if progress.refused_for else min(wait, 5)))


def _reason(text: str) -> Reason:
    return Reason(text) if text in set(Reason) else Reason.NOT_READY_IN_TIME


def _ask(record: LeaseRecord, machine: Resource, provider: Provider, deps: Deps) -> Outcome:
    deps.ledger.commit(asked_to_start(record, deps.clock.now()))
    record = deps.ledger.load(record.lease.id)
    progress = record.lease.resume
    if progress is None:
        return Outcome("waiting")
    _forget_old_reports(record, machine, deps)
    try:
        provider.start(ref_of(machine))
    except ProviderError as error:
        return _failed(record, progress, machine, error, deps)
    return _started(record, machine, "starting", provider, deps)


def _forget_old_reports(record: LeaseRecord, machine: Resource, deps: Deps) -> None:
    """Also the wish that it saves its cache; and its token opens again, where new machines had others meanwhile."""
    agent = deps.agents.load(record.lease.id)
    fresh = for_start(agent, machine.attempt) if agent is not None else None
    if fresh is not None and fresh != agent:
        deps.agents.save(fresh)


def _started(record: LeaseRecord, machine: Resource, words: str, provider: Provider, deps: Deps) -> Outcome:
    offer = offer_of_machine(record.lease, machine)
    change = started(
        record,
        machine,
        deps.clock.now(),
        words=words,
        price=offer.price_per_hour_usd,
        time_to_boot=timedelta(seconds=provider.ready_deadline_seconds(offer)),
    )
    deps.ledger.commit(change)
    return _cache_first(deps.ledger.load(record.lease.id), deps) or Outcome("started", 5)


def _failed(
    record: LeaseRecord, progress: ResumeProgress, machine: Resource, error: ProviderError, deps: Deps
) -> Outcome:
    """A start that was refused, or whose answer is not known: then the next look tells."""
    now = deps.clock.now()
    unknown = isinstance(error, ProviderUnavailable | ProviderUnexpected)
    progress = progress.model_copy(
        update={"refused_for": "" if unknown else error.reason, "last_error": error.facts.message[:300]}
    )
    waiting = f"capacity for {machine.plan}" if isinstance(error, CapacityRefused) else record.lease.waiting_for
    lease = record.lease.model_copy(update={"resume": progress, "waiting_for": waiting, "updated_at": now})
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, epoch=lease.epoch))
    final = isinstance(error, ProviderRejected) and not isinstance(error, CapacityRefused)
    if final or now >= gives_up_at(progress):
        record = deps.ledger.load(lease.id)
        return _give_up(record, machine, _reason(error.reason), error.facts.message, deps)
    if isinstance(error, ProviderAuthFailed | ProviderThrottled):
        return _not_now(machine, error, deps)
    return Outcome("waiting", _until(progress, now))


def _not_now(machine: Resource, error: ProviderError, deps: Deps) -> Outcome:
    if isinstance(error, ProviderAuthFailed):
        alarms.auth_failed(deps, machine.account, error)
        return Outcome("waiting", AUTH_PAUSE_SECONDS)
    if isinstance(error, ProviderThrottled):
        return Outcome("waiting", throttled_pause_seconds(error, machine.id))
    return Outcome("waiting", 10)


def _give_up(record: LeaseRecord, machine: Resource, reason: Reason, why: str, deps: Deps) -> Outcome:
    """A new machine where its owner wants that, else paused as before (law 12)."""
    progress, now = record.lease.resume, deps.clock.now()
    replaceable = reason in (Reason.NO_CAPACITY, Reason.QUOTA_EXCEEDED)
    if progress is not None and progress.on_no_capacity is Capacity.REPLACE and replaceable:
        decided(new_machine(record, now, reason, why), deps)
        return Outcome("new_machine")
    decided(given_up_resuming(record, now, reason, why), deps)
    return Outcome("paused")
