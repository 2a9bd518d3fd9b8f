"""Compares the simulated provider's own book with our ledger: the proof that nothing was lost, doubled or forgotten.

Invariants: the book is what counts (it was written by somebody else); an object is ours when it carries the marker of
our deployment; nothing here changes either side.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpulease.domain.cost import lease_cost
from gpulease.domain.lease import Lease, LeaseKind, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState, resource_id
from gpulease.ports import Ledger
from gpulease_sim.vultr import BookObject

MACHINES = frozenset({"instance", "bare_metal"})
OPEN_STATES = tuple(state for state in LeaseState if state is not LeaseState.RELEASED)
_PAGE = 100


@dataclass(frozen=True, slots=True)
class LeaseBill:
    """One lease on both sides. Costs in US dollars; `machines` are all that the book has of it."""

    lease_id: str
    name: str
    state: LeaseState
    machines: int
    ledger_usd: Decimal
    book_usd: Decimal


@dataclass(frozen=True, slots=True)
class Comparison:
    """`findings` says in words what each number other than 0 is about."""

    leases: int
    released: int
    """Released by the ledger, and by the book nothing of theirs exists."""
    billed: int
    """Objects that exist at the provider, also those that cost nothing."""
    orphans: int
    """Objects that exist without an open row in the ledger, or ever carried our marker unknown to the ledger."""
    duplicates: int
    """Machines more than the ledger's attempts explain, and second machines that were handed out for one lease."""
    bills: tuple[LeaseBill, ...]
    findings: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Everything given back, nothing left over, nothing doubled."""
        return self.released == self.leases and not (self.billed or self.orphans or self.duplicates)


def is_users(lease: Lease) -> bool:
    """Whether somebody asked for it; other records hold what several leases share."""
    return lease.kind is LeaseKind.MACHINE


def all_records(ledger: Ledger) -> list[LeaseRecord]:
    """Every record with its resources, oldest first; also those that hold what leases share."""
    records: list[LeaseRecord] = []
    cursor: str | None = None
    while True:
        page = ledger.leases_of(None, cursor=cursor, limit=_PAGE)
        records += [ledger.load(lease.id) for lease in page.items]
        cursor = page.cursor
        if cursor is None:
            return records[::-1]


def open_records(ledger: Ledger) -> list[LeaseRecord]:
    """Every record that is not released, with its resources; also those that hold what leases share."""
    records: list[LeaseRecord] = []
    cursor: str | None = None
    while True:
        page = ledger.leases_of(None, states=OPEN_STATES, cursor=cursor, limit=_PAGE)
        records += [ledger.load(lease.id) for lease in page.items]
        cursor = page.cursor
        if cursor is None:
            return records


def compare(book: Iterable[BookObject], records: Iterable[LeaseRecord], deployment: str, now: datetime) -> Comparison:
    """Hold the book against the ledger, both as of `now`."""
    objects, known = list(book), list(records)
    leases = [record for record in known if is_users(record.lease)]
    rows: dict[str, list[Resource]] = defaultdict(list)
    for record in known:
        for resource in record.resources:
            rows[resource.marker].append(resource)
    findings: list[str] = []
    existing = [each for each in objects if each.destroyed is None]
    findings += [f"{each.kind} {each.id} ({each.label}) still exists" for each in existing]
    orphans = [each for each in objects if _is_orphan(each, rows, deployment)]
    findings += [f"{each.kind} {each.id} ({_marker(each) or each.label}) has no row in the ledger" for each in orphans]
    doubled = _doubled(objects, rows, findings) + _handed_out_twice(leases, findings)
    return Comparison(
        leases=len(leases),
        released=sum(_is_released(record, existing) for record in leases),
        billed=len(existing),
        orphans=len(orphans),
        duplicates=doubled,
        bills=tuple(_bill(record, objects, now) for record in leases),
        findings=tuple(findings),
    )


def _is_released(record: LeaseRecord, existing: Iterable[BookObject]) -> bool:
    own = {resource.marker for resource in record.resources}
    return record.lease.state is LeaseState.RELEASED and not any(own.intersection(each.markers) for each in existing)


def _marker(each: BookObject) -> str:
    return each.markers[0] if each.markers else ""


def _is_orphan(each: BookObject, rows: Mapping[str, list[Resource]], deployment: str) -> bool:
    own = [row for marker in each.markers for row in rows.get(marker, ())]
    if own:
        held = any(row.state is not ResourceState.RELEASED for row in own if row.provider_id in ("", each.id))
        return each.destroyed is None and not held
    return each.destroyed is None or any(marker.startswith(f"gpulease:{deployment}:") for marker in each.markers)


def _doubled(objects: Iterable[BookObject], rows: Mapping[str, list[Resource]], findings: list[str]) -> int:
    """A row of the ledger explains one machine; a create that was carried out twice has a row for each."""
    made = Counter(_marker(each) for each in objects if each.kind in MACHINES and each.markers)
    extra = {marker: count - max(1, len(rows.get(marker, ()))) for marker, count in made.items()}
    findings += [f"{count} machines too many were created for {marker}" for marker, count in extra.items() if count > 0]
    return sum(max(0, count) for count in extra.values())


def _handed_out_twice(records: Iterable[LeaseRecord], findings: list[str]) -> int:
    """Of all attempts of a lease at most one may have succeeded with a machine."""
    extra = 0
    for record in records:
        good = {attempt.number for attempt in record.lease.attempts if attempt.reason is None and attempt.asked}
        rows = {resource_id(record.lease.id, ResourceKind.INSTANCE, number) for number in good}
        machines = [resource for resource in record.resources if resource.id in rows and resource.provider_id]
        if len(machines) > 1:
            findings.append(f"{record.lease.id} was given {len(machines)} machines")
            extra += len(machines) - 1
    return extra


def _bill(record: LeaseRecord, objects: Iterable[BookObject], now: datetime) -> LeaseBill:
    markers = {resource.marker for resource in record.resources}
    own = [each for each in objects if markers.intersection(each.markers)]
    return LeaseBill(
        lease_id=record.lease.id,
        name=record.lease.name,
        state=record.lease.state,
        machines=sum(each.kind in MACHINES for each in own),
        ledger_usd=lease_cost(record, now),
        book_usd=sum((each.cost_usd for each in own), Decimal(0)),
    )
