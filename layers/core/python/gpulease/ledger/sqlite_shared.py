"""`ports.SharedReads` in a SQLite file, which may be the ledger's."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpulease.ledger.codec import time_text
from gpulease.ledger.shared import LATEST_SLOT, LONGEST_CLAIM, WRONG_CLOCK, micros, micros_of, moment
from gpulease.ledger.sqlite import SqliteFile
from gpulease.ports import SharedValue

_TABLES = (
    "CREATE TABLE IF NOT EXISTS shared_values (key TEXT PRIMARY KEY, value TEXT, as_of TEXT, claimed_until TEXT)",
    "CREATE TABLE IF NOT EXISTS shared_queues (key TEXT PRIMARY KEY, next_slot INTEGER NOT NULL)",
)
_CLAIM = """
INSERT INTO shared_values (key, claimed_until) VALUES (:key, :until) ON CONFLICT DO UPDATE SET claimed_until = :until
WHERE claimed_until IS NULL OR claimed_until <= :now OR claimed_until > :latest
"""
_PUBLISH = """
INSERT INTO shared_values (key, value, as_of) VALUES (:key, :value, :as_of)
ON CONFLICT DO UPDATE SET value = :value, as_of = :as_of, claimed_until = NULL
WHERE as_of IS NULL OR as_of <= :as_of OR as_of > :latest
"""


class SqliteSharedReads:
    """See `ports.SharedReads`. Safe for use from several threads and processes."""

    def __init__(self, path: str | Path | SqliteFile = ":memory:") -> None:
        self._file = path if isinstance(path, SqliteFile) else SqliteFile(path)
        self._file.write(_create_tables)

    def read(self, key: str) -> SharedValue | None:
        """See `ports.SharedReads.read`."""
        rows = self._file.read("SELECT value, as_of FROM shared_values WHERE key = ? AND as_of IS NOT NULL", (key,))
        return SharedValue(rows[0][0], datetime.fromisoformat(rows[0][1]).astimezone(UTC)) if rows else None

    def claim(self, key: str, now: datetime, lease_seconds: float) -> bool:
        """See `ports.SharedReads.claim`."""
        values = {
            "key": key,
            "until": time_text(now + timedelta(seconds=lease_seconds)),
            "now": time_text(now),
            "latest": time_text(now + LONGEST_CLAIM),
        }
        return self._file.write(lambda connection, _: connection.execute(_CLAIM, values).rowcount == 1)

    def publish(self, key: str, value: str, as_of: datetime) -> None:
        """See `ports.SharedReads.publish`."""
        values = {"key": key, "value": value, "as_of": time_text(as_of), "latest": time_text(as_of + WRONG_CLOCK)}
        self._file.write(lambda connection, _: connection.execute(_PUBLISH, values))

    def reserve(
        self, key: str, now: datetime, spacing_seconds: float, within_seconds: float | None = None
    ) -> datetime | None:
        """See `ports.SharedReads.reserve`."""
        start, spacing = micros(now), round(spacing_seconds * 1_000_000)
        latest = start + micros_of(LATEST_SLOT if within_seconds is None else timedelta(seconds=within_seconds))
        implausible = start + micros_of(LATEST_SLOT)

        def work(connection: sqlite3.Connection, _: int) -> int | None:
            row = connection.execute("SELECT next_slot FROM shared_queues WHERE key = ?", (key,)).fetchone()
            slot = max(start, row[0]) if row and row[0] <= implausible else start
            if slot > latest:
                return None
            sql = "INSERT INTO shared_queues VALUES (?1, ?2) ON CONFLICT DO UPDATE SET next_slot = ?2"
            connection.execute(sql, (key, slot + spacing))
            return slot

        slot = self._file.write(work)
        return None if slot is None else moment(slot, now)


def _create_tables(connection: sqlite3.Connection, _: int) -> None:
    for sql in _TABLES:
        connection.execute(sql)
