"""One turn of leaving a cache: its machine is proven gone, and the volume must be seen free before another may have it.

Invariants: the end of the machine detaches (law 6); a detach is asked for only where that has not happened after a
while, and never with force; a volume that is not seen free, or could not be read, stays its last machine's (C36).
"""

from datetime import datetime, timedelta

from gpulease.domain.cache import DETACH_AFTER, is_free, looked_free, member_of, to_leave, volume_of
from gpulease.domain.lease import Attempt, VolumeAttachment
from gpulease.domain.observation import Absent
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import ALARM_AFTER, next_to_release
from gpulease.domain.resource import Resource, ResourceKind
from gpulease.domain.transitions import event
from gpulease.errors import InputInvalid, LeaseNotFound, ProviderAuthFailed, ProviderError
from gpulease.ports import Deps, Provider, Ref
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of, with_attempt
from gpulease.steps.cache import left
from gpulease.steps.observing import may_read
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"done", "superseded"})
LOOK_PAUSE_SECONDS = 5
MAX_PAUSE_SECONDS = 240


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _take_turn(command, deps), deps, again="done")


def _take_turn(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps)
    now = deps.clock.now()
    due = [a for a in to_leave(record) if a.volume is not None and (a.volume.next_try_at or now) <= now]
    wait = _turn(record, due[0], due[0].volume, deps) if due and due[0].volume is not None else 0
    # Until the next turn of anything of the lease: what is stuck, and looked at seldom, must not slow down the rest.
    record = deps.ledger.load(command.lease_id)
    todo = next_to_release(record, deps.clock.now())
    return Outcome("done", max(1, todo.wait_seconds, wait), may_stay=bool(to_leave(record)) and todo.resource is None)


def _turn(record: LeaseRecord, attempt: Attempt, attachment: VolumeAttachment, deps: Deps) -> int:
    """One look. Seconds to wait at least, because no look was possible; else 0."""
    now = deps.clock.now()
    volume = _volume(attachment, member_of(record.lease.id, attempt.number), deps)
    if volume is None:
        left(record.lease, attempt, deps)
        return 0
    machine = _machine(record, attempt)
    try:
        provider = deps.providers.get(volume.account)
        if not may_read(deps, provider):
            return LOOK_PAUSE_SECONDS
        seen = provider.observe(ref_of(volume))
    except (ProviderError, InputInvalid) as error:
        if isinstance(error, ProviderAuthFailed):
            alarms.auth_failed(deps, volume.account, error)
        _not_yet(record, attempt, attachment, volume, str(error), deps)
        return 0
    if isinstance(seen, Absent) or not seen.attached_to or machine is None or seen.attached_to != machine.provider_id:
        # Gone (the sweep sees to that), free, or at a machine that somebody else attached it to: ours does not have it.
        _free(record, attempt, attachment, deps)
        return 0
    if now - (machine.released_at or now) < DETACH_AFTER * 2 ** min(attachment.detach_tries, 4):
        _not_yet(record, attempt, attachment, volume, f"it is shown as {seen.words}", deps)
    else:
        _detach(record, attempt, attachment, volume, ref_of(machine), provider, deps)
    return 0


def _volume(attachment: VolumeAttachment, member: str, deps: Deps) -> Resource | None:
    """The volume that has to be seen free; None = the cache is gone, or counts another machine by now."""
    try:
        cache = deps.ledger.load(attachment.holder_id)
    except LeaseNotFound:
        return None
    return volume_of(cache) if member in cache.lease.members else None


def _machine(record: LeaseRecord, attempt: Attempt) -> Resource | None:
    return record.resource(member_of(record.lease.id, attempt.number))


def _free(record: LeaseRecord, attempt: Attempt, attachment: VolumeAttachment, deps: Deps) -> None:
    looked = looked_free(attachment, deps.clock.now())
    seen_free = attempt.model_copy(update={"volume": looked})
    if is_free(looked):
        left(record.lease, seen_free, deps)
    else:
        deps.ledger.commit(Change(record.lease.id, lease=with_attempt(record.lease, seen_free)))


def _detach(
    record: LeaseRecord,
    attempt: Attempt,
    attachment: VolumeAttachment,
    volume: Resource,
    machine: Ref,
    provider: Provider,
    deps: Deps,
) -> None:
    """Ask for it once; whether it happened is seen by the next look."""
    why = "asked to detach it"
    try:
        provider.detach_volume(ref_of(volume), machine)
    except ProviderError as error:
        why = str(error)
    counted = attachment.model_copy(update={"detach_tries": attachment.detach_tries + 1})
    _not_yet(record, attempt, counted, volume, why, deps)


def _not_yet(
    record: LeaseRecord, attempt: Attempt, attachment: VolumeAttachment, volume: Resource, why: str, deps: Deps
) -> None:
    """It is not free: come again, and tell people once when that takes long."""
    now, lease = deps.clock.now(), record.lease
    since = _gone_at(record, attempt) or now
    stuck = attachment.alarmed_at is None and now - since >= ALARM_AFTER
    if stuck:
        alarms.release_stuck(deps, volume, "still_attached", why[:300])
    pause = _pause_seconds(now - since)
    update = {
        "free_looks": 0,
        "next_try_at": now + timedelta(seconds=pause),
        "alarmed_at": now if stuck else attachment.alarmed_at,
    }
    waiting = with_attempt(lease, attempt.model_copy(update={"volume": attachment.model_copy(update=update)}))
    facts = {
        "provider": volume.provider,
        "region": volume.region,
        "resource_id": volume.id,
        "provider_id": volume.provider_id,
        "reason": "still_attached",
    }
    text = f"volume {volume.provider_id} is not free yet: {why}"[:600]
    events = (event(lease.id, now, "release_stuck", text, "error", **facts),) if stuck else ()
    deps.ledger.commit(Change(lease.id, lease=waiting, events=events))


def _gone_at(record: LeaseRecord, attempt: Attempt) -> datetime | None:
    machines = record.of_kind(ResourceKind.INSTANCE, attempt.number)
    return max((m.released_at for m in machines if m.released_at is not None), default=None)


def _pause_seconds(waited: timedelta) -> int:
    if waited < timedelta(minutes=2):
        return LOOK_PAUSE_SECONDS
    return min(MAX_PAUSE_SECONDS, 15 if waited < timedelta(minutes=10) else 60 if waited < timedelta(hours=1) else 240)
