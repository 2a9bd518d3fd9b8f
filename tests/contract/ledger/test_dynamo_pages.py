"""All pages of DynamoDB are read, however small or empty they are (case C75)."""

from collections.abc import Callable
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.errors import LedgerUnavailable
from gpulease.ledger.dynamo_calls import TRIES
from gpulease.ports import Change, Ledger

from tests.support.ledger_samples import a_lease, a_resource, an_event, at
from tests.support.ledger_stores import DynamoStore

ID = "l-aaaaaaaaaaaa"
Request = dict[str, Any]


def small_pages(rows: int) -> Callable[[str, Request], None]:
    """Let DynamoDB give at most so many rows a page."""

    def before(operation: str, request: Request) -> None:
        if operation in {"query", "scan"}:
            request["Limit"] = min(rows, request.get("Limit", rows))

    return before


def read_all(ledger: Ledger) -> dict[str, object]:
    """Everything that is read over pages."""
    return {
        "record": ledger.load(ID),
        "events": [event.kind for event in ledger.events(ID).items],
        "ada": [lease.id for lease in ledger.leases_of("ada").items],
        "all": [lease.id for lease in ledger.leases_of(None).items],
        "due": ledger.due(at(100)),
        "first due": ledger.due(at(100), limit=3),
        "open": sorted(resource.id for resource in ledger.open_resources()),
        "open in": sorted(resource.id for resource in ledger.open_resources(provider="vultr", region="ewr")),
    }


def many(store: DynamoStore) -> Ledger:
    """Seven leases; the first has seven resources and events."""
    ledger = store.ledger()
    ledger.create_lease(a_lease(), [an_event(kind=f"e{n}") for n in range(7)])
    for n in range(1, 8):
        ledger.commit(Change(ID, resources=(a_resource(attempt=n),)))
    for n in range(6):
        ledger.create_lease(a_lease(f"l-{n}", next_check_at=at(n)))
    return ledger


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_all_pages_are_read_however_small(dynamo: DynamoStore, rows: int) -> None:
    expected = read_all(many(dynamo))

    ledger, _ = dynamo.scripted(before=small_pages(rows))

    assert read_all(ledger) == expected


def test_a_reader_of_first_pages_only_would_be_seen(dynamo: DynamoStore) -> None:
    expected = read_all(many(dynamo))

    def forget(operation: str, request: Request, answer: Request) -> None:
        answer.pop("LastEvaluatedKey", None)

    ledger, _ = dynamo.scripted(before=small_pages(2), after=forget)
    found = read_all(ledger)

    assert {what for what in expected if found[what] == expected[what]} <= {"first due"}


def test_an_empty_page_is_not_the_end(dynamo: DynamoStore) -> None:
    expected = read_all(many(dynamo))
    kept: list[Request] = []

    def before(operation: str, request: Request) -> None:
        if operation in {"query", "scan"} and kept:
            request["ExclusiveStartKey"] = request["ExclusiveStartKey"].pop("real", None) or {}
            if not request["ExclusiveStartKey"]:
                del request["ExclusiveStartKey"]
        small_pages(2)(operation, request)

    def after(operation: str, request: Request, answer: Request) -> None:
        if operation not in {"query", "scan"}:
            return
        if kept:
            kept.clear()  # this page is told as it is
            return
        start = request.get("ExclusiveStartKey", {})
        answer["Items"], answer["Count"] = [], 0
        answer["LastEvaluatedKey"] = {**start, "created": start.get("created", {"S": "-"}), "real": start}
        kept.append(request)

    ledger, client = dynamo.scripted(before=before, after=after)

    assert read_all(ledger) == expected
    assert len(client.calls) > 40


def test_rare_states_are_found_behind_pages_that_a_filter_left_empty(dynamo: DynamoStore) -> None:
    ledger = dynamo.ledger()
    for n in range(60):
        state = LeaseState.RUNNING if n < 3 else LeaseState.RELEASED
        ledger.create_lease(a_lease(f"l-{n:02}", created_at=at(n), state=state))
    small, _ = dynamo.scripted(before=small_pages(3))

    found, cursor, empty_pages = list[str](), None, 0
    while True:
        page = small.leases_of("ada", states=(LeaseState.RUNNING,), cursor=cursor)
        found += [lease.id for lease in page.items]
        cursor = page.cursor
        empty_pages += not page.items
        if cursor is None:
            break

    assert found == ["l-02", "l-01", "l-00"]
    assert empty_pages >= 1


def test_keys_that_stay_unprocessed_are_asked_for_again(dynamo: DynamoStore) -> None:
    expected = read_all(many(dynamo))

    rest: list[Any] = []

    def before(operation: str, request: Request) -> None:
        if operation == "batch_get_item":
            (wanted,) = request["RequestItems"].values()
            rest[:], wanted["Keys"] = wanted["Keys"][1:], wanted["Keys"][:1]

    def after(operation: str, request: Request, answer: Request) -> None:
        if operation == "batch_get_item" and rest:
            answer["UnprocessedKeys"] = {dynamo.table: {"Keys": list(rest), "ConsistentRead": True}}

    ledger, _ = dynamo.scripted(before=before, after=after)

    assert read_all(ledger) == expected


def test_keys_that_are_never_processed_end_as_unavailable(dynamo: DynamoStore) -> None:
    many(dynamo)

    def after(operation: str, request: Request, answer: Request) -> None:
        if operation == "batch_get_item":
            answer["Responses"] = {}
            answer["UnprocessedKeys"] = request["RequestItems"]

    ledger, client = dynamo.scripted(after=after)

    with pytest.raises(LedgerUnavailable):
        ledger.leases_of("ada")
    assert client.calls.count("batch_get_item") == TRIES
