"""Taking, leaving, checking and ending a cache. The rules are in `domain/cache.py`.

What may happen between any two effects here: the lease says which cache it wants before it takes it, so that leaving
finds it; a use that nobody took off (cut off, lost, written by a late twin) is taken off by the cache's own check and
by the next who wants it, who both ask the user's lease.
"""

from datetime import datetime, timedelta

from gpulease.cache_facts import takes_its_volume
from gpulease.domain.cache import (
    COMING_STATES,
    expires_at,
    freed,
    is_usable,
    kept,
    member_needs_cache,
    member_of,
    next_check,
    place_of,
    spec_of,
    taken,
    to_leave,
    user_of,
    volume_of,
    warned,
    warns_at,
)
from gpulease.domain.lease import Attempt, Lease, LeaseState, Reason, VolumeAttachment
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource
from gpulease.domain.resume import kept_before
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, cancel, event
from gpulease.errors import LeaseConflict, LeaseNotFound, LeaseSuperseded
from gpulease.ports import Deps
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, fail_attempt, waiting_for, with_attempt
from gpulease.steps.handing_over import hand_over
from gpulease.steps.starting import start_release

TRIES = 8
"""Of one write to a cache's row in one call; few want one cache at once."""
PATIENCE = timedelta(minutes=30)
"""How long a lease waits for a cache whose user is on its way out. Nothing is billed meanwhile."""
PATIENCE_OF_STOPPED = timedelta(minutes=10)
"""The same of one that starts its stopped machine: with the time for attaching it stays below what `check_leases` takes
for a resume that cannot end."""
BUSY_PAUSE_SECONDS = 15


def cache_of(lease: Lease, deps: Deps) -> LeaseRecord | None:
    """The record of the cache that a lease uses; None = it uses none, or there is none (any more)."""
    if not lease.cache_id:
        return None
    try:
        return deps.ledger.load(lease.cache_id)
    except LeaseNotFound:
        return None


# --- taking -----------------------------------------------------------------------------------------------------------


def take(record: LeaseRecord, attempt: Attempt, deps: Deps) -> Outcome | None:
    """Make the attempt's machine the one user of the lease's cache. None = it is, or it needs no volume.

    Before the machine's intent is written: where the cache cannot be had, nothing is asked for. The lease's row may be
    written too, so it must be read again. Raises LeaseSuperseded, LeaseConflict (the lease moved on).
    """
    if not record.lease.cache_id:
        return None
    cache = cache_of(record.lease, deps)
    if cache is not None and not takes_its_volume(cache, attempt.offer, deps):
        return None
    member, lease = member_of(record.lease.id, attempt.number), record.lease
    for _ in range(TRIES):
        if cache is None or not is_usable(cache.lease):
            return _without(record, Reason.CACHE_FAILED, "the cache is removed", deps)
        if cache.lease.members == (member,):
            return None
        user = user_of(cache.lease)
        if user is not None and _still_needs(user.lease_id, cache.lease.id, user.member, deps):
            kept = _kept_user(record, user.member)
            if kept is None:
                return _busy(record, attempt.started_at + PATIENCE, cache.lease, user.lease_id, deps)
            not_yet = hand_over(record, kept, cache, deps)
            if not_yet is not None:
                return not_yet
            lease = deps.ledger.load(record.lease.id).lease
        lease = _wants(lease, attempt.number, cache.lease.id, deps)
        if _claimed(cache, member, deps):
            return None
        cache = cache_of(record.lease, deps)
    return Outcome("waiting", BUSY_PAUSE_SECONDS)


def take_back(record: LeaseRecord, attempt: Attempt, deps: Deps) -> Outcome | None:
    """Make the stopped machine that is started the one user of its cache again. None = it is.

    Before it starts: where the cache cannot be had, nothing of it is billed. The lease's row may be written too, so it
    must be read again. Asks nothing of a provider. Raises LeaseSuperseded, LeaseConflict (the lease moved on).
    """
    resume, member, lease = record.lease.resume, member_of(record.lease.id, attempt.number), record.lease
    for _ in range(TRIES):
        cache = cache_of(lease, deps)
        if cache is None or not is_usable(cache.lease) or volume_of(cache) is None:
            return _goes_on_without(lease, attempt, deps)
        user = user_of(cache.lease)
        others = user is not None and user.member != member
        if user is not None and others and _still_needs(user.lease_id, cache.lease.id, user.member, deps):
            until = (resume.requested_at if resume is not None else attempt.started_at) + PATIENCE_OF_STOPPED
            return _busy(record, until, cache.lease, user.lease_id, deps)
        lease = _wants(lease, attempt.number, cache.lease.id, deps)
        if cache.lease.members == (member,) or _claimed(cache, member, deps):
            return None
    return Outcome("waiting", BUSY_PAUSE_SECONDS)


def _kept_user(record: LeaseRecord, member: str) -> Resource | None:
    """The lease's own stopped machine, kept while a new one is tried, if that is the user."""
    kept = kept_before(record) if record.lease.resume is not None else None
    return kept if kept is not None and kept.id == member else None


def _claimed(cache: LeaseRecord, member: str, deps: Deps) -> bool:
    """Whether the cache's row names this machine as its user now; False = somebody else has written it meanwhile."""
    wanted, volume = taken(cache.lease, member, deps.clock.now()), volume_of(cache)
    rows = () if volume is None or volume.attached_to in ("", member) else (_detached(volume),)
    try:
        deps.ledger.commit(Change(lease_id=wanted.id, lease=wanted, resources=rows, epoch=cache.lease.epoch))
    except (LeaseConflict, LeaseSuperseded):
        return False
    return True


def _goes_on_without(lease: Lease, attempt: Attempt, deps: Deps) -> Outcome:
    """A machine that once ran is not kept from its owner because its cache is gone."""
    if attempt.volume is not None:
        now, text = deps.clock.now(), "its cache is gone; the machine goes on without it"
        dropped = attempt.model_copy(update={"volume": attempt.volume.model_copy(update={"dropped": True})})
        warnings = tuple(dict.fromkeys((*lease.warnings, text)))
        changed = with_attempt(lease, dropped).model_copy(update={"warnings": warnings, "updated_at": now})
        told = event(lease.id, now, "cache_gone", f"{lease.name}: {text}", "warning")
        deps.ledger.commit(Change(lease_id=lease.id, lease=changed, events=(told,), epoch=lease.epoch))
    return Outcome("not_wanted")


def _wants(lease: Lease, number: int, holder: str, deps: Deps) -> Lease:
    """The lease with the cache noted at its attempt. Written only when it is news."""
    attempt = lease.attempts[number - 1]
    if attempt.volume is not None and attempt.volume.holder_id == holder and not attempt.volume.left:
        return lease
    asked = attempt.volume.detach_asked_at if attempt.volume is not None else None
    wanted = VolumeAttachment(holder_id=holder, detach_asked_at=asked)
    changed = with_attempt(lease, attempt.model_copy(update={"volume": wanted}))
    deps.ledger.commit(Change(lease_id=lease.id, lease=changed, epoch=lease.epoch))
    return changed.model_copy(update={"version": lease.version + 1})


def _still_needs(lease_id: str, holder: str, member: str, deps: Deps) -> bool:
    try:
        record = deps.ledger.load(lease_id)
    except LeaseNotFound:
        return False
    return member_needs_cache(record, holder, member)


def _busy(record: LeaseRecord, until: datetime, cache: Lease, user: str, deps: Deps) -> Outcome:
    """Its user is another machine. One that is going is waited for (C36), until then; one that stays is not."""
    now = deps.clock.now()
    other = deps.ledger.load(user).lease
    # Of its own machines, those that were tried before are on their way out.
    going = user == record.lease.id or other.state is LeaseState.RELEASING or other.attempt is None
    if going and now < until:
        told = waiting_for(record, now, f"cache {cache.name}, which the last machine is leaving")
        if told is not None:
            deps.ledger.commit(told)
        return Outcome("waiting", BUSY_PAUSE_SECONDS)
    return _without(record, Reason.CACHE_BUSY, f"cache {cache.name} is in use by {other.name} ({other.id})", deps)


def _without(record: LeaseRecord, reason: Reason, why: str, deps: Deps) -> Outcome:
    deps.ledger.commit(fail_attempt(record, deps.clock.now(), reason, why))
    return Outcome("failed")


# --- leaving ----------------------------------------------------------------------------------------------------------


def leave_untouched(record: LeaseRecord, deps: Deps) -> LeaseRecord:
    """Take machines off their caches whose volumes they were never asked to attach. The record as it is then.

    Needs no provider. What may have been attached is left by `DetachVolume`, which sees the volume free first.
    """
    lease = record.lease
    for attempt in to_leave(record):
        if attempt.volume is not None and not attempt.volume.ever_accepted:
            lease = left(lease, attempt, deps)
    return record if lease is record.lease else deps.ledger.load(lease.id)


def left(lease: Lease, attempt: Attempt, deps: Deps) -> Lease:
    """The machine of the attempt is no longer its cache's user: first on the cache's row, then on the lease's."""
    if attempt.volume is None:
        return lease
    free(attempt.volume.holder_id, member_of(lease.id, attempt.number), deps)
    done = with_attempt(lease, attempt.model_copy(update={"volume": attempt.volume.model_copy(update={"left": True})}))
    deps.ledger.commit(Change(lease_id=lease.id, lease=done))
    return done.model_copy(update={"version": lease.version + 1})


def free(holder: str, member: str, deps: Deps) -> None:
    """Take the member off. Nothing to do where it is none."""
    for _ in range(TRIES):
        try:
            cache = deps.ledger.load(holder)
        except LeaseNotFound:
            return
        if member not in cache.lease.members:
            return
        volume = volume_of(cache)
        rows = () if volume is None or not volume.attached_to else (_detached(volume),)
        now = deps.clock.now()
        told = event(holder, now, "cache_free", f"{member.partition('.')[0]} no longer uses it")
        changed = freed(cache.lease, now) if is_usable(cache.lease) else cache.lease.model_copy(update={"members": ()})
        try:
            deps.ledger.commit(Change(lease_id=holder, lease=changed, resources=rows, events=(told,)))
        except LeaseConflict:
            continue
        return
    raise LeaseConflict(f"{holder}: {TRIES} writes in a row lost against others")


def _detached(volume: Resource) -> Resource:
    return volume.model_copy(update={"attached_to": "", "status": "detached"})


# --- the cache's own check --------------------------------------------------------------------------------------------


def check_cache(record: LeaseRecord, deps: Deps) -> str:
    """A usable cache that is due: its user is asked whether it still is, its owner is warned, or it ends.

    Returns "expired" or "".
    """
    user = user_of(record.lease)
    if user is not None and not _still_needs(user.lease_id, record.lease.id, user.member, deps):
        deps.log.warning("cache_user_found_gone", lease_id=record.lease.id, member=user.member)
        free(record.lease.id, user.member, deps)
        record = deps.ledger.load(record.lease.id)
    if not is_usable(record.lease):
        return ""
    now, lease = deps.clock.now(), record.lease
    warn, end = warns_at(lease), expires_at(lease)
    ending = any(at is not None and at <= now for at in (warn, end))
    if ending and _is_kept_for_a_lease(lease, deps):
        deps.ledger.commit(Change(lease_id=lease.id, lease=kept(lease, now)))
    elif warn is not None and warn <= now:
        _warn(lease, deps)
    elif warn is None and end is not None and end <= now:
        detail = "nobody has used it for as long as its owner said"
        deps.ledger.commit(cancel(record, now=now, reason=Reason.EXPIRED, detail=detail))
        start_release(deps.ledger.load(lease.id), deps)
        return "expired"
    else:
        leftovers = any(r.release is not None and r.released_at is None for r in record.resources)
        due = now + CHECK_WORKFLOW_EVERY if leftovers else next_check(lease, now)
        deps.ledger.commit(Change(lease_id=lease.id, lease=lease.model_copy(update={"next_check_at": due})))
    return ""


def _is_kept_for_a_lease(cache: Lease, deps: Deps) -> bool:
    """Whether a lease of its owner would come, or come back, with it. Read only when it would end otherwise."""
    cursor: str | None = None
    while True:
        page = deps.ledger.leases_of(spec_of(cache).user, states=COMING_STATES, cursor=cursor)
        if any(lease.cache_id == cache.id for lease in page.items):
            return True
        cursor = page.cursor
        if cursor is None:
            return False


def _warn(lease: Lease, deps: Deps) -> None:
    """Tell before it is noted as told: cut off in between, it is told twice and not never."""
    now = deps.clock.now()
    changed = warned(lease, now)
    text = f"cache {lease.name}: {changed.warnings[-1]}"
    alarms.cache_alarm(deps, alarms.CACHE_EXPIRING, lease, text, "unused")
    told = event(lease.id, now, "cache_expiring", text, "warning")
    deps.ledger.commit(Change(lease_id=lease.id, lease=changed, events=(told,)))


# --- its volume's loss ------------------------------------------------------------------------------------------------


def lost_cache(record: LeaseRecord, volume: Resource, since: str, deps: Deps) -> Change:
    """The change that ends a cache whose volume is gone at the provider; the release proves the absence once more."""
    lease, now = record.lease, deps.clock.now()
    detail = f"its volume {volume.provider_id} was deleted at {place_of(spec_of(lease))} outside of gpulease, {since}"
    alarms.cache_alarm(deps, alarms.CACHE_LOST, lease, f"cache {lease.name} is lost: {detail}", "lost", volume)
    return cancel(record, now=now, reason=Reason.LOST, detail=detail)
