"""The stopped machine of a lease hands its cache's volume over to the one that replaces it.

What may happen between any two effects here: the wish is written before anything is asked for, each detach before it is
sent, and what came of it is read. Cut off anywhere, the next turn looks first; given up on, the old machine may or may
not have the volume, and a resume with it looks too (`AttachVolume`).

Invariants: detached is only from the lease's own machine, and only while that is seen stopped; never by force. The old
machine has left when the volume was read as free twice. Nothing that costs money is asked for before.
"""

from datetime import datetime, timedelta

from gpulease.domain.cache import FREE_LOOKS_APART, is_free, looked_free, volume_of
from gpulease.domain.event import Event
from gpulease.domain.hand_over import PATIENCE, asked_to_detach, refused_to_detach, wished
from gpulease.domain.lease import Attempt, Reason, VolumeAttachment
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.pause import seen_started
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.transitions import event
from gpulease.errors import (
    ProviderAuthFailed,
    ProviderError,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.pause_facts import offer_of_machine
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, fail_attempt, ref_of, with_attempt
from gpulease.steps.observing import may_change, may_read, throttled_pause_seconds

LOOK_PAUSE_SECONDS = 4
TRY_PAUSE_SECONDS = 8
AUTH_PAUSE_SECONDS = 30
STALE_AFTER = timedelta(seconds=20)
"""A detach so long after it was written down is not sent. With the time of a call that is less than DETACH_AFTER, for
which a machine that gets the volume back does not trust what is shown."""


def hand_over(record: LeaseRecord, kept: Resource, cache: LeaseRecord, deps: Deps) -> Outcome | None:
    """One look at the volume, and what it leads to. None = the old machine has left it; the lease's row was written."""
    attempt, now = record.lease.attempt, deps.clock.now()
    giving = next((a for a in record.lease.attempts if a.number == kept.attempt), None)
    volume = volume_of(cache)
    if attempt is None or giving is None or giving.volume is None:
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    if volume is None or volume.state is not ResourceState.HELD:
        return _fail(record, Reason.CACHE_FAILED, "the cache's volume is gone", deps)
    late = now - max(attempt.started_at, giving.volume.hand_over_at or attempt.started_at) >= PATIENCE
    provider = deps.providers.get(volume.account)
    if not late and not may_read(deps, provider):
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    try:
        seen = provider.observe(ref_of(volume))
        holds = isinstance(seen, Observation) and seen.attached_to == kept.provider_id
        machine = provider.observe(ref_of(kept)) if holds else None
    except ProviderError as error:
        return _not_read(record, volume, error, deps, late=late)
    if isinstance(machine, Observation) and machine.condition in (Condition.PENDING, Condition.READY):
        return _runs(record, kept, machine, deps)
    if giving.volume.hand_over_at is None:
        record, giving = _wish(record, giving, giving.volume, cache, now, deps)
        # Patience with the volume begins when it is first asked for, however long the workflow stood still before.
        late = False
    if giving.volume is None:
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    if _is_free(seen):
        return _looked_free(record, giving, giving.volume, cache, deps)
    if late:
        return _fail(record, Reason.CACHE_BUSY, f"{_where(seen, kept)} for {_minutes()} minutes", deps)
    if not isinstance(machine, Observation) or machine.condition is not Condition.STOPPED or kept.stopped_at is None:
        # Not shown, at another machine, or its own machine is not at rest (yet): nothing is taken from there (C36).
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    if giving.volume.next_try_at is not None and now < giving.volume.next_try_at:
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    if not may_change(deps, provider):
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    return _detach(record, giving, giving.volume, volume, kept, provider, deps)


def _is_free(seen: Observation | Absent) -> bool:
    return isinstance(seen, Observation) and not seen.attached_to and seen.condition is Condition.READY


def _wish(
    record: LeaseRecord, giving: Attempt, attachment: VolumeAttachment, cache: LeaseRecord, now: datetime, deps: Deps
) -> tuple[LeaseRecord, Attempt]:
    """Write down that the volume is to leave the old machine: from here on where it is must be seen."""
    text = f"cache {cache.lease.name}: its stopped machine hands the volume over to a new one"
    told = event(record.lease.id, now, "cache_handing_over", text)
    waiting = f"cache {cache.lease.name}, which its stopped machine hands over"
    return _write(record, giving, wished(attachment, now), deps, told, waiting_for=waiting)


def _looked_free(
    record: LeaseRecord, giving: Attempt, attachment: VolumeAttachment, cache: LeaseRecord, deps: Deps
) -> Outcome | None:
    now = deps.clock.now()
    if attachment.free_looks and attachment.next_try_at is not None and now < attachment.next_try_at:
        # Too close to the last one to be a second opinion.
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    looked = looked_free(attachment, now)
    if not is_free(looked):
        _write(record, giving, looked, deps)
        return Outcome("waiting", int(FREE_LOOKS_APART.total_seconds()))
    text = f"cache {cache.lease.name}: its stopped machine has handed the volume over"
    told = event(record.lease.id, now, "cache_handed_over", text, tries=attachment.detach_tries)
    _write(record, giving, looked.model_copy(update={"left": True}), deps, told)
    return None


def _detach(
    record: LeaseRecord,
    giving: Attempt,
    attachment: VolumeAttachment,
    volume: Resource,
    kept: Resource,
    provider: Provider,
    deps: Deps,
) -> Outcome:
    """Write that it is asked for, ask once, and write down a refusal. What came of it is seen by the next look."""
    asked = asked_to_detach(attachment, deps.clock.now())
    record, giving = _write(record, giving, asked, deps)
    if deps.clock.now() - (asked.detach_asked_at or deps.clock.now()) > STALE_AFTER:
        # It stood still here: by now the volume may be where it must stay.
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    try:
        provider.detach_volume(ref_of(volume), ref_of(kept))
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    except (ProviderUnavailable, ProviderUnexpected) as error:
        deps.log.info("detach_answer_unclear", lease_id=record.lease.id, resource_id=volume.id, reason=str(error))
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    except ProviderError as error:
        deps.log.info("detach_refused", lease_id=record.lease.id, resource_id=volume.id, reason=str(error))
        _write(record, giving, refused_to_detach(asked, deps.clock.now()), deps)
        return _again_later(volume, error, deps)


def _not_read(record: LeaseRecord, volume: Resource, error: ProviderError, deps: Deps, *, late: bool) -> Outcome:
    if late:
        return _fail(record, Reason.CACHE_BUSY, f"last answer of the provider: {error}", deps)
    return _again_later(volume, error, deps)


def _again_later(volume: Resource, error: ProviderError, deps: Deps) -> Outcome:
    if isinstance(error, ProviderAuthFailed):
        alarms.auth_failed(deps, volume.account, error)
        return Outcome("waiting", AUTH_PAUSE_SECONDS)
    if isinstance(error, ProviderThrottled):
        return Outcome("waiting", throttled_pause_seconds(error, volume.id))
    return Outcome("waiting", TRY_PAUSE_SECONDS)


def _runs(record: LeaseRecord, kept: Resource, seen: Observation, deps: Deps) -> Outcome:
    """Somebody has started it meanwhile: its volume is in use, and it is billed. The resume ends; it is stopped again,
    which needs the ledger to have it as running."""
    now = deps.clock.now()
    price = offer_of_machine(record.lease, kept).price_per_hour_usd
    running = seen_started(kept, now, seen.words, price)
    why = f"the kept machine {kept.provider_id} is shown as {seen.words}: its volume is not taken from it"
    deps.ledger.commit(fail_attempt(record, now, Reason.CACHE_BUSY, why, running))
    return Outcome("failed")


def _where(seen: Observation | Absent, kept: Resource) -> str:
    if isinstance(seen, Absent):
        return f"the cache's volume was not shown ({seen.how})"
    if seen.attached_to and seen.attached_to != kept.provider_id:
        return f"the cache's volume has been at another machine, {seen.attached_to} ({seen.words}),"
    return f"the cache's volume has not come free from the stopped machine ({seen.words})"


def _minutes() -> int:
    return round(PATIENCE.total_seconds() / 60)


def _write(
    record: LeaseRecord, giving: Attempt, volume: VolumeAttachment, deps: Deps, *events: Event, **update: object
) -> tuple[LeaseRecord, Attempt]:
    changed = giving.model_copy(update={"volume": volume})
    lease = with_attempt(record.lease, changed).model_copy(update={"updated_at": deps.clock.now(), **update})
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, events=events, epoch=lease.epoch))
    return LeaseRecord(lease.model_copy(update={"version": lease.version + 1}), record.resources), changed


def _fail(record: LeaseRecord, reason: Reason, why: str, deps: Deps) -> Outcome:
    deps.ledger.commit(fail_attempt(record, deps.clock.now(), reason, why))
    return Outcome("failed")
