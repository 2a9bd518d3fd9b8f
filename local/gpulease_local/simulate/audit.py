"""Compares the simulated provider's own book with our ledger. The book is the truth: it is what one pays for.

- orphan: billed at the provider, and not held in the ledger by anything that will give it back;
- duplicate: a second thing that was created for one and the same intent (one marker), whatever became of it;
- stuck: a lease that should have ended by now and has not.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpulease.domain.cost import lease_cost
from gpulease.domain.lease import LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState

from gpulease_local.simulate.clouds import Clouds, Thing

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Audit:
    """What the comparison found; the lists name provider ids and lease ids, so that a failure can be looked into."""

    created: int
    billed: tuple[str, ...]
    orphans: tuple[str, ...]
    duplicates: tuple[str, ...]
    stuck: tuple[str, ...]
    closed_while_billed: tuple[str, ...]
    cost_book_usd: Decimal
    cost_ledger_usd: Decimal

    def suspicious(self) -> dict[str, tuple[str, ...]]:
        """What must be empty, by name."""
        return {
            "orphan": self.orphans,
            "duplicate": self.duplicates,
            "stuck": self.stuck,
            "closed_while_billed": self.closed_while_billed,
        }


def audit(clouds: Clouds, records: Iterable[LeaseRecord], now: datetime, *, without: Iterable[str] = ()) -> Audit:
    """Compare as of now. `without`: ids of things that are none of ours."""
    records = list(records)
    strangers = frozenset(without)
    moment = now.timestamp()
    objects = [each for each in clouds.things() if each.id not in strangers]
    cared_for = [resource for record in records for resource in record.resources if _is_cared_for(record, resource)]
    held = {resource.provider_id for resource in cared_for if resource.provider_id}
    intents = {resource.marker for resource in cared_for if not resource.provider_id}
    closed = {
        resource.provider_id
        for record in records
        for resource in record.resources
        if resource.provider_id and resource.state is ResourceState.RELEASED
    }
    whole = {resource.marker for resource in cared_for}
    billed = [each for each in objects if each.exists(moment)]
    return Audit(
        created=len(objects),
        billed=tuple(each.id for each in billed),
        orphans=tuple(
            each.id
            for each in billed
            if each.id not in held and not intents.intersection(each.markers) and each.part_of not in whole
        ),
        duplicates=tuple(duplicates(objects)),
        stuck=tuple(record.lease.id for record in records if record.lease.state is not LeaseState.RELEASED),
        closed_while_billed=tuple(each.id for each in billed if each.id in closed),
        cost_book_usd=sum((each.source.cost_usd(moment) for each in objects), Decimal(0)),
        cost_ledger_usd=sum((lease_cost(record, now) for record in records), Decimal(0)),
    )


def _is_cared_for(record: LeaseRecord, resource: Resource) -> bool:
    """Whether somebody gives it back sooner or later: nobody works for a lease that is released."""
    if record.lease.state is LeaseState.RELEASED:
        return resource.state is ResourceState.RELEASING
    return resource.state is not ResourceState.RELEASED


def duplicates(objects: Iterable[Thing]) -> list[str]:
    """Ids beyond the first of each marker: one intent, more than one creation."""
    seen: Counter[str] = Counter()
    extra = []
    for each in objects:
        for marker in set(each.markers) if not each.part_of else ():
            seen[marker] += 1
            if seen[marker] > 1:
                extra.append(each.id)
    return extra


def machines_of(record: LeaseRecord) -> list[str]:
    """Provider ids of every machine the ledger knows for a lease."""
    return [resource.provider_id for resource in record.of_kind(ResourceKind.INSTANCE) if resource.provider_id]
