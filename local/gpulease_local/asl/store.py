"""Where executions are kept.

Invariants of `SqliteStore`: every write is one transaction, done before the loop goes on, so a process that is killed
(kill -9) loses nothing; after a power loss the last transitions may be missing (synchronous=NORMAL), which repeats
tasks but never skips one. Choice and Pass have no effects and are covered by the next write. Finished executions stay
until `prune`. All tables start with `asl_`, so that the file may be shared.
"""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from gpulease_local.asl.execution import Execution, Status
from gpulease_local.asl.paths import decode_json, encode_json


class Store(Protocol):
    """Keeps executions by (machine, name)."""

    def insert(self, execution: Execution) -> None:
        """Keep a new execution; an ended one of the same name is replaced."""
        ...

    def update(self, execution: Execution) -> None:
        """Keep the present state of a known execution."""
        ...

    def get(self, machine: str, name: str) -> Execution | None:
        """Return an execution, or None."""
        ...

    def select(self, machine: str | None, status: Status | None) -> Iterator[Execution]:
        """Yield executions in the order they were started."""
        ...


class MemoryStore:
    """Keeps references, so a write costs nothing; for simulation and tests."""

    def __init__(self) -> None:
        self._executions: dict[tuple[str, str], Execution] = {}

    def insert(self, execution: Execution) -> None:
        """Keep a new execution."""
        self._executions.pop((execution.machine, execution.name), None)
        self._executions[execution.machine, execution.name] = execution

    def update(self, execution: Execution) -> None:
        """Do nothing: the store holds the execution itself."""

    def get(self, machine: str, name: str) -> Execution | None:
        """Return an execution, or None."""
        return self._executions.get((machine, name))

    def select(self, machine: str | None, status: Status | None) -> Iterator[Execution]:
        """Yield executions in the order they were started."""
        for execution in list(self._executions.values()):
            if machine in (None, execution.machine) and status in (None, execution.status):
                yield execution


_COLUMNS = (
    *("machine", "name", "input", "start_time"),
    *("state", "data", "due", "status", "entered", "entered_time", "retries", "transitions", "events"),
    *("output", "error", "cause", "stop_time"),
)
_CHANGING = _COLUMNS[4:]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS asl_executions (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    machine TEXT NOT NULL,
    name TEXT NOT NULL,
    input TEXT NOT NULL,
    start_time REAL NOT NULL,
    state TEXT NOT NULL,
    data TEXT NOT NULL,
    due REAL NOT NULL,
    status TEXT NOT NULL,
    entered INTEGER NOT NULL,
    entered_time REAL NOT NULL,
    retries TEXT NOT NULL,
    transitions INTEGER NOT NULL,
    events INTEGER NOT NULL,
    output TEXT NOT NULL,
    error TEXT,
    cause TEXT,
    stop_time REAL,
    UNIQUE (machine, name)
);
CREATE INDEX IF NOT EXISTS asl_executions_status ON asl_executions (status, sequence);
"""
# The statements are put together from our own column names only.
_INSERT = f"INSERT OR REPLACE INTO asl_executions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_UPDATE = f"UPDATE asl_executions SET {', '.join(f'{c} = ?' for c in _CHANGING)} WHERE machine = ? AND name = ?"  # noqa: S608
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM asl_executions"  # noqa: S608
_BUSY_SECONDS = 30.0


class SqliteStore:
    """Keeps executions in a SQLite file (WAL), over one connection that any thread may use."""

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(_SCHEMA)

    def insert(self, execution: Execution) -> None:
        """Keep a new execution; durable when this returns."""
        with self._lock:
            self._connection.execute(_INSERT, _row(execution))

    def update(self, execution: Execution) -> None:
        """Keep the present state of a known execution; durable when this returns."""
        row = _row(execution)
        with self._lock:
            self._connection.execute(_UPDATE, (*row[4:], row[0], row[1]))

    def get(self, machine: str, name: str) -> Execution | None:
        """Return an execution, or None."""
        rows = self._rows(f"{_SELECT} WHERE machine = ? AND name = ?", (machine, name))
        return _execution(rows[0]) if rows else None

    def select(self, machine: str | None, status: Status | None) -> Iterator[Execution]:
        """Yield executions in the order they were started."""
        query = f"{_SELECT} WHERE (?1 IS NULL OR machine = ?1) AND (?2 IS NULL OR status = ?2) ORDER BY sequence"
        yield from map(_execution, self._rows(query, (machine, status)))

    def prune(self, before: float) -> int:
        """Forget executions that ended before this time (epoch seconds); returns how many."""
        with self._lock:
            done = self._connection.execute(
                "DELETE FROM asl_executions WHERE status <> 'RUNNING' AND stop_time < ?", (before,)
            )
            return done.rowcount

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _rows(self, query: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(query, parameters).fetchall()


def _row(execution: Execution) -> tuple[Any, ...]:
    return (
        execution.machine,
        execution.name,
        encode_json(execution.input),
        execution.start_time,
        execution.state,
        encode_json(execution.data),
        execution.due,
        execution.status.value,
        int(execution.entered),
        execution.entered_time,
        encode_json(execution.retries),
        execution.transitions,
        execution.events,
        encode_json(execution.output),
        execution.error,
        execution.cause,
        execution.stop_time,
    )


def _execution(row: tuple[Any, ...]) -> Execution:
    values = dict(zip(_COLUMNS, row, strict=True))
    for column in ("input", "data", "retries", "output"):
        values[column] = decode_json(values[column])
    values["status"] = Status(values["status"])
    values["entered"] = bool(values["entered"])
    return Execution(**values)
