"""Attach the cache's volume to the machine: asked for at most every few seconds, until it is seen attached.

A stopped machine that is started again is made the cache's user again first, and has its volume before it starts.

Invariants: that it will be asked for is written before it is asked, so a machine that may have the volume leaves it
only when the volume is seen free; nothing is shown as attached before the provider says so (C34); a volume that hangs
at another machine is never taken from it (C36).
"""

from datetime import datetime, timedelta
from functools import partial

from gpulease.domain.cache import volume_of
from gpulease.domain.hand_over import may_be_on_its_way, patient_anew, starts_again
from gpulease.domain.lease import IN_PROVISION, Attempt, Lease, Reason, VolumeAttachment
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.transitions import event
from gpulease.errors import (
    ProviderAuthFailed,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import (
    Outcome,
    StepCommand,
    fail_attempt,
    load_current,
    record_fact,
    ref_of,
    waiting_for,
    with_attempt,
)
from gpulease.steps.cache import cache_of, take_back
from gpulease.steps.machine import machine_of, without
from gpulease.steps.observing import may_change, may_read, observe, throttled_pause_seconds
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"attached", "not_wanted", "waiting", "failed", "superseded"})
LOOK_PAUSE_SECONDS = 3
TRY_PAUSE_SECONDS = 8
LATER_LOOK_PAUSE_SECONDS = 10
"""After the first minute: an attach that hangs is looked at by three calls each time, for as long as it may hang."""
QUICK_LOOKS_FOR = timedelta(seconds=60)
ASK_AGAIN_AFTER = timedelta(seconds=60)
"""An accepted attach becomes visible within seconds (Vultr 15 tries of 1 s in drivers; AWS likewise)."""
MAX_REFUSALS = 3
"""Final refusals of a machine that is ready, before the attempt is given up."""
AUTH_PAUSE_SECONDS = 30


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _turn(command, deps), deps)


def _turn(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt, machine = record.lease.attempt, machine_of(record)
    if attempt is None or attempt.reason is not None or machine is None:
        return Outcome("failed")
    if attempt.volume is None or attempt.volume.dropped:
        return Outcome("not_wanted")
    if attempt.volume.attached_at is not None and not attempt.volume.left:
        return Outcome("attached")
    if starts_again(record.lease):
        not_had = take_back(record, attempt, deps)
        if not_had is not None:
            return not_had
        record = load_current(command, deps, *IN_PROVISION)
        attempt = record.lease.attempts[attempt.number - 1]
    if attempt.volume is not None and attempt.volume.deadline is None:
        attempt, record = _with_deadline(record, attempt, attempt.volume, command, deps)
    cache = cache_of(record.lease, deps)
    volume = volume_of(cache) if cache is not None else None
    if volume is None or volume.state is not ResourceState.HELD:
        return _fail(record, deps, "the cache's volume is gone")
    return _look(record, attempt, machine, volume, deps)


def _with_deadline(
    record: LeaseRecord, attempt: Attempt, volume: VolumeAttachment, command: StepCommand, deps: Deps
) -> tuple[Attempt, LeaseRecord]:
    now = deps.clock.now()
    deadline = now + timedelta(seconds=deps.policy.attach_deadline_seconds)
    lease = _with(record.lease, attempt, volume, deadline=deadline)
    lease = lease.model_copy(update={"waiting_for": "its cache to be attached", "updated_at": now})
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, epoch=command.epoch))
    record = load_current(command, deps, *IN_PROVISION)
    return record.lease.attempts[attempt.number - 1], record


def _look(record: LeaseRecord, attempt: Attempt, machine: Resource, volume: Resource, deps: Deps) -> Outcome:
    provider, now = deps.providers.get(machine.account), deps.clock.now()
    late = _is_late(attempt, now)
    if not late and not may_read(deps, provider):
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    try:
        seen = provider.observe(ref_of(volume))
        if isinstance(seen, Observation) and _is_at(machine, seen, attempt, now):
            return _attached(record, attempt, machine, volume, seen, deps)
        shown = observe(deps, machine)
    except ProviderAuthFailed as error:
        alarms.auth_failed(deps, machine.account, error)
        return Outcome("waiting", AUTH_PAUSE_SECONDS)
    except ProviderError as error:
        if late:
            return _fail(record, deps, f"not attached in time; last answer of the provider: {error}")
        raise
    lost = without(record, attempt, machine, shown, deps) if shown is not None else None
    if lost is not None:
        return Outcome("failed") if lost.what == "failed" else Outcome("waiting", LOOK_PAUSE_SECONDS)
    if late:
        return _fail(record, deps, _why_late(seen, machine, attempt))
    if not starts_again(record.lease) and _boots(shown):
        # Refused as long as it boots (C34). A stopped one takes its volume as it lies there.
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    return _ask_when_due(record, attempt, machine, volume, seen, provider, deps)


def _boots(shown: Observation | Absent | None) -> bool:
    return not isinstance(shown, Observation) or shown.condition is not Condition.READY


def _is_at(machine: Resource, seen: Observation, attempt: Attempt, now: datetime) -> bool:
    """Whether the volume is attached there, and no detach that was asked for may still take it away."""
    leaves = attempt.volume is not None and may_be_on_its_way(attempt.volume, now)
    return seen.attached and seen.attached_to == machine.provider_id and not leaves


def _ask_when_due(
    record: LeaseRecord,
    attempt: Attempt,
    machine: Resource,
    volume: Resource,
    seen: Observation | Absent,
    provider: Provider,
    deps: Deps,
) -> Outcome:
    now, asked = deps.clock.now(), attempt.volume
    if asked is None or isinstance(seen, Absent) or (seen.attached_to and seen.attached_to != machine.provider_id):
        # It may be missing from a read, or still be on its way from another machine.
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    if seen.attached:
        # For how long, after a detach, the next looks tell.
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    if asked.accepted_at is not None and now - asked.accepted_at < ASK_AGAIN_AFTER:
        return Outcome("waiting", _look_pause(attempt, deps))
    if asked.next_try_at is not None and now < asked.next_try_at:
        return Outcome("waiting", _look_pause(attempt, deps))
    if not may_change(deps, provider):
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    return _ask(record, attempt, machine, volume, asked, provider, deps)


def _ask(
    record: LeaseRecord,
    attempt: Attempt,
    machine: Resource,
    volume: Resource,
    before: VolumeAttachment,
    provider: Provider,
    deps: Deps,
) -> Outcome:
    """Write that it is asked for, ask once, and write down a refusal. An unclear answer is as good as accepted."""
    lease, now = record.lease, deps.clock.now()
    asked = {"tries": before.tries + 1, "accepted_at": now, "ever_accepted": True, "free_looks": 0}
    asking = _with(lease, attempt, before, **asked, hand_over_at=None)
    deps.ledger.commit(Change(lease_id=lease.id, lease=asking, epoch=lease.epoch))
    lease = asking.model_copy(update={"version": lease.version + 1})
    attempt = lease.attempts[attempt.number - 1]
    try:
        provider.attach_volume(ref_of(volume), ref_of(machine))
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    except (ProviderUnavailable, ProviderUnexpected) as error:
        deps.log.info("attach_answer_unclear", lease_id=lease.id, resource_id=volume.id, reason=str(error))
        return Outcome("waiting", TRY_PAUSE_SECONDS)
    except ProviderThrottled as error:
        pause, refusals = throttled_pause_seconds(error, lease.id), 0
    except ProviderBusy as error:
        deps.log.info("attach_not_yet", lease_id=lease.id, resource_id=volume.id, reason=str(error))
        pause, refusals = TRY_PAUSE_SECONDS, 0
    except (ProviderRejected, ProviderAuthFailed) as error:
        pause, refusals = TRY_PAUSE_SECONDS, 1
        if before.refusals + refusals >= MAX_REFUSALS:
            why = f"refused {MAX_REFUSALS} times ({error.facts.message})"
            return _fail(LeaseRecord(lease, record.resources), deps, why)
    if attempt.volume is None:
        return Outcome("waiting", pause)
    again = deps.clock.now() + timedelta(seconds=pause)
    refused = _with(
        lease, attempt, attempt.volume, refusals=before.refusals + refusals, accepted_at=None, next_try_at=again
    )
    told = waiting_for(LeaseRecord(refused), deps.clock.now(), "its cache to be attached")
    deps.ledger.commit(Change(lease_id=lease.id, lease=told.lease if told else refused, epoch=lease.epoch))
    return Outcome("waiting", pause)


def _attached(
    record: LeaseRecord, attempt: Attempt, machine: Resource, volume: Resource, seen: Observation, deps: Deps
) -> Outcome:
    """Seen attached: on the cache's row first, which says where its volume is, then on the lease's."""
    if attempt.volume is None:
        return Outcome("not_wanted")
    record_fact(deps, volume.lease_id, volume.id, partial(_at, machine=machine.id, words=seen.words))
    now = deps.clock.now()
    lease = _with(record.lease, attempt, attempt.volume, **_SEEN, attached_at=now)
    if starts_again(lease) and lease.resume is not None:
        lease = lease.model_copy(update={"resume": patient_anew(lease.resume, now)})
    tries = attempt.volume.tries
    told = event(
        lease.id,
        now,
        "cache_attached",
        f"its cache is attached (asked {tries} times)",
        resource_id=volume.id,
        tries=tries,
    )
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, events=(told,), epoch=record.lease.epoch))
    return Outcome("attached")


_SEEN: dict[str, object] = {"ever_accepted": True, "hand_over_at": None, "detach_asked_at": None, "free_looks": 0}
"""Of a volume that is seen attached: what was asked for before is over."""


def _at(record: LeaseRecord, volume: Resource, *, machine: str, words: str) -> Change | None:
    if volume.attached_to == machine or volume.state is not ResourceState.HELD:
        return None
    return Change(record.lease.id, resources=(volume.model_copy(update={"attached_to": machine, "status": words}),))


def _with(lease: Lease, attempt: Attempt, volume: VolumeAttachment, **update: object) -> Lease:
    return with_attempt(lease, attempt.model_copy(update={"volume": volume.model_copy(update=update)}))


def _look_pause(attempt: Attempt, deps: Deps) -> int:
    """Short while the volume usually comes, longer when it does not."""
    deadline = attempt.volume.deadline if attempt.volume is not None else None
    if deadline is None:
        return LOOK_PAUSE_SECONDS
    since = deadline - timedelta(seconds=deps.policy.attach_deadline_seconds)
    return LOOK_PAUSE_SECONDS if deps.clock.now() - since < QUICK_LOOKS_FOR else LATER_LOOK_PAUSE_SECONDS


def _is_late(attempt: Attempt, now: datetime) -> bool:
    deadline = attempt.volume.deadline if attempt.volume is not None else None
    return deadline is not None and now >= deadline


def _why_late(seen: Observation | Absent, machine: Resource, attempt: Attempt) -> str:
    tries = attempt.volume.tries if attempt.volume is not None else 0
    if isinstance(seen, Absent):
        return f"its volume was not shown any more ({seen.how})"
    if seen.attached_to and seen.attached_to != machine.provider_id:
        return f"its volume hangs at another machine, {seen.attached_to} ({seen.words})"
    return f"not attached in time (asked {tries} times; {seen.words})"


def _fail(record: LeaseRecord, deps: Deps, why: str) -> Outcome:
    deps.ledger.commit(fail_attempt(record, deps.clock.now(), Reason.CACHE_FAILED, f"the cache: {why}"))
    return Outcome("failed")
