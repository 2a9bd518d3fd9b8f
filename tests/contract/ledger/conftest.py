"""The stores that the ledger contract is checked on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpulease.ports import Ledger

from tests.support.ledger_stores import DynamoStore, SqliteStore, Store
from tests.support.ministack import Ministack, ministack

__all__ = ["ministack"]


@pytest.fixture(params=["sqlite", "dynamo"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """One empty store after the other."""
    if request.param == "sqlite":
        yield SqliteStore(tmp_path)
    else:
        dynamo = DynamoStore(request.getfixturevalue("ministack"))
        yield dynamo
        dynamo.close()


@pytest.fixture
def ledger(store: Store) -> Ledger:
    """A ledger on the store."""
    return store.ledger()


@pytest.fixture
def dynamo(ministack: Ministack) -> Iterator[DynamoStore]:
    """An empty DynamoDB store, for what only it can do."""
    store = DynamoStore(ministack)
    yield store
    store.close()
