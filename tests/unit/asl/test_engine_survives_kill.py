"""kill -9 at any moment loses no execution and no step of it."""

import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

from gpulease_local.asl import SqliteStore

from tests.support.asl import until
from tests.unit.asl.killed_worker import EXECUTIONS, STEPS

KILLS = 5
REPOSITORY = Path(__file__).resolve().parents[3]


def _spawn(folder: Path) -> subprocess.Popen[bytes]:
    environment = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'local'}"}
    command = [sys.executable, "-m", "tests.unit.asl.killed_worker", str(folder)]
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE)  # noqa: S603


def test_every_execution_completes_however_often_the_process_is_killed(tmp_path: Path) -> None:
    moments = random.Random(20)  # noqa: S311 - moments to kill at
    killed = 0
    finished = False

    while not finished:
        process = _spawn(tmp_path)
        try:
            if killed < KILLS:
                _wait_for_new_calls(tmp_path, process, moments.randint(5, 25))
                process.kill()
                killed += 1
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL), stderr.decode()
        finished = process.returncode == 0

    assert killed == KILLS
    store = SqliteStore(tmp_path / "engine.sqlite")
    ended = list(store.select("chain", None))
    store.close()
    assert sorted(e.name for e in ended) == sorted(f"lease-{number}" for number in range(EXECUTIONS))
    for execution in ended:
        said = {f"step{n}": {"said": f"{execution.name} step-{n}"} for n in range(STEPS)}
        assert execution.status == "SUCCEEDED"
        assert execution.output == {**execution.input, **said}
    lines = (tmp_path / "calls.txt").read_text().splitlines()
    calls = Counter(lines)
    for number in range(EXECUTIONS):
        for step in range(STEPS):
            last = 1 if step == 2 else 0
            assert calls[f"lease-{number} step-{step} {last}"] >= 1
        # A step may be repeated, but never after a later one has begun: nothing falls back.
        of_one = (line.split() for line in lines if line.startswith(f"lease-{number} "))
        order = [(int(function.removeprefix("step-")), int(retry)) for _, function, retry in of_one]
        assert order == sorted(order)
    # A kill repeats at most the calls that were under way or queued: one for each execution.
    assert sum(calls.values()) <= EXECUTIONS * (STEPS + 1) + KILLS * EXECUTIONS


def test_the_file_is_never_left_broken(tmp_path: Path) -> None:
    process = _spawn(tmp_path)
    try:
        _wait_for_new_calls(tmp_path, process, 10)
    finally:
        process.kill()
        process.communicate(timeout=60)

    with sqlite3.connect(tmp_path / "engine.sqlite") as connection:
        answer = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()

    assert answer == ("ok",)


def _wait_for_new_calls(folder: Path, process: subprocess.Popen[bytes], number: int) -> None:
    """Wait until the process has made some calls of its own (or has ended)."""
    calls = folder / "calls.txt"
    before = calls.stat().st_size if calls.exists() else 0

    def made() -> bool:
        return calls.exists() and calls.read_bytes()[before:].count(b"\n") >= number

    until(lambda: made() or process.poll() is not None)
