"""The ledger in one SQLite file: for one computer, for tests and for the simulation.

Invariants: every write is one `BEGIN IMMEDIATE` transaction, so writers of several threads and processes follow one
another; what was committed survives the death of the process (write-ahead log); tables of other parts may live in the
same file, ours begin with `ledger_`. One connection per ledger, behind a lock: calls take microseconds, and an
in-memory database cannot be opened twice.
"""

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from gpulease.domain.event import Event
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.model import Model
from gpulease.domain.resource import Resource, ResourceState
from gpulease.errors import LeaseConflict, LeaseExists, LeaseNotFound, LeaseSuperseded, LedgerUnavailable
from gpulease.ledger import codec
from gpulease.ledger.codec import Row, Rows, time_text
from gpulease.ports import Change, LeaseRecord, Page

BUSY_SECONDS = 10.0
"""How long a write waits for a writer of another process."""
_WRITE_TRIES = 3
_READ_ROWS = 500
_CACHED_ROWS = 20_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ledger_leases (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at TEXT NOT NULL, state TEXT NOT NULL, epoch INTEGER NOT NULL,
    version INTEGER NOT NULL, next_check_at TEXT, token TEXT NOT NULL, doc TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_leases_by_owner ON ledger_leases (owner, created_at, id);
CREATE INDEX IF NOT EXISTS ledger_leases_by_age ON ledger_leases (created_at, id);
CREATE INDEX IF NOT EXISTS ledger_leases_due ON ledger_leases (next_check_at, id) WHERE next_check_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS ledger_resources (
    lease_id TEXT NOT NULL, id TEXT NOT NULL, provider TEXT NOT NULL, region TEXT NOT NULL, open INTEGER NOT NULL,
    version INTEGER NOT NULL, token TEXT NOT NULL, doc TEXT NOT NULL, PRIMARY KEY (lease_id, id)
);
CREATE INDEX IF NOT EXISTS ledger_resources_open ON ledger_resources (provider, region, lease_id, id) WHERE open = 1;
CREATE TABLE IF NOT EXISTS ledger_events (
    n INTEGER PRIMARY KEY, lease_id TEXT NOT NULL, at TEXT NOT NULL, token TEXT NOT NULL,
    doc TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_events_of_lease ON ledger_events (lease_id, at, n);
CREATE TABLE IF NOT EXISTS ledger_scripts (lease_id TEXT PRIMARY KEY, script BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS ledger_offers (provider TEXT PRIMARY KEY, as_of TEXT NOT NULL, doc TEXT NOT NULL);
"""

_LOAD = """
SELECT 0, id, version, token, doc FROM ledger_leases WHERE id = ?
UNION ALL SELECT 1, id, version, token, doc FROM ledger_resources WHERE lease_id = ?
"""
_INSERT_LEASE = """
INSERT INTO ledger_leases (owner, created_at, state, epoch, version, next_check_at, token, doc, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_UPDATE_LEASE = """
UPDATE ledger_leases SET owner = ?, created_at = ?, state = ?, epoch = ?, version = ?, next_check_at = ?, token = ?,
doc = ? WHERE id = ? AND version = ?
"""
_INSERT_RESOURCE = """
INSERT INTO ledger_resources (provider, region, open, version, token, doc, lease_id, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_UPDATE_RESOURCE = """
UPDATE ledger_resources SET provider = ?, region = ?, open = ?, version = ?, token = ?, doc = ?
WHERE lease_id = ? AND id = ? AND version = ?
"""
_OPEN = """
SELECT lease_id, id, doc FROM ledger_resources
WHERE open = 1 AND provider = ? AND region = ? AND (lease_id, id) > (?, ?) ORDER BY lease_id, id LIMIT ?
"""

T = TypeVar("T")
M = TypeVar("M", bound=Model)
Connect = Callable[..., sqlite3.Connection]


class SqliteFile:
    """One connection to the file, shared by threads, with the tables of the ledger in it."""

    def __init__(self, path: str | Path = ":memory:", *, connect: Connect = sqlite3.connect) -> None:
        self.lock = threading.RLock()
        try:
            self._connection = connect(str(path), timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            # Closed with the last reference: a ledger in a test or a worker needs no `with`.
            weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file; any later call raises LedgerUnavailable."""
        with self.lock:
            self._connection.close()

    def read(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Rows of one statement, which sees one state of the database. Raises LedgerUnavailable."""
        try:
            with self.lock:
                return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error

    def write(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        """Run `work(connection, tries so far)` in one write transaction; what it raises rolls back.

        Repeated after an error of the database, also one of COMMIT: then whether the first try was written is not
        known, and `work` has to look. Raises LedgerUnavailable after the last try.
        """
        with self.lock:
            for tries in count():
                self._begin()
                try:
                    result = work(self._connection, tries)
                    self._connection.execute("COMMIT")
                    return result
                except sqlite3.Error as error:
                    self._roll_back()
                    if tries + 1 >= _WRITE_TRIES:
                        raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error
                except BaseException:
                    self._roll_back()
                    raise
        raise AssertionError("unreachable")

    def _begin(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:  # waited BUSY_SECONDS already, and nothing was written
            raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error


class SqliteLedger:
    """`ports.Ledger` in a SQLite file. Safe for use from several threads, and on one file from several processes."""

    def __init__(self, path: str | Path = ":memory:", *, connect: Connect = sqlite3.connect) -> None:
        self.file = SqliteFile(path, connect=connect)
        # Unique without randomness: every opening of the file has its own number.
        self._opening = self.file.write(_next_opening)
        self._commits = count(1)
        self._parsed: dict[str, tuple[int, str, Any]] = {}

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def create_lease(self, lease: Lease, events: Iterable[Event] = (), start_script: bytes = b"") -> None:
        """See `ports.Ledger.create_lease`."""
        rows = codec.rows_of_new(lease, events, start_script)
        try:
            self._write(rows)
        except LeaseConflict as error:
            raise LeaseExists(lease.id) from error

    def load(self, lease_id: str) -> LeaseRecord:
        """See `ports.Ledger.load`."""
        found = self.file.read(_LOAD, (lease_id, lease_id)) if codec.is_key(lease_id) else []
        if not found or found[0][0] != 0:
            raise LeaseNotFound(lease_id)
        lease = self._model(Lease, found[0][1:])
        resources = [self._model(Resource, row[1:]) for row in found[1:]]
        if len(resources) > 1:
            resources.sort(key=lambda r: (r.attempt, r.id))
        return LeaseRecord(lease, tuple(resources))

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        rows = codec.rows_of(change)
        if rows.count:
            self._write(rows)

    def start_script(self, lease_id: str) -> bytes:
        """See `ports.Ledger.start_script`. Empty when the lease has none; raises LeaseNotFound."""
        sql = "SELECT script FROM ledger_leases LEFT JOIN ledger_scripts ON lease_id = id WHERE id = ?"
        found = self.file.read(sql, (lease_id,)) if codec.is_key(lease_id) else []
        if not found:
            raise LeaseNotFound(lease_id)
        return bytes(found[0][0] or b"")

    def events(self, lease_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Event]:
        """See `ports.Ledger.events`."""
        codec.check_limit(limit)
        at, n = "", 0
        if cursor is not None:
            at, _, digits = codec.event_position(lease_id, cursor).partition("#")
            n = _number(digits)
        if not codec.is_key(lease_id):
            return Page(())
        sql = "SELECT at, n, doc FROM ledger_events WHERE lease_id = ? AND (at, n) > (?, ?) ORDER BY at, n LIMIT ?"
        found = self.file.read(sql, (lease_id, at, n, limit + 1))
        items = tuple(
            codec.decode(Event, doc).model_copy(update={"seq": f"{at}#{n:016x}"}) for at, n, doc in found[:limit]
        )
        return Page(items, codec.event_cursor(lease_id, items[-1].seq) if len(found) > limit else None)

    def leases_of(
        self,
        owner: str | None,
        *,
        states: Sequence[LeaseState] = (),
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Lease]:
        """See `ports.Ledger.leases_of`."""
        codec.check_limit(limit)
        where, parameters = ["1"], list[object]()
        if cursor is not None:
            created_at, _, lease_id = codec.lease_position(owner, cursor).partition("#")
            where.append("(created_at, id) < (?, ?)")
            parameters += [created_at, lease_id]
        if owner is not None:
            if not codec.is_key(owner):
                return Page(())
            where.append("owner = ?")
            parameters.append(owner)
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
            parameters += [state.value for state in states]
        sql = (
            f"SELECT id, version, token, doc FROM ledger_leases WHERE {' AND '.join(where)} "  # noqa: S608 - constants
            "ORDER BY created_at DESC, id DESC LIMIT ?"
        )
        found = self.file.read(sql, [*parameters, limit + 1])
        items = tuple(self._model(Lease, row) for row in found[:limit])
        if len(found) <= limit:
            return Page(items)
        last = items[-1]
        return Page(items, codec.lease_cursor(owner, f"{time_text(last.created_at)}#{last.id}"))

    def due(self, now: datetime, *, limit: int = 100) -> list[str]:
        """See `ports.Ledger.due`."""
        codec.check_limit(limit)
        sql = "SELECT id FROM ledger_leases WHERE next_check_at <= ? ORDER BY next_check_at, id LIMIT ?"
        return [row[0] for row in self.file.read(sql, (time_text(now), limit))]

    def open_resources(self, *, provider: str | None = None, region: str | None = None) -> Iterator[Resource]:
        """See `ports.Ledger.open_resources`. Reads in portions: writers do not wait for the caller's loop."""
        places = [(provider, region)]
        if provider is None or region is None:
            places = self.file.read("SELECT DISTINCT provider, region FROM ledger_resources WHERE open = 1")
        for place in sorted(places):
            if provider not in (None, place[0]) or region not in (None, place[1]):
                continue
            after = ("", "")
            while found := self.file.read(_OPEN, (*place, *after, _READ_ROWS)):
                for lease_id, resource_id, doc in found:
                    after = (lease_id, resource_id)
                    yield codec.decode(Resource, doc)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _write(self, rows: Rows) -> None:
        token = f"{self._opening:x}-{next(self._commits):x}"

        def work(connection: sqlite3.Connection, tries: int) -> None:
            if tries and _is_ours(connection, rows, token):
                return
            _check_and_write_lease(connection, rows, token)
            for resource in rows.resources:
                _write_resource(connection, resource, token)
            for event in rows.events:
                connection.execute(
                    "INSERT INTO ledger_events (lease_id, at, token, doc) VALUES (?, ?, ?, ?)",
                    (rows.lease_id, time_text(event.model.at), token, event.doc),
                )
            if rows.script:
                connection.execute("INSERT INTO ledger_scripts VALUES (?, ?)", (rows.lease_id, rows.script))

        self.file.write(work)
        if rows.lease is not None:
            self._remember(rows.lease.model.id, rows.lease.model.version, token, rows.lease.model)
        for row in rows.resources:
            self._remember(row.model.id, row.model.version, token, row.model)

    def _model(self, kind: type[M], row: Sequence[Any]) -> M:
        """The row's model, parsed once per version: models are immutable, so all readers may share one."""
        row_id, version, token, doc = row
        known = self._parsed.get(row_id)
        if known is not None and known[0] == version and known[1] == token and type(known[2]) is kind:
            return known[2]
        model = codec.decode(kind, doc)
        self._remember(row_id, version, token, model)
        return model

    def _remember(self, row_id: str, version: int, token: str, model: Model) -> None:
        if len(self._parsed) >= _CACHED_ROWS:
            self._parsed = {}
        self._parsed[row_id] = (version, token, model)


def _next_opening(connection: sqlite3.Connection, _: int) -> int:
    connection.execute("INSERT INTO ledger_meta VALUES ('openings', 1) ON CONFLICT DO UPDATE SET value = value + 1")
    row = connection.execute("SELECT value FROM ledger_meta WHERE name = 'openings'").fetchone()
    return int(row[0])


def _check_and_write_lease(connection: sqlite3.Connection, rows: Rows, token: str) -> None:
    if rows.epoch is not None:
        found = connection.execute("SELECT epoch FROM ledger_leases WHERE id = ?", (rows.lease_id,)).fetchone()
        if found is None or found[0] != rows.epoch:
            raise LeaseSuperseded(f"{rows.lease_id}: epoch {rows.epoch} is over")
    if rows.lease is None:
        return
    lease = rows.lease.model
    values = (
        lease.owner,
        time_text(lease.created_at),
        lease.state.value,
        lease.epoch,
        lease.version,
        None if lease.next_check_at is None else time_text(lease.next_check_at),
        token,
        rows.lease.doc,
        lease.id,
    )
    _expect_one(connection, lease.id, lease.version, (_INSERT_LEASE, _UPDATE_LEASE), values)


def _write_resource(connection: sqlite3.Connection, row: Row[Resource], token: str) -> None:
    resource = row.model
    values = (
        resource.provider,
        resource.region,
        int(resource.state is not ResourceState.RELEASED),
        resource.version,
        token,
        row.doc,
        resource.lease_id,
        resource.id,
    )
    _expect_one(connection, resource.id, resource.version, (_INSERT_RESOURCE, _UPDATE_RESOURCE), values)


def _expect_one(
    connection: sqlite3.Connection,
    row_id: str,
    version: int,
    statements: tuple[str, str],
    values: tuple[object, ...],
) -> None:
    """Insert version 1, or put a later version in the place of the one before it. Raises LeaseConflict."""
    insert, update = statements
    if version == 1:
        written = connection.execute(insert, values).rowcount
    else:
        written = connection.execute(update, (*values, version - 1)).rowcount
    if written != 1:
        raise LeaseConflict(f"{row_id}: no longer version {version - 1}")


def _is_ours(connection: sqlite3.Connection, rows: Rows, token: str) -> bool:
    """Whether an earlier try of this very commit was written. All or nothing, so one row is proof."""
    for table, column in (("leases", "id"), ("resources", "lease_id"), ("events", "lease_id")):
        sql = f"SELECT 1 FROM ledger_{table} WHERE {column} = ? AND token = ? LIMIT 1"  # noqa: S608 - constants
        if connection.execute(sql, (rows.lease_id, token)).fetchone():
            return True
    return False


def _number(digits: str) -> int:
    """The counter in a position; a position no store of ours gave ends the listing instead of failing it."""
    try:
        return min(int(digits, 16), 2**63 - 1)
    except ValueError:
        return 2**63 - 1
