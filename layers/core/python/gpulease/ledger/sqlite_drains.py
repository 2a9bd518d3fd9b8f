"""Whether the deployment is being drained, in a SQLite file, which may be the ledger's (`SqliteLedger.file`)."""

from pathlib import Path

from gpulease.domain.drain import Drain
from gpulease.ledger import codec
from gpulease.ledger.sqlite import SqliteFile

_SCHEMA = "CREATE TABLE IF NOT EXISTS ledger_drain (id INTEGER PRIMARY KEY CHECK (id = 1), doc TEXT NOT NULL)"
_PUT = "INSERT INTO ledger_drain (id, doc) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc"


class SqliteDrainStore:
    """`ports.DrainStore`. Safe for use from several threads and processes, as the file is."""

    def __init__(self, path: str | Path | SqliteFile = ":memory:") -> None:
        self._file = path if isinstance(path, SqliteFile) else SqliteFile(path)
        self._file.write(lambda connection, _: connection.execute(_SCHEMA))

    def load(self) -> Drain:
        """See `ports.DrainStore.load`."""
        rows = self._file.read("SELECT doc FROM ledger_drain")
        return codec.decode(Drain, rows[0][0]) if rows else Drain()

    def save(self, drain: Drain) -> None:
        """See `ports.DrainStore.save`."""
        row = codec.encode(drain, "drain")
        self._file.write(lambda connection, _: connection.execute(_PUT, (row.doc,)))
