"""What only a file can do to us: several processes on it, a process that dies, a file that is busy or broken."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import gpulease
import pytest
from gpulease.errors import LeaseNotFound, LedgerUnavailable
from gpulease.ledger import sqlite
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ports import Change

from tests.support.ledger_samples import a_lease, a_resource, an_event, at

ID = "l-aaaaaaaaaaaa"
ROOT = Path(__file__).resolve().parents[3]

WRITER = """
import sqlite3, sys
from itertools import count
from gpulease.errors import LeaseExists
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ports import Change
from tests.support.ledger_samples import a_lease, a_resource, an_event

path, name, limit, honest = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "honest"

class Forgetful(sqlite3.Connection):
    def execute(self, sql, *parameters):
        if sql in ("BEGIN IMMEDIATE", "COMMIT"):
            sql = "SELECT 1" if self.in_transaction else "BEGIN IMMEDIATE"
        return super().execute(sql, *parameters)

def connect(*args, **options):
    return sqlite3.connect(*args, factory=sqlite3.Connection if honest else Forgetful, **options)

ledger = SqliteLedger(path, connect=connect)
for n in range(limit) if limit else count():
    lease_id = f"l-{name}-{n}"
    ledger.create_lease(a_lease(lease_id), [an_event(lease_id)], b"script")
    lease = ledger.load(lease_id).lease
    ledger.commit(Change(lease_id, lease, (a_resource(lease_id),), (an_event(lease_id, 1),), epoch=1))
    print(lease_id, flush=True)
"""


def writer(path: Path, name: str, limit: int = 0, mode: str = "honest") -> subprocess.Popen[str]:
    """A process that writes leases and says which it has written."""
    places = [str(ROOT), str(Path(gpulease.__file__).parents[1])]
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", WRITER, str(path), name, str(limit), mode],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )


def killed_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Kill the process once it has said so many lines, and return all that it said."""
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().split("\n")[:-1]
    process.wait()
    process.stdout.close()
    return said


def incomplete(path: Path, lease_ids: list[str]) -> list[str]:
    """Of the leases that were said to be written, those that are not there in full."""
    ledger = SqliteLedger(path)
    missing = []
    for lease_id in lease_ids:
        try:
            record = ledger.load(lease_id)
        except LeaseNotFound:
            missing.append(lease_id)
            continue
        whole = record.lease.version == 2 and len(record.resources) == 1
        if not whole or len(ledger.events(lease_id).items) != 2 or ledger.start_script(lease_id) != b"script":
            missing.append(lease_id)
    return missing


def test_a_killed_process_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    said = []
    for turn in range(3):
        said += killed_after(writer(path, f"turn{turn}"), 40 + turn)

    assert len(said) >= 120
    assert incomplete(path, said) == []
    for lease in SqliteLedger(path).leases_of(None, limit=10_000).items:
        assert lease.version in (1, 2)


def test_the_kill_would_show_a_ledger_that_does_not_commit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    said = killed_after(writer(path, "held", mode="forgetful"), 10)

    assert incomplete(path, said) == said


def test_processes_may_open_and_write_one_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    processes = [writer(path, f"p{n}", limit=25) for n in range(4)]

    said = []
    for process in processes:
        said += process.communicate(timeout=60)[0].split()

    assert [process.returncode for process in processes] == [0] * 4
    assert len(said) == 100
    assert incomplete(path, said) == []
    assert len(list(SqliteLedger(path).open_resources())) == 100


def test_other_parts_may_keep_tables_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "all.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE executions (name TEXT)")
    ledger = SqliteLedger(path)
    ledger.create_lease(a_lease())
    other.execute("INSERT INTO executions VALUES ('one')")
    ledger.commit(Change(ID, events=(an_event(),)))

    names = {row[0] for row in other.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    other.close()

    assert "executions" in names
    assert all(n.startswith(("ledger_", "sqlite_")) for n in names - {"executions"})


def test_what_another_process_wrote_is_read_at_once(tmp_path: Path) -> None:
    ours, theirs = SqliteLedger(tmp_path / "ledger.db"), SqliteLedger(tmp_path / "ledger.db")
    ours.create_lease(a_lease())
    ours.load(ID)

    theirs.commit(Change(ID, theirs.load(ID).lease.model_copy(update={"name": "theirs"})))

    assert ours.load(ID).lease.name == "theirs"


def test_a_writer_waits_for_another_and_then_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.3)
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    ledger.create_lease(a_lease())
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable):
        ledger.commit(Change(ID, events=(an_event(),)))
    assert ledger.load(ID).lease.version == 1

    release = threading.Timer(0.05, lambda: other.execute("COMMIT"))
    release.start()
    ledger.commit(Change(ID, events=(an_event(),)))
    release.join()
    other.close()
    assert len(ledger.events(ID).items) == 1


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database" * 1000)

    with pytest.raises(LedgerUnavailable):
        SqliteLedger(path)
    with pytest.raises(LedgerUnavailable):
        SqliteLedger(tmp_path / "nowhere" / "ledger.db")


def test_a_closed_ledger_is_unavailable(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.close()

    for call in (
        lambda: ledger.load(ID),
        lambda: ledger.create_lease(a_lease()),
        lambda: ledger.due(at(0)),
        lambda: list(ledger.open_resources()),
    ):
        with pytest.raises(LedgerUnavailable):
            call()


def test_ledgers_in_memory_are_separate() -> None:
    one, other = SqliteLedger(), SqliteLedger()
    one.create_lease(a_lease())

    with pytest.raises(LeaseNotFound):
        other.load(ID)


def test_what_is_due_and_open_and_listed_is_found_by_index(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    statements: list[str] = []

    def connect(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(statements.append)
        return connection

    ledger = SqliteLedger(path, connect=connect)
    ledger.create_lease(a_lease(), [an_event()])
    ledger.commit(Change(ID, resources=(a_resource(),)))
    statements.clear()
    ledger.load(ID)
    ledger.due(at(100))
    list(ledger.open_resources(provider="vultr", region="ewr"))
    cursor = None
    for owner in ("ada", None):
        ledger.leases_of(owner, cursor=cursor)
    ledger.events(ID)
    ledger.start_script(ID)

    reader = sqlite3.connect(path)
    plans = {sql: [row[3] for row in reader.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in statements}
    reader.close()

    assert len(plans) >= 7
    for sql, plan in plans.items():
        steps = [step for step in plan if step.startswith(("SCAN", "SEARCH"))]
        assert all("USING" in step and "INDEX" in step for step in steps), (sql, plan)
        assert not any("TEMP B-TREE" in step for step in plan), (sql, plan)
