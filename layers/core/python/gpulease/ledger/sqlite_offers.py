"""The last offers of each provider in a SQLite file. They are a copy of something; who owns what is in `sqlite.py`."""

from pathlib import Path

from gpulease.domain.offer import OfferSnapshot
from gpulease.ledger import codec
from gpulease.ledger.codec import time_text
from gpulease.ledger.sqlite import SqliteFile


class SqliteOfferStore:
    """`ports.OfferStore` in a SQLite file, which may be the ledger's (`SqliteLedger.file`)."""

    def __init__(self, path: str | Path | SqliteFile = ":memory:") -> None:
        self._file = path if isinstance(path, SqliteFile) else SqliteFile(path)

    def save(self, snapshot: OfferSnapshot) -> None:
        """Keep the snapshot as its provider's last, unless a later one is kept already."""
        row = codec.encode(snapshot, "offers", max_bytes=None)
        sql = (
            "INSERT INTO ledger_offers VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET as_of = excluded.as_of, "
            "doc = excluded.doc WHERE excluded.as_of >= as_of"
        )
        parameters = (snapshot.provider, time_text(row.model.as_of), row.doc)
        self._file.write(lambda connection, _: connection.execute(sql, parameters))

    def load(self) -> list[OfferSnapshot]:
        """The last snapshot of each provider, by name."""
        rows = self._file.read("SELECT doc FROM ledger_offers ORDER BY provider")
        return [codec.decode(OfferSnapshot, row[0]) for row in rows]
