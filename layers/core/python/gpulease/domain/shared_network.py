"""Networks that the leases of one owner share: who holds them, who uses them, and when they are given back.

A shared network is held by a record of its own, a lease of kind `network`, so that giving back, restarting, listing and
proving work on it as on any other lease. Its row lists the machines that use it. Invariants: whoever joins and whoever
leaves last write the same row on condition of the version they read, so a network that is being given back has no
members and gets none; who comes too late opens the next generation, which has an id of its own.
"""

from base64 import b32encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from gpulease.domain.event import Event
from gpulease.domain.lease import IN_PROVISION, Attempt, Lease, LeaseKind, LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.spec import LeaseSpec
from gpulease.domain.transitions import cancel, event

CHECK_MEMBERS_EVERY = timedelta(minutes=10)
"""How often a network in use is asked whether all its machines still exist. Leaving itself does not wait for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a shared network belongs to. `region` is the provider's."""

    owner: str
    account: str
    region: str


@dataclass(frozen=True, slots=True)
class SharedNetwork:
    """A shared network as one of the leases that use it sees it."""

    network: Resource
    others: int
    """Machines beside its own that use it."""


def holder_owner(place: Place) -> str:
    """Under which owner the ledger lists the holders of a place: no user's, so that no user's listing shows them."""
    return f"network:{_digest(place, '')[:20]}"


def holder_id(place: Place, generation: int) -> str:
    """`n-` and 12 characters of [a-z2-7]; the same for whoever asks."""
    return f"n-{_digest(place, str(generation))[:12]}"


def _digest(place: Place, salt: str) -> str:
    text = "\0".join((place.owner, place.account, place.region, salt))
    return b32encode(sha256(text.encode("utf-8", "surrogatepass")).digest()).decode().lower()


def new_holder(place: Place, generation: int, member: str, now: datetime) -> tuple[Lease, Event]:
    """A holder with its first member. Its network has not been asked for."""
    name = f"network-{place.account}-{place.region}-{generation}"
    lease = Lease(
        id=holder_id(place, generation),
        owner=holder_owner(place),
        name=name,
        spec=LeaseSpec(),
        state=LeaseState.RUNNING,
        epoch=1,
        created_at=now,
        updated_at=now,
        running_at=now,
        next_check_at=now + CHECK_MEMBERS_EVERY,
        kind=LeaseKind.NETWORK,
        generation=generation,
        members=(member,),
    )
    text = f"a network for {place.owner} in {place.account}/{place.region}"
    return lease, event(lease.id, now, "shared_network_opened", text, generation=generation)


def is_open(holder: Lease) -> bool:
    """Whether it may be joined."""
    return holder.state is LeaseState.RUNNING


def joined(holder: Lease, member: str, now: datetime) -> Lease:
    """The holder with one more member."""
    return holder.model_copy(update={"members": (*holder.members, member), "updated_at": now})


def shared_network(record: LeaseRecord) -> Resource | None:
    """The network of a holder; None = it must be asked for (again). Duplicates on their way out do not count."""
    networks = record.of_kind(ResourceKind.NETWORK)
    live = (ResourceState.INTENDED, ResourceState.HELD)
    return next((network for network in reversed(networks) if network.state in live), None)


def without_members(record: LeaseRecord, gone: frozenset[str], now: datetime) -> Change:
    """Take members off; when none is left, give the network back in the same write."""
    members = tuple(member for member in record.lease.members if member not in gone)
    lease = record.lease.model_copy(update={"members": members, "updated_at": now})
    if members:
        return Change(lease_id=lease.id, lease=lease)
    empty = LeaseRecord(lease, record.resources)
    return cancel(empty, now=now, reason=Reason.UNUSED, detail="its last machine is gone")


def uses_network(record: LeaseRecord, attempt: Attempt) -> bool:
    """Whether the attempt's machine is or may yet be in its shared network.

    Without a machine only while one may still be asked for. A machine for which the network was dropped may be in it
    all the same, if its create call carried the network or an attach call was ever accepted: then it leaves when gone.
    """
    attachment = attempt.attachment
    if attachment is None or not attachment.holder_id:
        return False
    machines = record.of_kind(ResourceKind.INSTANCE, attempt.number)
    if not machines:
        return attempt.open and attempt.reason is None and record.lease.state in IN_PROVISION
    if all(machine.state is ResourceState.RELEASED for machine in machines):
        return False
    return not attachment.dropped or attachment.passed or attachment.ever_accepted


def member_uses_network(record: LeaseRecord, holder: str, member: str) -> bool:
    """The same question asked by the holder about one of its members' leases."""
    for attempt in record.lease.attempts:
        if member == f"{record.lease.id}.{ResourceKind.INSTANCE.value}.{attempt.number}":
            same = attempt.attachment is not None and attempt.attachment.holder_id == holder
            return same and uses_network(record, attempt)
    return False
