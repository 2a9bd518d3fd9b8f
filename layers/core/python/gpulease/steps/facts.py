"""Facts about resources that are written down whatever the epoch (law 3)."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

from gpulease.domain.observation import Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import CREATED, Resource, ResourceState
from gpulease.domain.transitions import event, reopen
from gpulease.ports import Deps
from gpulease.steps.base import record_fact
from gpulease.steps.starting import start_release

EARLIEST_CREATION = timedelta(minutes=5)
"""A provider's clock may be behind ours by so much before its creation time is not believed."""


def note_created(deps: Deps, lease_id: str, resource_id: str, seen: Observation) -> LeaseRecord:
    """This provider id exists and is ours. A resource closed meanwhile is opened again and given back."""
    record = record_fact(deps, lease_id, resource_id, partial(_created, deps=deps, seen=seen))
    resource = record.resource(resource_id)
    known = next((r for r in record.resources if r.provider_id == seen.provider_id), None)
    if known is not None and known.state is not ResourceState.RELEASED:
        return record
    if resource is not None and (resource.provider_id or resource.state is ResourceState.RELEASED):
        # A duplicate, or something that was closed: nobody gives it back yet. Its row's version makes the name new.
        after = deps.ledger.load(lease_id)
        row = next((r for r in after.resources if r.provider_id == seen.provider_id), resource)
        start_release(after, deps, f"late{len(after.resources)}v{row.version}")
    return record


def _created(record: LeaseRecord, resource: Resource, *, deps: Deps, seen: Observation) -> Change | None:
    now = deps.clock.now()
    if resource.provider_id == seen.provider_id and resource.state is not ResourceState.RELEASED:
        return None
    if resource.provider_id and resource.provider_id != seen.provider_id:
        return _extra(record, resource, deps, seen)
    believed = (
        seen.created_at if seen.created_at and seen.created_at > resource.intended_at - EARLIEST_CREATION else None
    )
    known = resource.model_copy(
        update={
            "provider_id": seen.provider_id,
            "subkind": seen.subkind or resource.subkind,
            "status": CREATED,
            "address": seen.address,
            "held_at": now,
            "billed_from": min(believed or now, now),
            "state": ResourceState.HELD if resource.state is ResourceState.INTENDED else resource.state,
        }
    )
    if resource.state is ResourceState.RELEASED:
        return reopen(record, known, now=now)
    text = f"{resource.kind} {seen.provider_id} exists at {resource.provider}/{resource.region} ({seen.words})"
    told = event(record.lease.id, now, f"{resource.kind}_created", text, resource_id=resource.id)
    return Change(lease_id=record.lease.id, resources=(known,), events=(told,))


def _extra(record: LeaseRecord, resource: Resource, deps: Deps, seen: Observation) -> Change | None:
    """A second thing with the same marker: the provider carried one create out twice. It is held, as releasing."""
    now = deps.clock.now()
    known = next((r for r in record.resources if r.provider_id == seen.provider_id), None)
    if known is not None:
        return reopen(record, known, now=now) if known.state is ResourceState.RELEASED else None
    siblings = sum(r.id.startswith(resource.id) for r in record.resources)
    extra = resource.model_copy(
        update={
            "id": f"{resource.id}.x{siblings}",
            "version": 0,
            "provider_id": seen.provider_id,
            "status": seen.words,
            "held_at": now,
            "billed_from": min(seen.created_at or now, now),
        }
    )
    text = f"a second {resource.kind} with our marker, {seen.provider_id}, is being given back"
    told = event(record.lease.id, now, "duplicate_found", text, "warning", resource_id=extra.id)
    # `reopen`: the lease may have been closed meanwhile.
    return replace(reopen(record, extra, now=now), events=(told,))


def adopt(deps: Deps, resource: Resource, found: list[Observation]) -> None:
    """Write down everything found under a resource's marker: the first as the resource, others as duplicates."""
    for seen in sorted(found, key=lambda o: (str(o.created_at), o.provider_id)):
        note_created(deps, resource.lease_id, resource.id, seen)
