"""The comparison of the provider's book with the ledger finds what it is there to find."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from gpulease.domain.lease import Attempt, Lease, LeaseKind, LeaseState, Reason
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import (
    BillingRule,
    Rate,
    Resource,
    ResourceKind,
    ResourceState,
    marker_for,
    resource_id,
)
from gpulease.domain.spec import LeaseSpec
from gpulease.ledger.sqlite import SqliteLedger
from gpulease_local.books import all_records, compare
from gpulease_sim.vultr import BookObject

START = datetime(2026, 3, 1, tzinfo=UTC)
END = START + timedelta(minutes=90)
LEASE = "l-aaaaaaaaaaaa"
PRICE = Decimal("1.5")


def _machine(provider_id: str = "m-1", marker: str = "", **other: object) -> BookObject:
    given: dict[str, object] = {
        "kind": "instance",
        "id": provider_id,
        "label": "gpulease-one",
        "region": "ewr",
        "plan": "p",
        "tags": (marker or marker_for("test0", resource_id(LEASE, ResourceKind.INSTANCE, 1)),),
        "created": START.timestamp(),
        "active": START.timestamp() + 60,
        "destroyed": END.timestamp(),
        "hourly_usd": PRICE,
        "cost_usd": 2 * PRICE,
    }
    return BookObject(**(given | other))  # type: ignore[arg-type]


def _row(attempt: int = 1, provider_id: str = "m-1", state: ResourceState = ResourceState.RELEASED) -> Resource:
    identity = resource_id(LEASE, ResourceKind.INSTANCE, attempt)
    return Resource(
        id=identity,
        lease_id=LEASE,
        attempt=attempt,
        kind=ResourceKind.INSTANCE,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker=marker_for("test0", identity),
        state=state,
        intended_at=START,
        provider_id=provider_id,
        billed_from=START,
        released_at=END if state is ResourceState.RELEASED else None,
        billing=BillingRule.STARTED_HOUR,
        rates=(Rate(since=START, usd_per_hour=PRICE),),
    )


def _record(*rows: Resource, state: LeaseState = LeaseState.RELEASED, failed: tuple[int, ...] = ()) -> LeaseRecord:
    offer = Offer(
        provider="vultr",
        region="ewr",
        plan="p",
        kind=PlanKind.VM,
        gpu_model="A16",
        gpu_count=1,
        gpu_memory_gib=2,
        vcpus=2,
        memory_gib=8,
        disk_gb=50,
        price_per_hour_usd=PRICE,
    )
    attempts = tuple(
        Attempt(
            number=row.attempt,
            offer=offer,
            started_at=START,
            ready_deadline=END,
            reason=Reason.NOT_READY_IN_TIME if row.attempt in failed else None,
        )
        for row in rows
    )
    lease = Lease(
        id=LEASE,
        owner="kim",
        name="one",
        spec=LeaseSpec(),
        state=state,
        epoch=1,
        created_at=START,
        updated_at=END,
        attempts=attempts,
    )
    return LeaseRecord(lease, rows)


def test_what_was_given_back_and_proven_gone_is_clean_and_costs_the_same_on_both_sides() -> None:
    found = compare([_machine()], [_record(_row())], "test0", END)

    assert (found.clean, found.findings) == (True, ())
    assert (found.bills[0].machines, found.bills[0].ledger_usd, found.bills[0].book_usd) == (1, 2 * PRICE, 2 * PRICE)


def test_a_machine_that_exists_is_billed_and_an_orphan_once_its_row_is_closed() -> None:
    found = compare([_machine(destroyed=None)], [_record(_row())], "test0", END)

    assert (found.billed, found.orphans, found.clean) == (1, 1, False)


def test_a_machine_that_exists_under_an_open_row_is_billed_and_no_orphan() -> None:
    held = _record(_row(state=ResourceState.HELD), state=LeaseState.RUNNING)

    found = compare([_machine(destroyed=None)], [held], "test0", END)

    assert (found.billed, found.orphans, found.released, found.clean) == (1, 0, 0, False)


@pytest.mark.parametrize(
    ("marker", "destroyed", "orphans"),
    [
        ("gpulease:test0:l-bbbbbbbbbbbb.instance.1", END.timestamp(), 1),
        ("gpulease:other:l-bbbbbbbbbbbb.instance.1", END.timestamp(), 0),
        ("gpulease:other:l-bbbbbbbbbbbb.instance.1", None, 1),
        ("planted", None, 1),
        ("planted", END.timestamp(), 0),
    ],
)
def test_an_object_without_a_row_is_an_orphan_if_it_is_ours_or_exists(
    marker: str, destroyed: float | None, orphans: int
) -> None:
    found = compare([_machine(), _machine("m-2", marker, destroyed=destroyed)], [_record(_row())], "test0", END)

    assert found.orphans == orphans
    assert found.clean is (orphans == 0)


def test_two_machines_of_one_intent_are_a_duplicate() -> None:
    found = compare([_machine(), _machine("m-2")], [_record(_row())], "test0", END)

    assert (found.duplicates, found.clean) == (1, False)


def test_a_second_machine_that_the_ledger_found_and_gave_back_is_none() -> None:
    second = _row(provider_id="m-2").model_copy(update={"id": f"{_row().id}.x1"})

    found = compare([_machine(), _machine("m-2")], [_record(_row(), second)], "test0", END)

    assert (found.duplicates, found.orphans, found.clean) == (0, 0, True)


@pytest.mark.parametrize(("failed", "duplicates"), [((1,), 0), ((), 1)])
def test_a_second_machine_is_a_duplicate_unless_the_first_attempt_failed(
    failed: tuple[int, ...], duplicates: int
) -> None:
    rows = (_row(1, "m-1"), _row(2, "m-2"))
    book = [_machine("m-1", rows[0].marker), _machine("m-2", rows[1].marker)]

    assert compare(book, [_record(*rows, failed=failed)], "test0", END).duplicates == duplicates


def test_a_network_left_behind_counts_although_it_costs_nothing() -> None:
    network = _machine("n-1", "planted", kind="vpc", hourly_usd=Decimal(0), destroyed=None)

    found = compare([_machine(), network], [_record(_row())], "test0", END)

    assert (found.billed, found.clean) == (1, False)


def test_what_holds_a_shared_thing_explains_it_and_is_no_lease_of_a_user() -> None:
    marker = "gpulease:test0:n-cccccccccccc.network.1"
    network = _row().model_copy(update={"id": "n-cccccccccccc.network.1", "marker": marker, "provider_id": "n-1"})
    holder = _record().lease.model_copy(update={"id": "n-cccccccccccc", "kind": LeaseKind.NETWORK})
    book = [_machine(), _machine("n-1", marker, kind="vpc")]

    found = compare(book, [_record(_row()), LeaseRecord(holder, (network,))], "test0", END)

    assert (found.clean, found.leases, [bill.lease_id for bill in found.bills]) == (True, 1, [LEASE])


def test_all_records_are_read_page_by_page_oldest_first() -> None:
    ledger = SqliteLedger()
    for number in range(101):
        created = START + timedelta(seconds=number)
        name = "".join("abcdefghij"[int(digit)] for digit in f"{number:012}")
        lease = _record().lease.model_copy(update={"id": f"l-{name}", "created_at": created})
        ledger.create_lease(lease)

    records = all_records(ledger)

    assert len(records) == 101
    assert records[0].lease.created_at == START
