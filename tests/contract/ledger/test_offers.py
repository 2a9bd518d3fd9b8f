"""The last known offers: one snapshot per provider, never an older one over a newer one."""

from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from gpulease.domain.offer import OfferSnapshot
from gpulease.errors import LedgerUnavailable
from gpulease.ledger.dynamo import DynamoOfferStore
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_offers import SqliteOfferStore
from gpulease.ports import Change

from tests.support.ledger_samples import a_lease, an_event, an_offer, at
from tests.support.ledger_stores import DynamoStore, ScriptedClient, Store


def a_snapshot(provider: str = "vultr", seconds: float = 0, plans: tuple[str, ...] = ("vbm",)) -> OfferSnapshot:
    """Offers of these plans."""
    offers = tuple(an_offer(provider=provider, plan=plan) for plan in plans)
    return OfferSnapshot(provider=provider, as_of=at(seconds), offers=offers)


def test_there_are_no_offers_before_any_were_saved(store: Store) -> None:
    assert store.offers().load() == []


def test_the_last_snapshot_of_each_provider_is_kept(store: Store) -> None:
    offers = store.offers()
    offers.save(a_snapshot("vultr", 0))
    offers.save(a_snapshot("aws", 5))
    offers.save(a_snapshot("vultr", 10, ("a", "b")))

    assert store.offers().load() == [a_snapshot("aws", 5), a_snapshot("vultr", 10, ("a", "b"))]


def test_an_older_snapshot_does_not_replace_a_newer_one(store: Store) -> None:
    offers = store.offers()
    offers.save(a_snapshot(seconds=10))
    offers.save(a_snapshot(seconds=5, plans=("old",)))

    assert offers.load() == [a_snapshot(seconds=10)]


def test_an_empty_snapshot_is_a_snapshot(store: Store) -> None:
    store.offers().save(a_snapshot(plans=()))

    assert store.offers().load() == [a_snapshot(plans=())]


def test_a_snapshot_larger_than_any_row_is_kept(store: Store) -> None:
    # Digests do not compress, so no packing makes this small.
    plans = tuple("".join(sha512(f"{n} {part}".encode()).hexdigest() for part in range(5)) for n in range(3000))
    store.offers().save(a_snapshot(plans=plans))
    assert store.offers().load() == [a_snapshot(plans=plans)]

    store.offers().save(a_snapshot(seconds=1))
    assert store.offers().load() == [a_snapshot(seconds=1)]


def test_parts_of_replaced_snapshots_do_not_stay(dynamo: DynamoStore) -> None:
    offers = dynamo.offers(part_bytes=100)
    for seconds in (1, 2, 3, 0):
        offers.save(a_snapshot(seconds=seconds, plans=tuple(f"plan-{seconds}-{n}" for n in range(40))))

    (snapshot,) = offers.load()

    names = {row["id"]["S"] for row in dynamo.client.scan(TableName=dynamo.runtime_table)["Items"]}
    head = dynamo.client.get_item(TableName=dynamo.runtime_table, Key={"id": {"S": "offers#vultr"}})["Item"]
    assert snapshot.as_of == at(3)
    assert len(head["parts"]["L"]) > 1
    assert names == {"offers", "offers#vultr"} | {part["S"] for part in head["parts"]["L"]}
    assert all("expiration" not in row for row in dynamo.client.scan(TableName=dynamo.runtime_table)["Items"])


def test_a_snapshot_replaced_while_it_is_read_is_read_again(dynamo: DynamoStore) -> None:
    dynamo.offers().save(a_snapshot(seconds=1))
    reads = 0

    def replace(operation: str, request: dict[str, Any]) -> None:
        nonlocal reads
        reads += operation == "batch_get_item"
        if reads == 3:  # after the list and the head
            reads += 1
            dynamo.offers().save(a_snapshot(seconds=2, plans=("new",)))

    client = ScriptedClient(dynamo.client, before=replace)
    store = DynamoOfferStore(client, dynamo.runtime_table)

    assert store.load() == [a_snapshot(seconds=2, plans=("new",))]


def test_missing_parts_are_a_fault_and_not_an_empty_catalogue(dynamo: DynamoStore) -> None:
    dynamo.offers().save(a_snapshot())
    for row in dynamo.client.scan(TableName=dynamo.runtime_table)["Items"]:
        if "body" in row:
            dynamo.client.delete_item(TableName=dynamo.runtime_table, Key={"id": row["id"]})

    with pytest.raises(LedgerUnavailable):
        dynamo.offers().load()


def test_ledger_and_offers_may_share_one_sqlite_file(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "all.db")
    offers = SqliteOfferStore(ledger.file)
    ledger.create_lease(a_lease())
    offers.save(a_snapshot())
    ledger.commit(Change("l-aaaaaaaaaaaa", events=(an_event(),)))

    assert SqliteOfferStore(tmp_path / "all.db").load() == [a_snapshot()]
