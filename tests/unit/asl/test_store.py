"""Both stores keep the same contract; the SQLite one can share its file."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpulease_local.asl import Execution, MemoryStore, SqliteStore, Status, Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Yield an empty store of each kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    sqlite = SqliteStore(tmp_path / "shared.sqlite")
    yield sqlite
    sqlite.close()


def execution(name: str = "one", machine: str = "machine") -> Execution:
    """Return an execution in its first state."""
    return Execution(machine, name, {"a": [1, "ü", None]}, 100.5, "First", {"a": 1}, 100.5)


def test_what_was_inserted_is_found(store: Store) -> None:
    store.insert(execution())

    assert store.get("machine", "one") == execution()
    assert store.get("machine", "two") is None
    assert store.get("other", "one") is None


def test_an_update_keeps_everything_a_resume_needs(store: Store) -> None:
    changed = execution()
    store.insert(changed)
    changed.state, changed.data, changed.due, changed.entered, changed.entered_time = (
        "Poll",
        {"b": 2},
        160.25,
        True,
        130.0,
    )
    changed.retries, changed.transitions, changed.events = [2, 0], 7, 40
    store.update(changed)

    assert store.get("machine", "one") == changed


def test_an_update_keeps_how_it_ended(store: Store) -> None:
    changed = execution()
    store.insert(changed)
    changed.status, changed.error, changed.cause, changed.stop_time = Status.FAILED, "NoCapacity", "none left", 200.0
    store.update(changed)

    assert store.get("machine", "one") == changed


def test_selection_is_in_the_order_of_the_starts(store: Store) -> None:
    for name in ("c", "a", "b"):
        store.insert(execution(name))
    store.insert(execution("d", "other"))
    ended = execution("a")
    ended.status = Status.SUCCEEDED
    store.insert(ended)

    assert [e.name for e in store.select("machine", None)] == ["c", "b", "a"]
    assert [e.name for e in store.select(None, Status.RUNNING)] == ["c", "b", "d"]
    assert [e.name for e in store.select("machine", Status.SUCCEEDED)] == ["a"]


def test_the_file_may_be_shared(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE leases (id TEXT)")
    other.close()

    store = SqliteStore(path)
    store.insert(execution())
    store.close()

    with sqlite3.connect(path) as other:
        tables = {row[0] for row in other.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    other.close()
    assert {name for name in tables if not name.startswith(("asl_", "sqlite_"))} == {"leases"}


def test_pruning_forgets_only_what_has_ended_long_ago(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "engine.sqlite")
    for name, status, stop_time in (
        ("old", Status.SUCCEEDED, 10.0),
        ("new", Status.SUCCEEDED, 500.0),
        ("running", Status.RUNNING, None),
    ):
        one = execution(name)
        store.insert(one)
        one.status, one.stop_time = status, stop_time
        store.update(one)

    forgotten = store.prune(before=100.0)

    assert forgotten == 1
    assert [e.name for e in store.select(None, None)] == ["new", "running"]
    store.close()
