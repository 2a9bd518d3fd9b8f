"""Caches: what holds one, who uses it, when it ends. Decisions as pure functions.

A cache is held by a record of its own, a lease of kind `cache`, so that giving back, restarting, listing and proving
work on it as on any other lease. Invariants: its row lists the one machine that uses its volume, and whoever takes it
and whoever ends the cache write that row on condition of the version they read, so a cache on its way out has no user
and gets none; nothing but its owner's word, its own expiry or its volume's loss ends it.
"""

from base64 import b32encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any

from gpulease.domain.cache_spec import CacheSpec
from gpulease.domain.event import Event
from gpulease.domain.lease import Attempt, Lease, LeaseKind, LeaseState, VolumeAttachment
from gpulease.domain.offer import Offer
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState, resource_id
from gpulease.domain.spec import LeaseSpec
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event

HOURS_PER_MONTH = Decimal(730)
CHECK_USER_EVERY = timedelta(minutes=10)
"""How often a cache in use is asked whether its machine still exists. Leaving itself does not wait for it."""
LOOK_AT_KEPT_EVERY = timedelta(days=1)
WARN_BEFORE = timedelta(hours=48)
EXPIRY_WARNING = "nobody uses it"
"""How the warning before an end begins; it is taken off when the cache is used again."""
FREE_LOOKS_NEEDED = 2
FREE_LOOKS_APART = timedelta(seconds=3)
DETACH_AFTER = timedelta(seconds=60)
"""The end of a machine detaches its volumes within seconds (Vultr, AWS); after so long it is asked for."""


class CacheState(StrEnum):
    """What its owner is told; the record's own states are a lease's."""

    CREATING = "creating"
    AVAILABLE = "available"
    IN_USE = "in_use"
    REMOVING = "removing"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class CacheUser:
    """The machine that uses a cache."""

    lease_id: str
    member: str


# --- who and what -----------------------------------------------------------------------------------------------------


def cache_owner(user: str) -> str:
    """Under which owner the ledger lists a user's caches: nobody's name, so that no listing of leases shows them."""
    return f"cache:{_digest(user)[:20]}"


def cache_id(user: str, name: str, generation: int) -> str:
    """`c-` and 12 characters of [a-z2-7]; the same for whoever asks, so that two who create at once make one."""
    return f"c-{_digest(user, name, str(generation))[:12]}"


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    return b32encode(sha256(text.encode("utf-8", "surrogatepass")).digest()).decode().lower()


def spec_digest(spec: CacheSpec) -> str:
    """SHA-256 of what was asked for: creating again with the same is the same cache, with another is refused."""
    # As it was before speed could be bought: caches of then are the same caches still.
    usual = {"throughput_mibps"} if spec.throughput_mibps is None else set()
    return sha256(spec.model_dump_json(exclude=usual).encode()).hexdigest()


def new_cache(spec: CacheSpec, name: str, generation: int, now: datetime) -> tuple[Lease, Event]:
    """A cache just accepted. One without a volume is usable at once; a volume has not been asked for."""
    ready = not spec.has_volume
    lease = Lease(
        id=cache_id(spec.user, name, generation),
        owner=cache_owner(spec.user),
        name=name,
        spec=LeaseSpec(),
        state=LeaseState.RUNNING if ready else LeaseState.REQUESTED,
        epoch=1,
        created_at=now,
        updated_at=now,
        running_at=now if ready else None,
        waiting_for="" if ready else "its volume",
        kind=LeaseKind.CACHE,
        generation=generation,
        cache=spec,
        request_digest=spec_digest(spec),
    )
    lease = lease.model_copy(update={"next_check_at": next_check(lease, now) if ready else now + CHECK_WORKFLOW_EVERY})
    place = words_of(spec)
    return lease, event(lease.id, now, "cache_requested", f"cache {name} was requested ({place})")


def place_of(spec: CacheSpec) -> str:
    """Where its volume is, for people."""
    return "/".join(part for part in (spec.account, spec.region, spec.zone) if part)


def words_of(spec: CacheSpec) -> str:
    """What it is, for people."""
    if not spec.has_volume:
        return "object store only"
    speed = f", {spec.throughput_mibps} MiB/s" if spec.throughput_mibps is not None else ""
    return f"{spec.size_gb} GB in {place_of(spec)}{speed}"


def spec_of(lease: Lease) -> CacheSpec:
    """What a cache's record holds. A record that the sweep made for a found volume does not know it."""
    return lease.cache or CacheSpec(user="", size_gb=1, expire_after_seconds=None)


def state_of(lease: Lease) -> CacheState:
    if lease.state is LeaseState.RELEASED:
        return CacheState.REMOVED
    if lease.state is LeaseState.RELEASING:
        return CacheState.REMOVING
    if lease.state is not LeaseState.RUNNING:
        return CacheState.CREATING
    return CacheState.IN_USE if lease.members else CacheState.AVAILABLE


def is_usable(lease: Lease) -> bool:
    return lease.kind is LeaseKind.CACHE and lease.state is LeaseState.RUNNING


COMING_STATES = (
    LeaseState.REQUESTED,
    LeaseState.PROVISIONING,
    LeaseState.PAUSING,
    LeaseState.PAUSED,
    LeaseState.RESUMING,
)
"""Of leases that may come, or come back, with the cache: what was promised, or kept by a pause, must be there then."""


def may_remove(lease: Lease) -> bool:
    """Whether its owner's word ends it now. One that is being created may be ended too: nobody uses it yet."""
    return not lease.members and lease.state not in (LeaseState.RELEASING, LeaseState.RELEASED)


def volume_of(record: LeaseRecord) -> Resource | None:
    """The volume of a cache; None = it must be asked for (again). Duplicates on their way out do not count."""
    live = (ResourceState.INTENDED, ResourceState.HELD)
    return next((v for v in reversed(record.of_kind(ResourceKind.VOLUME)) if v.state in live), None)


def per_hour(per_month: Decimal) -> Decimal:
    """US dollars per hour of a price per month."""
    return per_month / HOURS_PER_MONTH


# --- offers -----------------------------------------------------------------------------------------------------------

CanAttach = Callable[[Offer], bool]


def takes_volume(spec: CacheSpec, offer: Offer, can_attach: CanAttach) -> bool:
    """Whether a machine of this offer would use the cache's volume."""
    return spec.has_volume and offer.provider == spec.provider and can_attach(offer)


def offers_for(spec: CacheSpec, offers: Iterable[Offer], can_attach: CanAttach) -> list[Offer]:
    """Offers of which a machine could use the cache, in their order; those that take its volume first.

    Elsewhere a machine fills the cache from its object store, where it has one.
    """
    known = list(offers)
    near = [offer for offer in known if takes_volume(spec, offer, can_attach)]
    if spec.object_store is None:
        return near if spec.has_volume else known
    return near + [offer for offer in known if offer not in near]


# --- who uses it ------------------------------------------------------------------------------------------------------


def member_of(lease_id: str, attempt: int) -> str:
    """How a cache's row names the machine of an attempt."""
    return resource_id(lease_id, ResourceKind.INSTANCE, attempt)


def user_of(lease: Lease) -> CacheUser | None:
    """Who uses a cache."""
    return CacheUser(lease.members[0].partition(".")[0], lease.members[0]) if lease.members else None


def taken(lease: Lease, member: str, now: datetime) -> Lease:
    """The cache with this machine as its one user."""
    used = lease.model_copy(update={"members": (member,), "used_at": now, "updated_at": now, **_unwarned(lease)})
    return used.model_copy(update={"next_check_at": next_check(used, now)})


def kept(lease: Lease, now: datetime) -> Lease:
    """The cache of a lease that is paused: that counts as use, looked at again after a day."""
    used = lease.model_copy(update={"used_at": now, "updated_at": now, **_unwarned(lease)})
    return used.model_copy(update={"next_check_at": now + LOOK_AT_KEPT_EVERY})


def freed(lease: Lease, now: datetime) -> Lease:
    """The cache without a user."""
    free = lease.model_copy(update={"members": (), "used_at": now, "updated_at": now})
    return free.model_copy(update={"next_check_at": next_check(free, now)})


def uses_cache(record: LeaseRecord, attempt: Attempt) -> bool:
    """Whether the attempt's machine uses or may yet use its cache.

    Without a machine only while one may still be asked for; with machines until all of them are proven gone.
    """
    if attempt.volume is None or attempt.volume.left:
        return False
    machines = record.of_kind(ResourceKind.INSTANCE, attempt.number)
    if not machines:
        asking = record.lease.state in (LeaseState.PROVISIONING, LeaseState.RESUMING)
        return attempt.open and attempt.reason is None and asking
    return any(machine.state is not ResourceState.RELEASED for machine in machines)


def member_needs_cache(record: LeaseRecord, holder: str, member: str) -> bool:
    """The same question asked by the cache about its member's lease. One whose volume has to be seen free still does:
    its own lease says so when it is."""
    for attempt in record.lease.attempts:
        if member == member_of(record.lease.id, attempt.number):
            volume = attempt.volume
            if volume is None or volume.holder_id != holder or volume.left:
                return False
            return uses_cache(record, attempt) or volume.ever_accepted
    return False


def to_leave(record: LeaseRecord) -> list[Attempt]:
    """Attempts whose machines need their cache no longer and still count as its user."""
    return [
        a for a in record.lease.attempts if a.volume is not None and not a.volume.left and not uses_cache(record, a)
    ]


def has_left_all(lease: Lease) -> bool:
    """Whether no cache counts a machine of this lease any more: before that, the lease is not closed."""
    return all(attempt.volume is None or attempt.volume.left for attempt in lease.attempts)


def looked_free(volume: VolumeAttachment, now: datetime) -> VolumeAttachment:
    """One more reading of the volume as free, after the machine was proven gone."""
    return volume.model_copy(update={"free_looks": volume.free_looks + 1, "next_try_at": now + FREE_LOOKS_APART})


def is_free(volume: VolumeAttachment) -> bool:
    return volume.free_looks >= FREE_LOOKS_NEEDED


# --- expiry -----------------------------------------------------------------------------------------------------------


def expires_at(lease: Lease) -> datetime | None:
    """When an unused cache ends; None = never, or it is in use, or it is not usable (yet).

    A warning that came late puts the end off: there is as much time after it as if it had come in time.
    """
    lead = _lead(lease)
    if lead is None or lease.cache is None or lease.cache.expire_after_seconds is None:
        return None
    since = lease.used_at or lease.running_at or lease.created_at
    end = since + timedelta(seconds=lease.cache.expire_after_seconds)
    return end if lease.expiry_warned_at is None else max(end, lease.expiry_warned_at + lead)


def warns_at(lease: Lease) -> datetime | None:
    """When its owner is told of the end: 48 hours before, or at half of a short expiry. None = never, or told."""
    lead, end = _lead(lease), expires_at(lease)
    return end - lead if lead is not None and end is not None and lease.expiry_warned_at is None else None


def _lead(lease: Lease) -> timedelta | None:
    """How long before its end the owner is told; None = it does not end by itself as it is now."""
    seconds = lease.cache.expire_after_seconds if lease.cache is not None else None
    if seconds is None or lease.state is not LeaseState.RUNNING or lease.members:
        return None
    return min(WARN_BEFORE, timedelta(seconds=seconds / 2))


def warned(lease: Lease, now: datetime) -> Lease:
    """The cache with its owner told of its end."""
    told = lease.model_copy(update={"expiry_warned_at": now, "updated_at": now})
    end = expires_at(told)
    text = f"{EXPIRY_WARNING}: it is removed with all it holds at {end:%Y-%m-%d %H:%M} UTC" if end else EXPIRY_WARNING
    told = told.model_copy(update={"warnings": (*_unwarned(lease)["warnings"], text)})
    return told.model_copy(update={"next_check_at": end})


def _unwarned(lease: Lease) -> dict[str, Any]:
    kept = tuple(warning for warning in lease.warnings if not warning.startswith(EXPIRY_WARNING))
    return {"warnings": kept, "expiry_warned_at": None}


def next_check(lease: Lease, now: datetime) -> datetime | None:
    """When a usable cache is looked at next: for its user, its warning or its end; None = never by itself."""
    if lease.members:
        return now + CHECK_USER_EVERY
    return warns_at(lease) or expires_at(lease)


def with_expiry(lease: Lease, seconds: int | None, now: datetime) -> Lease:
    """The cache with another expiry; a warning about the old one is taken off."""
    spec = spec_of(lease).model_copy(update={"expire_after_seconds": seconds})
    changed = lease.model_copy(update={"cache": spec, "updated_at": now, **_unwarned(lease)})
    if lease.state is not LeaseState.RUNNING:
        return changed
    return changed.model_copy(update={"next_check_at": next_check(changed, now)})
