"""Joining and leaving the network that an owner's leases share. The rules are in `domain/shared_network.py`.

What may happen between any two effects here: the lease says which holder it wants before it joins, so that leaving
finds it; a membership that nobody took off (cut off, lost, written by a late twin) is taken off by the holder's own
check, which asks every member's lease.
"""

from zlib import crc32

from gpulease.domain.lease import Attachment, Attempt, Lease, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, resource_id
from gpulease.domain.shared_network import (
    CHECK_MEMBERS_EVERY,
    Place,
    holder_id,
    holder_owner,
    is_open,
    joined,
    member_uses_network,
    new_holder,
    shared_network,
    uses_network,
    without_members,
)
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event
from gpulease.errors import LeaseConflict, LeaseExists, LeaseNotFound, LeaseSuperseded
from gpulease.ports import Deps, Ledger, Provider
from gpulease.steps.base import with_attempt
from gpulease.steps.starting import start_release

TRIES = 20
"""Of one write to a holder's row in one call. Each lost try is somebody else's success, so of forty who come at once
half are done by then; the others come back after a pause."""

PASSING_MAY_BE_WHY = frozenset({Reason.NEVER_APPEARED, Reason.NETWORK_UNSUPPORTED, Reason.REJECTED})


def place_of(lease: Lease, attempt: Attempt, provider: Provider) -> Place:
    return Place(owner=lease.owner, account=provider.account, region=attempt.offer.region)


def newest_holder(place: Place, ledger: Ledger) -> LeaseRecord | None:
    """The place's open holder, or the last one that was. The index says where to begin and may be late; rows decide."""
    listed = ledger.leases_of(holder_owner(place), limit=1).items
    generation = listed[0].generation if listed else 1
    found = None
    while True:
        try:
            record = ledger.load(holder_id(place, generation))
        except LeaseNotFound:
            return found
        if is_open(record.lease):
            return record
        # Said by its id: a holder that the sweep found and took up does not know its own generation.
        found = LeaseRecord(record.lease.model_copy(update={"generation": generation}), record.resources)
        generation += 1


def join(
    record: LeaseRecord, attempt: Attempt, place: Place, deps: Deps, *, passed: bool = False
) -> LeaseRecord | None:
    """Make the attempt's machine a member of the place's open holder, which is opened where there is none.

    Returns the holder as it was before or after; None = too many others at once, come back. The lease's row is written
    too, so it must be read again. Raises LeaseSuperseded, LeaseConflict (the lease moved on).
    """
    member = resource_id(record.lease.id, ResourceKind.INSTANCE, attempt.number)
    lease = record.lease
    for _ in range(TRIES):
        holder = newest_holder(place, deps.ledger)
        opened = holder if holder is not None and is_open(holder.lease) else None
        generation = holder.lease.generation + (opened is None) if holder is not None else 1
        wanted = holder_id(place, generation)
        lease = _wants(lease, attempt.number, wanted, deps, passed=passed)
        now = deps.clock.now()
        try:
            if opened is None:
                made, told = new_holder(place, generation, member, now)
                deps.ledger.create_lease(made, (told,))
                return deps.ledger.load(wanted)
            if member not in opened.lease.members:
                deps.ledger.commit(Change(lease_id=wanted, lease=joined(opened.lease, member, now)))
            return opened
        except (LeaseConflict, LeaseExists):
            continue
    return None


def _wants(lease: Lease, number: int, holder: str, deps: Deps, *, passed: bool) -> Lease:
    """The lease with the holder noted. Written only when it is news."""
    attempt = lease.attempts[number - 1]
    attachment = attempt.attachment or Attachment()
    if attachment.holder_id == holder and attachment.passed >= passed and not attachment.left:
        return lease
    update = {"holder_id": holder, "passed": attachment.passed or passed, "left": False}
    noted = attempt.model_copy(update={"attachment": attachment.model_copy(update=update)})
    changed = with_attempt(lease, noted)
    told = event(lease.id, deps.clock.now(), "network_shared", f"uses the shared network {holder}", holder=holder)
    deps.ledger.commit(Change(lease_id=lease.id, lease=changed, events=(told,), epoch=lease.epoch))
    return changed.model_copy(update={"version": lease.version + 1})


def network_to_pass(record: LeaseRecord, attempt: Attempt, place: Place, deps: Deps) -> str:
    """Provider id of a shared network that exists, joined, for the create call; "" = it is attached later."""
    if attempt.offer.private_network is False or _passing_failed(record.lease, attempt):
        return ""
    holder = newest_holder(place, deps.ledger)
    if holder is None or not is_open(holder.lease) or not _held_id(holder):
        return ""
    member_of = join(record, attempt, place, deps, passed=True)
    return "" if member_of is None else _held_id(member_of)


def _held_id(holder: LeaseRecord) -> str:
    network = shared_network(holder)
    return network.provider_id if network is not None else ""


def _passing_failed(lease: Lease, attempt: Attempt) -> bool:
    """Whether a create call of this plan with a network in it came to nothing before: then it is asked for without."""
    return any(
        earlier.attachment is not None
        and earlier.attachment.passed
        and earlier.offer.plan == attempt.offer.plan
        and earlier.reason in PASSING_MAY_BE_WHY
        for earlier in lease.attempts
        if earlier.number < attempt.number
    )


def pause_before_joining(record: LeaseRecord) -> int:
    """1 to 4 seconds, so that those who came at once do not come back at once."""
    return 1 + crc32(record.lease.id.encode()) % 4


def leave_unused(record: LeaseRecord, deps: Deps) -> None:
    """Take the lease's machines that need it no longer off their shared networks. Cheap when there are none."""
    done = [
        attempt
        for attempt in record.lease.attempts
        if attempt.attachment is not None
        and attempt.attachment.holder_id
        and not attempt.attachment.left
        and not uses_network(record, attempt)
    ]
    if not done:
        return
    lease = record.lease
    for attempt in done:
        if attempt.attachment is None:
            continue
        member = resource_id(lease.id, ResourceKind.INSTANCE, attempt.number)
        leave(attempt.attachment.holder_id, frozenset({member}), deps)
        left = attempt.attachment.model_copy(update={"left": True})
        lease = with_attempt(lease, attempt.model_copy(update={"attachment": left}))
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease))


def leave(holder: str, gone: frozenset[str], deps: Deps) -> LeaseRecord | None:
    """Take members off. The last one's leaving starts giving the network back. Returns the holder as it was read."""
    for _ in range(TRIES):
        try:
            record = deps.ledger.load(holder)
        except LeaseNotFound:
            # Cut off between the wish to join and the joining.
            return None
        if not is_open(record.lease) or gone.isdisjoint(record.lease.members):
            return record
        change = without_members(record, gone, deps.clock.now())
        try:
            deps.ledger.commit(change)
        except (LeaseConflict, LeaseSuperseded):
            continue
        if change.lease is not None and not is_open(change.lease):
            start_release(LeaseRecord(change.lease), deps)
        return record
    raise LeaseConflict(f"{holder}: {TRIES} writes in a row lost against others")


def check_members(record: LeaseRecord, deps: Deps) -> None:
    """The holder's own check, every few minutes: members whose leases need it no longer are taken off."""
    now = deps.clock.now()
    gone = frozenset(member for member in record.lease.members if not _needs_it(member, record.lease.id, deps))
    if gone:
        deps.log.warning("members_found_gone", lease_id=record.lease.id, members=len(gone))
        leave(record.lease.id, gone, deps)
        record = deps.ledger.load(record.lease.id)
    if is_open(record.lease):
        leftovers = any(r.release is not None and r.released_at is None for r in record.resources)
        again = now + (CHECK_WORKFLOW_EVERY if leftovers else CHECK_MEMBERS_EVERY)
        deps.ledger.commit(
            Change(lease_id=record.lease.id, lease=record.lease.model_copy(update={"next_check_at": again}))
        )


def _needs_it(member: str, holder: str, deps: Deps) -> bool:
    try:
        record = deps.ledger.load(member.partition(".")[0])
    except LeaseNotFound:
        return False
    return member_uses_network(record, holder, member)


def network_of_member(attempt: Attempt, deps: Deps) -> tuple[LeaseRecord, Resource] | None:
    """The shared network of an attempt's machine with its holder; None = there is none (any more)."""
    if attempt.attachment is None or not attempt.attachment.holder_id:
        return None
    try:
        holder = deps.ledger.load(attempt.attachment.holder_id)
    except LeaseNotFound:
        return None
    network = shared_network(holder)
    return None if network is None or not is_open(holder.lease) else (holder, network)
