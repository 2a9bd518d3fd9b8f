"""What sweeps remember, in a SQLite file, which may be the ledger's (`SqliteLedger.file`)."""

import sqlite3
from pathlib import Path

from gpulease.domain.sweep import SweepState
from gpulease.errors import LeaseConflict
from gpulease.ledger import codec
from gpulease.ledger.sqlite import SqliteFile

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger_sweeps (
    account TEXT NOT NULL, region TEXT NOT NULL, version INTEGER NOT NULL, doc TEXT NOT NULL,
    PRIMARY KEY (account, region)
)
"""
_INSERT = "INSERT INTO ledger_sweeps (version, doc, account, region) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_UPDATE = "UPDATE ledger_sweeps SET version = ?, doc = ? WHERE account = ? AND region = ? AND version = ?"


class SqliteSweepStore:
    """`ports.SweepStore`. Safe for use from several threads and processes, as the file is."""

    def __init__(self, path: str | Path | SqliteFile = ":memory:") -> None:
        self._file = path if isinstance(path, SqliteFile) else SqliteFile(path)
        self._file.write(lambda connection, _: connection.execute(_SCHEMA))
        self._noted: set[tuple[str, str]] = set()

    def note_place(self, account: str, region: str) -> None:
        """See `ports.SweepStore.note_place`."""
        if (account, region) in self._noted:
            return
        state = SweepState(account=account, region=region, version=1)
        row = codec.encode(state, "sweep")
        self._file.write(lambda connection, _: connection.execute(_INSERT, (1, row.doc, account, region)))
        self._noted.add((account, region))

    def states(self) -> list[SweepState]:
        """See `ports.SweepStore.states`. By account and region."""
        rows = self._file.read("SELECT doc FROM ledger_sweeps ORDER BY account, region")
        return [codec.decode(SweepState, row[0]) for row in rows]

    def load(self, account: str, region: str) -> SweepState:
        """See `ports.SweepStore.load`."""
        rows = self._file.read("SELECT doc FROM ledger_sweeps WHERE account = ? AND region = ?", (account, region))
        return codec.decode(SweepState, rows[0][0]) if rows else SweepState(account=account, region=region)

    def save(self, state: SweepState) -> SweepState:
        """See `ports.SweepStore.save`."""
        row = codec.encode(state.model_copy(update={"version": state.version + 1}), "sweep")
        values = (row.model.version, row.doc, state.account, state.region)

        def work(connection: sqlite3.Connection, tries: int) -> None:
            if state.version == 0:
                written = connection.execute(_INSERT, values).rowcount
            else:
                written = connection.execute(_UPDATE, (*values, state.version)).rowcount
            if written != 1 and not (tries and self._is_stored(connection, row.doc, state)):
                raise LeaseConflict(f"sweep of {state.account}/{state.region}: no longer version {state.version}")

        self._file.write(work)
        return row.model

    def _is_stored(self, connection: sqlite3.Connection, doc: str, state: SweepState) -> bool:
        """Whether an earlier try of this very write was carried out after all."""
        sql = "SELECT doc FROM ledger_sweeps WHERE account = ? AND region = ?"
        found = connection.execute(sql, (state.account, state.region)).fetchone()
        return found is not None and found[0] == doc
