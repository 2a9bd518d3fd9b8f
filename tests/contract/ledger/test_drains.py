"""The switch of `gpulease drain`, on both stores: read as it was written last, by whomever."""

from typing import Any

import pytest
from gpulease.domain.drain import Drain
from gpulease.errors import LedgerUnavailable
from gpulease.ledger.dynamo_drains import DynamoDrainStore
from gpulease.ledger.sqlite_drains import SqliteDrainStore
from gpulease.ports import DrainStore

from tests.support.ledger_samples import a_lease, at
from tests.support.ledger_stores import DynamoStore, ScriptedClient, SqliteStore, Store, client_error

ON = Drain(on=True, since=at(10), by="arn:aws:iam::111122223333:user/ada")


def drains_of(store: Store) -> DrainStore:
    """As another worker would open it."""
    if isinstance(store, DynamoStore):
        return DynamoDrainStore(store.client, store.table, sleep=store.pauses.append)
    assert isinstance(store, SqliteStore)
    return SqliteDrainStore(store.path)


def test_a_new_deployment_is_not_drained(store: Store) -> None:
    assert drains_of(store).load() == Drain()


def test_what_was_written_last_is_read_by_all(store: Store) -> None:
    first, other = drains_of(store), drains_of(store)

    first.save(ON)
    seen = other.load()
    other.save(Drain())

    assert seen == ON
    assert first.load() == Drain()


def test_the_switch_is_no_lease_and_no_resource(store: Store) -> None:
    ledger = store.ledger()
    ledger.create_lease(a_lease())

    drains_of(store).save(ON)

    assert [lease.id for lease in ledger.leases_of(None).items] == [a_lease().id]
    assert list(ledger.open_resources()) == []
    assert ledger.due(at(10_000)) == [a_lease().id]


def test_a_store_that_does_not_answer_says_so(dynamo: DynamoStore) -> None:
    def fail(operation: str, request: dict[str, Any]) -> None:
        raise client_error("InternalServerError")

    drains = DynamoDrainStore(ScriptedClient(dynamo.client, before=fail), dynamo.table, sleep=dynamo.pauses.append)

    with pytest.raises(LedgerUnavailable):
        drains.save(ON)
    with pytest.raises(LedgerUnavailable):
        drains.load()
