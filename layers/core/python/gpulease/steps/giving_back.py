"""One turn of giving back one resource: look or delete, write down what was learned, say how long to pause.

Nothing that a provider answers ends the release. Only absence does, read twice by id and by marker from calls that
succeeded; every error is noted and the next turn comes (laws 4 and 5).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from gpulease.domain.event import Event, Fact
from gpulease.domain.flush import open_flush
from gpulease.domain.gate import Lane
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import (
    NextRelease,
    absent_once_more,
    delete_sent,
    is_proven_gone,
    may_be_hidden,
    may_close_intent,
    needs_alarm,
    next_to_release,
    pause_seconds,
    released,
    seen_again,
    should_delete_now,
)
from gpulease.domain.resource import CREATED, ReleaseProgress, Resource, ResourceKind, ResourceState
from gpulease.domain.transitions import event
from gpulease.errors import (
    InputInvalid,
    LedgerUnavailable,
    ProviderAuthFailed,
    ProviderBusy,
    ProviderError,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current, record_fact, ref_of
from gpulease.steps.facts import adopt
from gpulease.steps.observing import Turn, listed, take_turn_in
from gpulease.steps.staying import look_again


@dataclass(frozen=True, slots=True)
class Learned:
    """What one turn found out about a resource."""

    absent: bool = False
    hidden: bool = False
    """Not shown, and too fresh for that to mean anything. A delete that finds nothing means nothing then, either."""
    seen: Observation | None = None
    delete_sent: bool = False
    delete_accepted: bool = False
    delete_unclear: bool = False
    """Its answer was lost, so it may have been carried out."""
    error: str = ""
    error_reason: str = ""
    error_status: int = 0
    """The provider's own code; 0 = no answer."""
    retry_after_seconds: float = 0.0
    adopted: bool = False
    never_appeared: bool = False
    auth_failed: ProviderAuthFailed | None = None


def take_turns(command: StepCommand, deps: Deps, kind: ResourceKind) -> Outcome:
    """Turns of what there is of this kind, as many as one call may take."""
    return look_again(lambda: _take_turn(command, deps, kind), deps, again="done")


def _take_turn(command: StepCommand, deps: Deps, kind: ResourceKind) -> Outcome:
    record = load_current(command, deps)
    todo = next_to_release(record, deps.clock.now())
    resource = todo.resource
    if resource is None or resource.kind is not kind or resource.release is None:
        return _until_next(record, todo, kind)
    try:
        provider = deps.providers.get(resource.account)
    except InputInvalid as error:
        # Taken out of the settings too early. Whatever else the lease has must not wait for it.
        learned = Learned(error=str(error), error_reason="account_not_configured")
    else:
        turn = _turn(resource.release, provider, deps)
        if turn is not None and turn.wait_seconds:
            record_fact(deps, command.lease_id, resource.id, partial(_queued, slot=turn.slot))
            return Outcome("done", turn.wait_seconds)
        learned = _learn(resource, resource.release, provider, deps)
    if learned.auth_failed is not None:
        alarms.auth_failed(deps, resource.account, learned.auth_failed)
    alarm = not (learned.absent or learned.never_appeared) and needs_alarm(resource.release, deps.clock.now())
    if alarm:
        # Told before it is noted as told: cut off in between, it is told twice and not never.
        alarms.release_stuck(deps, resource, learned.error_reason or "still_there", learned.error[:300])
    record_fact(deps, command.lease_id, resource.id, partial(_write, deps=deps, learned=learned, alarm=alarm))
    # Until the next turn of any of them: one that is stuck, and asked seldom, must not slow down the others.
    record = deps.ledger.load(command.lease_id)
    return _until_next(record, next_to_release(record, deps.clock.now()), kind)


def _until_next(record: LeaseRecord, todo: NextRelease, kind: ResourceKind) -> Outcome:
    """The pause before the next turn, which is another step's where nothing of this kind is left, or an agent that
    saves the cache is to be looked at: whoever stays would come to its machine's turn without having heard it."""
    left = any(r.kind is kind and r.state is ResourceState.RELEASING for r in record.resources)
    return Outcome("done", max(1, todo.wait_seconds), may_stay=left and open_flush(record.lease) is None)


def _turn(progress: ReleaseProgress, provider: Provider, deps: Deps) -> Turn | None:
    """The resource's turn in the account's queue; None = the queue cannot be read, and giving back does not wait."""
    try:
        return take_turn_in(deps, provider, Lane.RELEASE, progress.slot_at, calls=2 if progress.looks else 1)
    except LedgerUnavailable as error:
        deps.log.warning("queue_not_read", account=provider.account, reason=str(error))
        return None


def _queued(record: LeaseRecord, resource: Resource, *, slot: datetime) -> Change | None:
    if resource.state is not ResourceState.RELEASING or resource.release is None or resource.release.slot_at == slot:
        return None
    progress = resource.release.model_copy(update={"slot_at": slot, "next_try_at": slot})
    return Change(lease_id=record.lease.id, resources=(resource.model_copy(update={"release": progress}),))


def _learn(resource: Resource, progress: ReleaseProgress, provider: Provider, deps: Deps) -> Learned:
    """The provider calls of one turn. Raises nothing of a provider's."""
    now = deps.clock.now()
    learned = Learned()
    try:
        if not resource.provider_id:
            return _search(resource, provider, deps)
        if progress.tries or progress.absences:
            # The first turn deletes without looking: the machine is billed while we look.
            seen = _still_listed(resource, progress, provider, deps) or provider.observe(ref_of(resource))
            if isinstance(seen, Absent):
                learned = _confirm_absence(resource, provider, deps)
                if seen.ended or not (learned.absent and _may_be_hidden(resource, provider, now)):
                    return learned
                learned = Learned(hidden=True)
            else:
                learned = Learned(seen=seen)
        deleting = learned.seen is not None and learned.seen.condition is Condition.DELETING
        if learned.hidden or should_delete_now(progress, now, seen_deleting=deleting):
            learned = replace(learned, delete_sent=True)
            provider.destroy(ref_of(resource))
            learned = replace(learned, delete_accepted=not learned.hidden)
    except ProviderError as error:
        refused = isinstance(error, ProviderBusy)
        return replace(
            learned,
            delete_unclear=learned.delete_sent
            and not learned.hidden
            and isinstance(error, ProviderUnavailable | ProviderUnexpected),
            error=str(error) if not refused else error.facts.message,
            error_reason=error.reason,
            error_status=error.facts.status,
            retry_after_seconds=error.facts.retry_after_seconds,
            auth_failed=error if isinstance(error, ProviderAuthFailed) else None,
        )
    return learned


def _still_listed(resource: Resource, progress: ReleaseProgress, provider: Provider, deps: Deps) -> Observation | None:
    """The resource on the account's list, which shows that it is there and never that it is not."""
    if progress.absences:
        return None
    found = listed(deps, provider, resource, after=progress.last_taken_at)
    return next((seen for seen in found if seen.provider_id == resource.provider_id), None)


def _first_shown(resource: Resource, learned: Learned) -> bool:
    """Whether this is the first read ever that shows it, and not on its way out."""
    shown = learned.seen is not None and learned.seen.condition is not Condition.DELETING
    return shown and resource.status == CREATED


def _may_be_hidden(resource: Resource, provider: Provider, now: datetime) -> bool:
    return may_be_hidden(
        resource,
        now,
        create_timeout_seconds=provider.capabilities.create_timeout_seconds,
        window_seconds=provider.visibility_window_seconds,
    )


def _search(resource: Resource, provider: Provider, deps: Deps) -> Learned:
    """An intent whose create answer we never got: found under its marker, or closed after the window."""
    found = provider.find(ref_of(resource))
    if found:
        adopt(deps, resource, found)
        return Learned(adopted=True)
    closable = may_close_intent(
        resource,
        deps.clock.now(),
        create_timeout_seconds=provider.capabilities.create_timeout_seconds,
        window_seconds=provider.visibility_window_seconds,
    )
    return Learned(never_appeared=closable)


def _confirm_absence(resource: Resource, provider: Provider, deps: Deps) -> Learned:
    """Absent by id. By marker too? Others under the same marker are duplicates, and are taken up."""
    found = provider.find(ref_of(resource))
    others = [seen for seen in found if seen.provider_id != resource.provider_id]
    if others:
        adopt(deps, resource, others)
    if len(found) > len(others):
        return Learned(seen=found[0])
    return Learned(absent=True)


def _write(
    record: LeaseRecord, resource: Resource, *, deps: Deps, learned: Learned, alarm: bool = False
) -> Change | None:
    now = deps.clock.now()
    progress = resource.release
    if resource.state is not ResourceState.RELEASING or progress is None:
        return None
    if learned.never_appeared and not resource.provider_id:
        return _close(record, resource, now, "never appeared")
    if learned.absent:
        progress = absent_once_more(progress, now)
        if is_proven_gone(progress):
            return _close(record, resource.model_copy(update={"release": progress}), now, "gone")
    elif learned.seen is not None:
        progress = seen_again(progress)
    progress = progress.model_copy(
        update={
            "looks": progress.looks + 1,
            "slot_at": None,
            "last_error": learned.error[:300],
        }
    )
    if learned.hidden or _first_shown(resource, learned):
        # An earlier delete may have found nothing there: it is not one that was carried out.
        progress = progress.model_copy(update={"last_taken_at": None, "repeats": 0})
    if learned.delete_sent:
        progress = delete_sent(progress, now, accepted=learned.delete_accepted, unclear=learned.delete_unclear)
    alarm = alarm and progress.alarmed_at is None
    pause = 1.0 if learned.adopted else max(_pause(progress, learned, now), learned.retry_after_seconds)
    progress = progress.model_copy(
        update={
            "next_try_at": now + timedelta(seconds=pause),
            "alarmed_at": now if alarm else progress.alarmed_at,
        }
    )
    updated = resource.model_copy(
        update={"release": progress, "status": learned.seen.words if learned.seen else resource.status}
    )
    return Change(
        lease_id=record.lease.id, resources=(updated,), events=tuple(_told(resource, progress, learned, now, alarm))
    )


def _pause(progress: ReleaseProgress, learned: Learned, now: datetime) -> float:
    if learned.absent or learned.delete_accepted:
        return 5.0
    return pause_seconds(progress, now)


def _told(resource: Resource, progress: ReleaseProgress, learned: Learned, now: datetime, alarm: bool) -> "list[Event]":
    name = f"{resource.kind} {resource.provider_id or resource.id}"
    facts: dict[str, Fact] = {
        **_place(resource),
        "reason": learned.error_reason or "still_there",
        **({"status": learned.error_status} if learned.error_status else {}),
    }
    events = []
    if learned.delete_accepted:
        text = f"delete of {name} accepted (try {progress.tries}); still billed until it is proven gone"
        events.append(event(resource.lease_id, now, "delete_accepted", text, resource_id=resource.id))
    elif learned.error and (resource.release is None or learned.error[:300] != resource.release.last_error):
        text = f"{name} is not given back yet: {learned.error}"
        events.append(event(resource.lease_id, now, "delete_refused", text[:600], "warning", **facts))
    if alarm:
        text = f"{name} has not been given back for 10 minutes; it is still billed, and tried again for ever"
        events.append(event(resource.lease_id, now, "release_stuck", text, "error", **facts))
    return events


def _close(record: LeaseRecord, resource: Resource, now: datetime, note: str) -> Change:
    text = f"{resource.kind} {resource.provider_id or resource.id}: {note}"
    told = event(resource.lease_id, now, f"{resource.kind}_released", text, resource_id=resource.id)
    return Change(lease_id=record.lease.id, resources=(released(resource, now, note),), events=(told,))


def _place(resource: Resource) -> dict[str, Fact]:
    return {
        "provider": resource.provider,
        "region": resource.region,
        "resource_id": resource.id,
        "provider_id": resource.provider_id,
    }
