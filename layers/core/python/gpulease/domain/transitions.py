"""Decisions as pure functions: a record and the time go in, the Change to commit comes out.

A decision about a lease that fences off its workflows raises the epoch and marks every resource for giving back in the
same Change, so that no moment exists in which the lease is ending and a machine of it is not on its way out.
"""

from datetime import datetime, timedelta
from hashlib import sha256

from gpulease.domain.event import Event, Fact
from gpulease.domain.flush import GIVING_BACK, held_back, waiting_text
from gpulease.domain.lease import NEXT_STATES, Attempt, Flush, Lease, LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import ReleaseProgress, Resource, ResourceState
from gpulease.domain.spec import LeaseSpec

CHECK_WORKFLOW_EVERY = timedelta(seconds=150)
"""How often `check_leases` makes sure that the workflow of a lease in motion is alive. Two of them are one sweep."""


def new_lease(
    *,
    lease_id: str,
    owner: str,
    name: str,
    spec: LeaseSpec,
    now: datetime,
    digest: str = "",
    start_script: bytes = b"",
    cache_id: str = "",
) -> tuple[Lease, Event]:
    """A lease just accepted. Nothing has been asked of a provider."""
    lease = Lease(
        id=lease_id,
        owner=owner,
        name=name,
        spec=spec,
        state=LeaseState.REQUESTED,
        epoch=1,
        created_at=now,
        updated_at=now,
        waiting_for="its first offer",
        next_check_at=now + CHECK_WORKFLOW_EVERY,
        request_digest=digest,
        cache_id=cache_id,
        start_script_bytes=len(start_script),
        start_script_sha256=sha256(start_script).hexdigest() if start_script else "",
    )
    return lease, Event(lease_id=lease_id, at=now, kind="lease_requested", text=f"{name} was requested")


def moved(lease: Lease, state: LeaseState, now: datetime, **update: object) -> Lease:
    """The lease in another state. Raises ValueError on a step that the state diagram does not have."""
    if state is not lease.state and state not in NEXT_STATES[lease.state]:
        raise ValueError(f"lease {lease.id}: {lease.state} → {state} is no step of the state diagram")
    return lease.model_copy(update={"state": state, "updated_at": now, **update})


def event(lease_id: str, now: datetime, kind: str, text: str, level: str = "info", **facts: Fact) -> Event:
    return Event(lease_id=lease_id, at=now, kind=kind, text=text, level=level, facts=facts)


def to_release(resource: Resource, now: datetime) -> Resource:
    """The resource marked for giving back; unchanged when it already is, or is gone."""
    if resource.state in (ResourceState.RELEASING, ResourceState.RELEASED):
        return resource
    return resource.model_copy(
        update={
            "state": ResourceState.RELEASING,
            "release": ReleaseProgress(requested_at=now, next_try_at=now),
            "absences": 0,
        }
    )


def cancel(
    record: LeaseRecord, *, now: datetime, reason: Reason, detail: str = "", flush: Flush | None = None
) -> Change:
    """End a lease in whatever state it is: raise the epoch, mark everything, leave the rest to `release`.

    `flush`: the time in which its agent saves the cache; the machine's turn comes after it.

    Raises ValueError when the lease is releasing or released already: that decision has been taken.
    """
    lease = record.lease
    if lease.state in (LeaseState.RELEASING, LeaseState.RELEASED):
        raise ValueError(f"lease {lease.id} is {lease.state} already")
    epoch = lease.epoch + 1
    attempts = tuple(
        a.model_copy(update={"ended_at": now, "reason": reason, "detail": detail})
        if a.open and _is_tried(lease, a)
        else a
        for a in lease.attempts
    )
    ended = moved(
        lease,
        LeaseState.RELEASING,
        now,
        epoch=epoch,
        attempts=attempts,
        reason=reason,
        reason_detail=detail,
        release_requested_at=now,
        flush=flush,
        waiting_for=GIVING_BACK if flush is None else waiting_text(flush),
        next_check_at=now + CHECK_WORKFLOW_EVERY,
        restarts=0,
    )
    marked = tuple(m for r in record.resources if (m := to_release(r, now)) is not r)
    text = f"giving back {record.lease.name}: {reason}" + (f" ({detail})" if detail else "")
    if flush is not None:
        marked = tuple(held_back(each, flush) for each in marked)
        text += f"; its cache is saved first, until {flush.latest:%H:%M} UTC at most"
    return Change(
        lease_id=lease.id,
        lease=ended,
        resources=marked,
        events=(event(lease.id, now, "release_requested", text, reason=reason.value, epoch=epoch),),
        epoch=lease.epoch,
    )


def _is_tried(lease: Lease, attempt: Attempt) -> bool:
    """Whether this attempt has never been handed over."""
    tried_anew = lease.resume is not None and attempt.number > lease.resume.attempts_before
    return lease.state is LeaseState.PROVISIONING or (lease.state is LeaseState.RESUMING and tried_anew)


def reopen(record: LeaseRecord, late: Resource, *, now: datetime) -> Change:
    """A machine of a closed intent turned up: hold it as releasing, and open its lease again if that was closed too."""
    resource = late.model_copy(
        update={
            "state": ResourceState.RELEASING,
            "released_at": None,
            "release_note": "",
            "release": ReleaseProgress(requested_at=now, next_try_at=now),
        }
    )
    lease = None
    if record.lease.state is LeaseState.RELEASED:
        lease = moved(
            record.lease,
            LeaseState.RELEASING,
            now,
            epoch=record.lease.epoch + 1,
            released_at=None,
            next_check_at=now,
            restarts=0,
            waiting_for=f"{late.kind} {late.provider_id} that appeared late",
        )
    elif record.lease.state is LeaseState.RELEASING:
        # Its row is written too, so that nobody closes it who had read it before this.
        lease = record.lease.model_copy(update={"updated_at": now})
    text = f"{late.kind} {late.provider_id} appeared after its intent was closed; it is being given back"
    return Change(
        lease_id=record.lease.id,
        lease=lease,
        resources=(resource,),
        events=(event(record.lease.id, now, "resource_appeared_late", text, "warning", resource_id=late.id),),
    )
