"""What only DynamoDB can do to us: throttling, conflicts of transactions, pages, late indexes, broken answers."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from botocore.parsers import ResponseParserError
from gpulease.errors import GpuleaseError, LeaseConflict, LeaseSuperseded, LedgerUnavailable
from gpulease.ledger.dynamo_calls import LONGEST_PAUSE_SECONDS, TRIES
from gpulease.ledger.keys import DUE_SHARDS, due_shard, due_shards
from gpulease.ports import Change, Ledger

from tests.support.ledger_samples import NOW, a_lease, a_resource, an_event, at
from tests.support.ledger_stores import DynamoStore, client_error

ID = "l-aaaaaaaaaaaa"
Request = dict[str, Any]

CALLS: dict[str, Callable[[Ledger], object]] = {
    "create": lambda ledger: ledger.create_lease(a_lease("l-new"), [an_event("l-new")]),
    "create alone": lambda ledger: ledger.create_lease(a_lease("l-new")),
    "load": lambda ledger: ledger.load(ID),
    "commit": lambda ledger: ledger.commit(Change(ID, resources=(a_resource(attempt=2),))),
    "commit all": lambda ledger: ledger.commit(Change(ID, resources=(a_resource(attempt=2),), epoch=1)),
    "script": lambda ledger: ledger.start_script(ID),
    "events": lambda ledger: ledger.events(ID),
    "leases": lambda ledger: ledger.leases_of("ada"),
    "due": lambda ledger: ledger.due(at(100)),
    "open": lambda ledger: list(ledger.open_resources()),
}


def filled(store: DynamoStore) -> DynamoStore:
    """A lease, a resource, an event."""
    ledger = store.ledger()
    ledger.create_lease(a_lease(), [an_event()], b"script")
    ledger.commit(Change(ID, resources=(a_resource(),)))
    return store


def failing(error: Exception, times: int) -> Callable[[str, Request], None]:
    """A hook that fails the first calls."""
    left = [error] * times

    def before(operation: str, request: Request) -> None:
        if left:
            raise left.pop()

    return before


# --- faults -----------------------------------------------------------------------------------------------------------

PASSING = [
    client_error("ProvisionedThroughputExceededException"),
    client_error("ThrottlingException"),
    client_error("RequestLimitExceeded"),
    client_error("InternalServerError", 500),
    client_error("ServiceUnavailable", 503),
    ReadTimeoutError(endpoint_url="http://127.0.0.1"),
    EndpointConnectionError(endpoint_url="http://127.0.0.1"),
    ResponseParserError("not JSON"),
]
FINAL = [
    client_error("AccessDeniedException"),
    client_error("ResourceNotFoundException"),
    client_error("ValidationException"),
    client_error("ExpiredTokenException"),
    client_error("IdempotentParameterMismatchException"),
    NoCredentialsError(),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_passing_faults_are_waited_out(dynamo: DynamoStore, call: str, error: Exception) -> None:
    ledger, _ = filled(dynamo).scripted(before=failing(error, TRIES - 1))

    CALLS[call](ledger)

    assert len(dynamo.pauses) == TRIES - 1
    assert all(0 < pause <= LONGEST_PAUSE_SECONDS for pause in dynamo.pauses)
    assert dynamo.pauses == sorted(dynamo.pauses)


@pytest.mark.parametrize("call", CALLS)
def test_faults_that_do_not_pass_end_as_unavailable(dynamo: DynamoStore, call: str) -> None:
    filled(dynamo)
    for error in PASSING:
        ledger, client = dynamo.scripted(before=failing(error, 1000))
        with pytest.raises(LedgerUnavailable):
            CALLS[call](ledger)
        assert len(client.calls) == TRIES


@pytest.mark.parametrize("call", CALLS)
def test_faults_that_cannot_pass_are_not_tried_again(dynamo: DynamoStore, call: str) -> None:
    filled(dynamo)
    for error in FINAL:
        ledger, client = dynamo.scripted(before=failing(error, 1000))
        with pytest.raises(LedgerUnavailable):
            CALLS[call](ledger)
        assert len(client.calls) == 1


@pytest.mark.parametrize("call", ["load", "script", "events", "leases", "due", "open"])
def test_an_answer_with_nothing_in_it_is_a_fault_and_not_an_empty_result(dynamo: DynamoStore, call: str) -> None:
    def after(operation: str, request: Request, answer: Request) -> None:
        answer.clear()

    ledger, client = filled(dynamo).scripted(after=after)

    with pytest.raises(LedgerUnavailable):
        CALLS[call](ledger)
    assert len(client.calls) == TRIES


def cancelled(*codes: str) -> Exception:
    """A cancelled transaction with these reasons."""
    reasons = [{"Code": code} for code in codes]
    return client_error("TransactionCanceledException", CancellationReasons=reasons, operation="TransactWriteItems")


CONTENDED = [
    cancelled("None", "TransactionConflict"),
    client_error("TransactionConflictException"),
    client_error("TransactionInProgressException"),
]


@pytest.mark.parametrize("error", CONTENDED, ids=str)
def test_a_writer_in_the_way_is_waited_for_and_then_a_conflict(dynamo: DynamoStore, error: Exception) -> None:
    filled(dynamo)
    waited, _ = dynamo.scripted(before=failing(error, TRIES - 1))
    in_vain, client = dynamo.scripted(before=failing(error, TRIES))

    waited.commit(Change(ID, resources=(a_resource(attempt=2),), epoch=1))
    with pytest.raises(LeaseConflict):
        in_vain.commit(Change(ID, resources=(a_resource(attempt=3),), epoch=1))

    assert len(client.calls) == TRIES
    assert [resource.attempt for resource in dynamo.ledger().load(ID).resources] == [1, 2]


def test_a_throttled_transaction_is_tried_again(dynamo: DynamoStore) -> None:
    error = cancelled("None", "ThrottlingError")
    ledger, _ = filled(dynamo).scripted(before=failing(error, TRIES - 1))
    in_vain, _ = dynamo.scripted(before=failing(error, TRIES))

    ledger.commit(Change(ID, resources=(a_resource(attempt=2),), epoch=1))
    with pytest.raises(LedgerUnavailable):
        in_vain.commit(Change(ID, resources=(a_resource(attempt=3),), epoch=1))


def test_a_writer_in_the_way_after_a_lost_answer_may_be_ourselves_so_the_end_is_unknown(dynamo: DynamoStore) -> None:
    script = [client_error("InternalServerError", 500), *[cancelled("TransactionConflict")] * TRIES]

    def before(operation: str, request: Request) -> None:
        raise script.pop(0)

    ledger, _ = filled(dynamo).scripted(before=before)

    with pytest.raises(LedgerUnavailable):
        ledger.commit(Change(ID, resources=(a_resource(attempt=2),), epoch=1))


def test_a_lost_transaction_is_known_as_ours_though_the_epoch_moved_on_since(dynamo: DynamoStore) -> None:
    filled(dynamo)
    others = dynamo.ledger()

    def after(operation: str, request: Request, answer: Request) -> None:
        lease = others.load(ID).lease
        if lease.epoch == 1:
            others.commit(Change(ID, lease.model_copy(update={"epoch": 2}), epoch=1))
            raise ReadTimeoutError(endpoint_url="http://127.0.0.1")

    def before(operation: str, request: Request) -> None:
        request.pop("ClientRequestToken", None)  # as after the ten minutes for which DynamoDB remembers it

    ledger, client = dynamo.scripted(before=before, after=after)

    ledger.commit(Change(ID, resources=(a_resource(attempt=2),), epoch=1))

    assert client.calls == ["transact_write_items"] * 2
    assert len(others.load(ID).resources) == 2
    with pytest.raises(LeaseSuperseded):
        ledger.commit(Change(ID, resources=(a_resource(attempt=3),), epoch=1))


def test_a_row_written_over_after_a_lost_answer_is_a_conflict_and_never_written_twice(dynamo: DynamoStore) -> None:
    filled(dynamo)
    others = dynamo.ledger()
    stale = others.load(ID).lease

    def after(operation: str, request: Request, answer: Request) -> None:
        lease = others.load(ID).lease
        others.commit(Change(ID, lease.model_copy(update={"name": lease.name + " and others"})))
        raise ReadTimeoutError(endpoint_url="http://127.0.0.1")

    ledger, _ = dynamo.scripted(after=after)

    with pytest.raises(LeaseConflict):
        ledger.commit(Change(ID, stale.model_copy(update={"name": "ours"})))
    assert others.load(ID).lease.name == "ours and others"


# --- one row, several rows --------------------------------------------------------------------------------------------


def test_one_row_is_put_and_several_are_a_transaction(dynamo: DynamoStore) -> None:
    ledger, client = dynamo.scripted()
    ledger.create_lease(a_lease())
    lease = ledger.load(ID).lease
    ledger.commit(Change(ID, lease, epoch=1))
    ledger.commit(Change(ID, resources=(a_resource(),)))
    ledger.commit(Change(ID, events=(an_event(),)))
    ledger.commit(Change(ID))
    assert [call for call in client.calls if call != "query"] == ["put_item"] * 4

    ledger.commit(Change(ID, events=(an_event(),), epoch=1))
    assert client.calls[-1] == "transact_write_items"


def test_rows_carry_what_the_indexes_need_and_no_more_than_that(dynamo: DynamoStore) -> None:
    filled(dynamo)
    rows = {row["sk"]["S"].split("#")[0]: row for row in dynamo.client.scan(TableName=dynamo.table)["Items"]}

    assert rows.keys() == {"lease", "resource", "event", "script"}
    assert rows["lease"]["next_check_at"] == {"S": "2026-07-01T12:01:00.000000Z"}
    assert rows["lease"]["created"] == {"S": f"2026-07-01T12:00:00.000000Z#{ID}"}
    assert rows["resource"]["open_in"] == {"S": "vultr#ewr"}
    assert rows["event"].keys() == {"pk", "sk", "token", "doc"}
    assert len({row["token"]["S"] for row in rows.values()}) == 2
    assert '"usd_per_hour":"23.920"' in rows["resource"]["doc"]["S"]


# --- half a transaction, late indexes, shards -------------------------------------------------------------------------


def test_half_a_transaction_is_read_again(dynamo: DynamoStore) -> None:
    ledger = filled(dynamo).ledger()
    record = ledger.load(ID)
    halves = dynamo.client.query(
        TableName=dynamo.table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": ID}},
    )["Items"]
    old = {row["sk"]["S"]: row for row in halves}
    ledger.commit(Change(ID, record.lease, (*record.resources, a_resource(attempt=2))))
    expected = ledger.load(ID)

    for torn in ("lease", f"resource#{ID}.instance.1", f"resource#{ID}.instance.2"):
        turns = iter([True, True, False])

        def after(operation: str, request: Request, answer: Request, torn: str = torn, turns: Any = turns) -> None:
            if next(turns):
                rows = [old.get(torn) if row["sk"]["S"] == torn else row for row in answer["Items"]]
                answer["Items"] = [row for row in rows if row]

        reader, client = dynamo.scripted(after=after)
        assert reader.load(ID) == expected
        assert client.calls == ["query"] * 3


def test_a_record_that_stays_torn_is_unavailable(dynamo: DynamoStore) -> None:
    ledger = filled(dynamo).ledger()
    ledger.commit(Change(ID, ledger.load(ID).lease, (a_resource(attempt=2),)))

    def after(operation: str, request: Request, answer: Request) -> None:
        answer["Items"] = [row for row in answer["Items"] if not row["sk"]["S"].endswith("instance.2")]

    reader, _ = dynamo.scripted(after=after)

    with pytest.raises(LedgerUnavailable):
        reader.load(ID)


def test_a_look_at_what_is_due_asks_the_index_alone(dynamo: DynamoStore) -> None:
    asked: list[Request] = []
    ledger, client = filled(dynamo).scripted(before=lambda operation, request: asked.append(request))

    ledger.due(NOW)

    assert client.calls == ["query"] * DUE_SHARDS
    assert {request["IndexName"] for request in asked} == {"due"}


def test_leases_are_spread_over_all_shards_the_same_way_for_ever() -> None:
    assert {due_shard(f"l-{n}") for n in range(100)} == set(due_shards())
    assert [due_shard(lease_id) for lease_id in ("l-aaaaaaaaaaaa", "l-zzzzzzzzzzzz")] == ["due#1", "due#0"]


def test_a_row_of_another_version_of_the_program_is_a_fault_with_a_name(dynamo: DynamoStore) -> None:
    filled(dynamo)
    key = {"pk": {"S": ID}, "sk": {"S": "lease"}}
    row = dynamo.client.get_item(TableName=dynamo.table, Key=key)["Item"]
    row["doc"] = {"S": row["doc"]["S"].replace('"owner"', '"possessor"')}
    dynamo.client.put_item(TableName=dynamo.table, Item=row)

    with pytest.raises(GpuleaseError, match="cannot be read"):
        dynamo.ledger().load(ID)
