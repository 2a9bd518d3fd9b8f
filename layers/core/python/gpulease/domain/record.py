"""A lease read whole, and a change to it written whole."""

from dataclasses import dataclass

from gpulease.domain.event import Event
from gpulease.domain.lease import Lease
from gpulease.domain.resource import Resource, ResourceKind


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease with all its resources, read together and consistently."""

    lease: Lease
    resources: tuple[Resource, ...] = ()

    def resource(self, resource_id: str) -> Resource | None:
        return next((r for r in self.resources if r.id == resource_id), None)

    def of_kind(self, kind: ResourceKind, attempt: int | None = None) -> tuple[Resource, ...]:
        return tuple(r for r in self.resources if r.kind == kind and (attempt is None or r.attempt == attempt))


@dataclass(frozen=True, slots=True)
class Change:
    """Written all or nothing.

    `lease` and each resource carry the version they were read with (0 = must not exist yet); the ledger stores version
    + 1 and raises LeaseConflict, writing nothing, when any row has another version by now. `epoch`: additionally the
    stored lease must have this epoch, else LeaseSuperseded (checked also when `lease` is None).
    """

    lease_id: str
    lease: Lease | None = None
    resources: tuple[Resource, ...] = ()
    events: tuple[Event, ...] = ()
    epoch: int | None = None
