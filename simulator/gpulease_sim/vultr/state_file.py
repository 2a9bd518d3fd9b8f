"""The whole account in one SQLite file, so that the simulator can be killed at any moment and continue.

Written through: what a call changed is committed before the call is answered. The clock is not part of it; whoever owns
the clock keeps its mapping (see `read_note`, `write_note`).
"""

import sqlite3
from pathlib import Path

from gpulease_sim.vultr import account as kinds
from gpulease_sim.vultr import storage
from gpulease_sim.vultr.account import Account, Stored
from gpulease_sim.vultr.book import Entry
from gpulease_sim.vultr.codec import dumped, loaded
from gpulease_sim.vultr.machines import Machine
from gpulease_sim.vultr.settings import Settings

_KINDS: dict[str, type[Stored]] = {
    "machines": Machine,
    "vpcs": kinds.Vpc,
    "ssh_keys": kinds.SshKey,
    "startup_scripts": kinds.StartupScript,
    "firewall_groups": kinds.FirewallGroup,
    "reserved_ips": kinds.ReservedIp,
    "snapshots": kinds.Snapshot,
    "jobs": kinds.Job,
    "blocks": storage.Block,
    "block_snapshots": storage.BlockSnapshot,
    "file_systems": storage.FileSystem,
}
_SCHEMA = """
create table if not exists objects (
    position integer primary key, kind text not null, id text not null, data text not null, unique (kind, id)
);
create table if not exists notes (name text primary key, value text not null);
"""


class StateFile:
    """One file per account; one process at a time."""

    def __init__(self, path: Path | str) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = normal")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def read_note(self, name: str) -> str | None:
        """A small text kept beside the account."""
        row = self._connection.execute("select value from notes where name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def write_note(self, name: str, value: str) -> None:
        """Keep a small text beside the account."""
        with self._connection:
            self._note(name, value)

    def clear(self) -> None:
        """An empty account; notes of the clock stay."""
        with self._connection:
            self._connection.execute("delete from objects")
            self._connection.execute("delete from notes where name in ('sequence', 'machine_count', 'settings')")

    def write_settings(self, settings: Settings) -> None:
        """Keep the settings."""
        self.write_note("settings", dumped(settings))

    def read_settings(self) -> Settings | None:
        """The settings kept last."""
        text = self.read_note("settings")
        return None if text is None else loaded(Settings, text)

    def write_changes(self, account: Account) -> None:
        """Commit what changed since the last time."""
        with self._connection:
            for kind, object_id in account.touched:
                self._write(account, kind, object_id)
            self._note("sequence", str(account.sequence))
            self._note("machine_count", str(account.machine_count))
        account.touched.clear()

    def read_into(self, account: Account) -> None:
        """Fill an empty account."""
        account.sequence = int(self.read_note("sequence") or 0)
        account.machine_count = int(self.read_note("machine_count") or 0)
        for kind, data in self._connection.execute("select kind, data from objects order by position"):
            if kind == "book":
                account.book.add(loaded(Entry, data))
                continue
            stored = loaded(_KINDS[kind], data)
            account.table(kind)[stored.id] = stored
            if isinstance(stored, Machine):
                account.by_address[stored.address] = stored.id
                account.watch_end(stored)
        account.tell_guests_of_all()

    def _write(self, account: Account, kind: str, object_id: str) -> None:
        found: Stored | Entry | None
        found = account.book.find(object_id) if kind == "book" else account.table(kind).get(object_id)
        if found is None:
            self._connection.execute("delete from objects where kind = ? and id = ?", (kind, object_id))
            return
        self._connection.execute(
            "insert into objects (kind, id, data) values (?, ?, ?)"
            " on conflict (kind, id) do update set data = excluded.data",
            (kind, object_id, dumped(found)),
        )

    def _note(self, name: str, value: str) -> None:
        self._connection.execute(
            "insert into notes (name, value) values (?, ?) on conflict (name) do update set value = excluded.value",
            (name, value),
        )
