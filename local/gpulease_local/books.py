"""Compares the simulated provider's own book with our ledger: the proof that nothing was lost, doubled or forgotten.

Invariants: the book is what counts (it was written by somebody else); an object is ours when it carries the marker of
our deployment; nothing here changes either side.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpulease.domain.cost import lease_cost
from gpulease.domain.lease import LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.ports import Ledger
from gpulease_sim.vultr import BookObject

MACHINES = frozenset({"instance", "bare_metal"})
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


def all_records(ledger: Ledger) -> list[LeaseRecord]:
    """Every lease with its resources, oldest first."""
    records: list[LeaseRecord] = []
    cursor: str | None = None
    while True:
        page = ledger.leases_of(None, cursor=cursor, limit=_PAGE)
        records += [ledger.load(lease.id) for lease in page.items]
        cursor = page.cursor
        if cursor is None:
            return records[::-1]


def compare(book: Iterable[BookObject], records: Iterable[LeaseRecord], deployment: str, now: datetime) -> Comparison:
    """Hold the book against the ledger, both as of `now`."""
    objects, leases = list(book), list(records)
    rows = {resource.marker: resource for record in leases for resource in record.resources}
    findings: list[str] = []
    existing = [each for each in objects if each.destroyed is None]
    findings += [f"{each.kind} {each.id} ({each.label}) still exists" for each in existing]
    orphans = [each for each in objects if _is_orphan(each, rows, deployment)]
    findings += [f"{each.kind} {each.id} ({_marker(each) or each.label}) has no row in the ledger" for each in orphans]
    doubled = _doubled(objects, findings) + _handed_out_twice(leases, findings)
    return Comparison(
        leases=len(leases),
        released=sum(record.lease.state is LeaseState.RELEASED for record in leases),
        billed=len(existing),
        orphans=len(orphans),
        duplicates=doubled,
        bills=tuple(_bill(record, objects, now) for record in leases),
        findings=tuple(findings),
    )


def _marker(each: BookObject) -> str:
    return each.markers[0] if each.markers else ""


def _is_orphan(each: BookObject, rows: Mapping[str, Resource], deployment: str) -> bool:
    row = next((rows[marker] for marker in each.markers if marker in rows), None)
    if row is not None:
        return each.destroyed is None and row.state is ResourceState.RELEASED
    return each.destroyed is None or any(marker.startswith(f"gpulease:{deployment}:") for marker in each.markers)


def _doubled(objects: Iterable[BookObject], findings: list[str]) -> int:
    """An intent has one marker and explains one machine."""
    made = Counter(_marker(each) for each in objects if each.kind in MACHINES and each.markers)
    twice = {marker: count for marker, count in made.items() if count > 1}
    findings += [f"{count} machines were created for {marker}" for marker, count in twice.items()]
    return sum(count - 1 for count in twice.values())


def _handed_out_twice(records: Iterable[LeaseRecord], findings: list[str]) -> int:
    """Of all attempts of a lease at most one may have succeeded with a machine."""
    extra = 0
    for record in records:
        good = {attempt.number for attempt in record.lease.attempts if attempt.reason is None and attempt.asked}
        machines = [r for r in record.of_kind(ResourceKind.INSTANCE) if r.attempt in good and r.provider_id]
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
