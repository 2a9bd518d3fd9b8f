"""What agents told, in a SQLite file, which may be the ledger's (`SqliteLedger.file`)."""

import sqlite3
from pathlib import Path

from gpulease.domain.agent import AgentRecord
from gpulease.errors import InputInvalid, LeaseConflict
from gpulease.ledger import codec
from gpulease.ledger.sqlite import SqliteFile

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger_agents (lease_id TEXT PRIMARY KEY, version INTEGER NOT NULL, doc TEXT NOT NULL)
"""
_INSERT = "INSERT INTO ledger_agents (version, doc, lease_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_UPDATE = "UPDATE ledger_agents SET version = ?, doc = ? WHERE lease_id = ? AND version = ?"
_SELECT = "SELECT doc FROM ledger_agents WHERE lease_id = ?"


class SqliteAgentStore:
    """`ports.AgentStore`. Safe for use from several threads and processes, as the file is."""

    def __init__(self, path: str | Path | SqliteFile = ":memory:") -> None:
        self._file = path if isinstance(path, SqliteFile) else SqliteFile(path)
        self._file.write(lambda connection, _: connection.execute(_SCHEMA))

    def load(self, lease_id: str) -> AgentRecord | None:
        """See `ports.AgentStore.load`."""
        rows = self._file.read(_SELECT, (lease_id,)) if codec.is_key(lease_id) else []
        return codec.decode(AgentRecord, rows[0][0]) if rows else None

    def save(self, agent: AgentRecord) -> AgentRecord:
        """See `ports.AgentStore.save`."""
        if not codec.is_key(agent.lease_id):
            raise InputInvalid("not a lease id", field="lease_id")
        row = codec.encode(agent.model_copy(update={"version": agent.version + 1}), "agent")
        values = (row.model.version, row.doc, agent.lease_id)

        def work(connection: sqlite3.Connection, tries: int) -> None:
            if agent.version == 0:
                written = connection.execute(_INSERT, values).rowcount
            else:
                written = connection.execute(_UPDATE, (*values, agent.version)).rowcount
            if written != 1 and not (tries and _is_stored(connection, row.doc, agent.lease_id)):
                raise LeaseConflict(f"agent of {agent.lease_id}: no longer version {agent.version}")

        self._file.write(work)
        return row.model


def _is_stored(connection: sqlite3.Connection, doc: str, lease_id: str) -> bool:
    """Whether an earlier try of this very write was carried out after all."""
    found = connection.execute(_SELECT, (lease_id,)).fetchone()
    return found is not None and found[0] == doc
