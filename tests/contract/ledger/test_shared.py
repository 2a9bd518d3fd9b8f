"""What is read once for everybody: values, claims of the next reading, and queues, on both stores."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from gpulease.ledger.dynamo_shared import DynamoSharedReads
from gpulease.ledger.keys import RUNTIME_TTL
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import SharedReads, SharedValue

from tests.support.ledger_samples import at
from tests.support.ledger_stores import DynamoStore, ScriptedClient, SqliteStore, Store, client_error

WORKERS = 8


@pytest.fixture
def new_shared(store: Store) -> Callable[[], SharedReads]:
    """Opens the store as another worker would."""

    def open_it() -> SharedReads:
        if isinstance(store, SqliteStore):
            return SqliteSharedReads(store.path)
        assert isinstance(store, DynamoStore)
        return DynamoSharedReads(store.client, store.runtime_table, sleep=lambda seconds: None)

    return open_it


@pytest.fixture
def shared(new_shared: Callable[[], SharedReads]) -> SharedReads:
    return new_shared()


def all_at_once(work: Callable[[int], object]) -> list[object]:
    """What eight workers get who begin at the same moment."""
    start = threading.Barrier(WORKERS)

    def one(number: int) -> object:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, range(WORKERS)))


def test_nothing_is_known_before_it_was_published(shared: SharedReads) -> None:
    assert shared.read("k") is None

    assert shared.claim("k", at(0), 10)
    assert shared.read("k") is None, "a claim is no value"


def test_the_last_value_is_read_with_its_time(shared: SharedReads, new_shared: Callable[[], SharedReads]) -> None:
    shared.publish("k", "ä one", at(1.25))
    shared.publish("k", "two", at(2))
    shared.publish("other", "", at(3))

    assert new_shared().read("k") == SharedValue("two", at(2))
    assert new_shared().read("other") == SharedValue("", at(3))


def test_an_older_value_does_not_replace_a_newer_one(shared: SharedReads) -> None:
    shared.publish("k", "new", at(10))
    shared.publish("k", "old", at(5))

    assert shared.read("k") == SharedValue("new", at(10))


def test_a_value_of_a_wrong_clock_is_replaced(shared: SharedReads) -> None:
    shared.publish("k", "from the future", at(3600))
    shared.publish("k", "now", at(5))

    assert shared.read("k") == SharedValue("now", at(5))


def test_one_claims_until_it_publishes_or_its_time_is_over(shared: SharedReads) -> None:
    assert shared.claim("k", at(0), 10)
    assert not shared.claim("k", at(9), 10)
    assert shared.claim("k", at(10), 10), "its holder may have died"

    shared.publish("k", "value", at(10))

    assert shared.claim("k", at(11), 10)
    assert shared.claim("other", at(11), 10)


def test_publishing_something_too_old_ends_no_claim(shared: SharedReads) -> None:
    shared.publish("k", "new", at(10))
    assert shared.claim("k", at(11), 10)

    shared.publish("k", "late", at(2))

    assert not shared.claim("k", at(12), 10)


def test_a_claim_of_a_wrong_clock_keeps_nobody_out(shared: SharedReads) -> None:
    assert shared.claim("k", at(7200), 10)

    assert shared.claim("k", at(0), 10)


def test_of_eight_claims_at_once_one_wins(new_shared: Callable[[], SharedReads]) -> None:
    workers = [new_shared() for _ in range(WORKERS)]

    for turn in range(10):
        won = all_at_once(lambda n, key=f"k{turn}": workers[n].claim(key, at(0), 10))  # type: ignore[misc]

        assert won.count(True) == 1


def test_large_values_come_back_whole(shared: SharedReads) -> None:
    value = "".join(f"machine-{n:07}," for n in range(30_000))

    shared.publish("k", value, at(0))

    assert shared.read("k") == SharedValue(value, at(0))


def test_a_free_queue_gives_a_slot_at_once_and_then_one_after_the_other(shared: SharedReads) -> None:
    slots = [shared.reserve("q", at(0), 0.125) for _ in range(4)]

    assert slots == [at(0), at(0.125), at(0.25), at(0.375)]
    assert shared.reserve("other", at(0), 0.125) == at(0)
    assert shared.reserve("q", at(60), 0.125) == at(60), "what was not used is not saved up"


def test_a_slot_that_would_be_too_late_is_not_taken(shared: SharedReads) -> None:
    taken = [shared.reserve("q", at(0), 0.5, within_seconds=1) for _ in range(5)]

    assert taken == [at(0), at(0.5), at(1), None, None]
    assert shared.reserve("q", at(0), 0.5) == at(1.5), "the refused ones left no gap"


def test_a_queue_of_a_wrong_clock_holds_up_nobody(shared: SharedReads) -> None:
    shared.reserve("q", at(7200), 1)

    assert shared.reserve("q", at(0), 1) == at(0)


def test_eight_reservations_at_once_get_eight_slots(new_shared: Callable[[], SharedReads]) -> None:
    workers = [new_shared() for _ in range(WORKERS)]

    slots = [s for _ in range(4) for s in all_at_once(lambda n: workers[n].reserve("q", at(0), 0.125))]

    assert sorted(slots, key=str) == [at(0) + timedelta(seconds=0.125 * n) for n in range(4 * WORKERS)]


def test_times_come_back_in_utc_to_the_microsecond(shared: SharedReads) -> None:
    odd = datetime.fromisoformat("2026-07-01T12:00:00.123457+00:00")

    shared.publish("k", "v", odd)
    read = shared.read("k")

    assert read is not None
    assert read.as_of == odd
    assert shared.reserve("q", odd, 1) == odd


def test_rows_in_dynamodb_expire_after_a_day(dynamo: DynamoStore) -> None:
    shared = DynamoSharedReads(dynamo.client, dynamo.runtime_table, sleep=lambda seconds: None)
    shared.publish("k", "v", at(0))
    shared.reserve("q", at(0), 1)

    rows = dynamo.client.scan(TableName=dynamo.runtime_table)["Items"]

    day_after = int((at(0) + timedelta(days=1)).timestamp())
    assert [int(row[RUNTIME_TTL]["N"]) for row in rows] == [day_after, day_after]


def test_a_throttled_table_is_asked_again_and_a_claim_is_then_won(dynamo: DynamoStore) -> None:
    faults = [client_error("ThrottlingException", operation="UpdateItem")]

    def before(operation: str, request: object) -> None:
        if faults:
            raise faults.pop()

    client = ScriptedClient(dynamo.client, before=before)
    shared = DynamoSharedReads(client, dynamo.runtime_table, sleep=lambda seconds: None)

    assert shared.claim("k", at(0), 10)
