"""Both ledgers behind one handle for the contract suite, with faults put in where the store itself is called.

Faults are scripted at the lowest place there is: the DynamoDB client and the SQLite connection. The ledgers under test
are the real ones throughout.
"""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError
from gpulease.ledger.dynamo import DynamoLedger, DynamoOfferStore
from gpulease.ledger.keys import RUNTIME_TABLE_SPEC, TABLE_SPEC
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_offers import SqliteOfferStore
from gpulease.ports import Ledger, OfferStore

from tests.support.ledger_samples import CountingIds
from tests.support.ministack import Ministack

_numbers = count(1)


class Fault(Enum):
    """What becomes of one write."""

    NONE = "none"
    NOT_WRITTEN = "not written"
    """An error before anything was written: throttled, disk error."""
    ANSWER_LOST = "answer lost"
    """Written, and then an error instead of the answer."""


class Store(Protocol):
    """One empty store, and ledgers on it."""

    name: str

    def ledger(self) -> Ledger:
        """A ledger as another worker would open it."""
        ...

    def faulty(self, *faults: Fault) -> Ledger:
        """A ledger whose next writes fare like that, one after the other; those after them fare well."""
        ...

    def without_conditions(self) -> Ledger:
        """A broken ledger, to see the checks fail: versions are not compared."""
        ...

    def without_tokens(self, *faults: Fault) -> Ledger:
        """A broken ledger, to see the checks fail: it does not know its own rows again."""
        ...

    def offers(self) -> OfferStore: ...


# --- SQLite -----------------------------------------------------------------------------------------------------------


class HookedConnection(sqlite3.Connection):
    """A connection whose COMMIT fares as scripted and whose statements can be altered."""

    faults: list[Fault]
    alter: Callable[[str], str]

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Run the statement, or fail as the script says."""
        if sql != "COMMIT":
            return super().execute(self.alter(sql), *parameters)
        fault = self.faults.pop(0) if self.faults else Fault.NONE
        if fault is Fault.NOT_WRITTEN:
            raise sqlite3.OperationalError("disk I/O error")
        answer = super().execute(sql, *parameters)
        if fault is Fault.ANSWER_LOST:
            raise sqlite3.OperationalError("disk I/O error")
        return answer


def hooked_connect(faults: list[Fault], alter: Callable[[str], str], *args: Any, **options: Any) -> sqlite3.Connection:
    """`sqlite3.connect` for a HookedConnection. The opening itself is spared: faults begin with the first write."""
    connection: Any = sqlite3.connect(*args, factory=HookedConnection, **options)
    connection.faults = [Fault.NONE, *faults]
    connection.alter = alter
    return connection  # type: ignore[no-any-return]


class SqliteStore:
    """A file in a temporary folder."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"ledger-{next(_numbers)}.db"

    def ledger(self) -> SqliteLedger:
        """See Store."""
        return SqliteLedger(self.path)

    def faulty(self, *faults: Fault) -> SqliteLedger:
        """See Store."""
        return self._hooked(faults, lambda sql: sql)

    def without_conditions(self) -> SqliteLedger:
        """See Store."""
        return self._hooked((), lambda sql: sql.replace("AND version = ?", "AND (version = ? OR 1)"))

    def without_tokens(self, *faults: Fault) -> SqliteLedger:
        """See Store."""
        return self._hooked(faults, lambda sql: sql.replace("AND token = ?", "AND token = ? AND 0"))

    def offers(self) -> SqliteOfferStore:
        """See Store."""
        return SqliteOfferStore(self.path)

    def _hooked(self, faults: tuple[Fault, ...], alter: Callable[[str], str]) -> SqliteLedger:
        return SqliteLedger(self.path, connect=partial(hooked_connect, list(faults), alter))


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


def client_error(code: str, status: int = 400, operation: str = "PutItem", **more: Any) -> ClientError:
    """An error answer of DynamoDB."""
    answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(answer, operation)


@dataclass
class ScriptedClient:
    """A DynamoDB client between the ledger and the real one.

    `before` sees every call and may raise or change the request; `after` sees the answer and may raise or change it.
    """

    real: Any
    before: Callable[[str, dict[str, Any]], None] = lambda operation, request: None
    after: Callable[[str, dict[str, Any], dict[str, Any]], None] = lambda operation, request, answer: None
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, operation: str) -> Callable[..., dict[str, Any]]:
        def call(**request: Any) -> dict[str, Any]:
            self.calls.append(operation)
            self.before(operation, request)
            answer: dict[str, Any] = getattr(self.real, operation)(**request)
            self.after(operation, request, answer)
            return answer

        return call


WRITES = frozenset({"put_item", "transact_write_items"})


class DynamoStore:
    """Two tables of a ministack server."""

    name = "dynamo"

    def __init__(self, server: Ministack) -> None:
        number = next(_numbers)
        self.client = server.client("dynamodb")
        self.table, self.runtime_table = f"Ledger{number}", f"Runtime{number}"
        self.client.create_table(TableName=self.table, **TABLE_SPEC)
        self.client.create_table(TableName=self.runtime_table, **RUNTIME_TABLE_SPEC)
        self.pauses: list[float] = []

    def close(self) -> None:
        """Delete the tables."""
        self.client.delete_table(TableName=self.table)
        self.client.delete_table(TableName=self.runtime_table)
        self.client.close()

    def ledger(self) -> DynamoLedger:
        """See Store."""
        return self.on(self.client)

    def on(self, client: Any) -> DynamoLedger:
        """A ledger that calls through this client; pauses are noted instead of waited."""
        return DynamoLedger(client, self.table, ids=CountingIds(next(_numbers)), sleep=self.pauses.append)

    def scripted(self, **hooks: Any) -> tuple[DynamoLedger, ScriptedClient]:
        """A ledger on a scripted client, and the client."""
        client = ScriptedClient(self.client, **hooks)
        return self.on(client), client

    def faulty(self, *faults: Fault) -> DynamoLedger:
        """See Store."""
        return self._faulty(list(faults), lambda request: None)

    def without_conditions(self) -> DynamoLedger:
        """See Store."""

        def forget(request: dict[str, Any]) -> None:
            for name in ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"):
                request.pop(name, None)

        return self._faulty([], forget)

    def without_tokens(self, *faults: Fault) -> DynamoLedger:
        """See Store."""

        def forget(request: dict[str, Any]) -> None:
            for put in [request, *(operation.get("Put", {}) for operation in request.get("TransactItems", []))]:
                put.get("Item", {})["token"] = {"S": "-"}
            if "ClientRequestToken" in request:
                request["ClientRequestToken"] = f"{next(_numbers)}"

        return self._faulty(list(faults), forget)

    def offers(self, **options: Any) -> DynamoOfferStore:
        """See Store."""
        return DynamoOfferStore(self.client, self.runtime_table, sleep=self.pauses.append, **options)

    def _faulty(self, faults: list[Fault], alter: Callable[[dict[str, Any]], None]) -> DynamoLedger:
        lost = threading.local()

        def before(operation: str, request: dict[str, Any]) -> None:
            if operation not in WRITES:
                return
            alter(request)
            lost.fault = faults.pop(0) if faults else Fault.NONE
            if lost.fault is Fault.NOT_WRITTEN:
                raise client_error("ThrottlingException")

        def after(operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
            if operation in WRITES and lost.fault is Fault.ANSWER_LOST:
                raise ReadTimeoutError(endpoint_url="http://127.0.0.1")

        return self.scripted(before=before, after=after)[0]
