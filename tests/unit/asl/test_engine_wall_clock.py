"""The wall clock with workers: nobody waits for a slow call, late answers are dropped, any thread may start."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gpulease_local.asl import Engine, MemoryStore, ScaledClock, SqliteStore, Store, TaskReply, load_definition

from tests.asl.machines import answer, task
from tests.support.asl import PATIENCE_SECONDS, pause, until


@contextmanager
def running(
    invoke: Callable[[str, Any], TaskReply], states: dict[str, Any], *, store: Store | None = None, workers: int = 4
) -> Iterator[Engine]:
    """Run an engine on a clock twenty times as fast as the wall's."""
    engine = Engine(clock=ScaledClock(scale=20.0), seed=1, invoke=invoke, store=store, workers=workers)
    names = {"first": "first", "second": "second"}
    engine.register(
        load_definition({"StartAt": next(iter(states)), "States": states}, name="machine", substitutions=names)
    )
    stop = threading.Event()
    loop = threading.Thread(target=engine.run_forever, args=(stop,))
    loop.start()
    try:
        yield engine
    finally:
        stop.set()
        loop.join(PATIENCE_SECONDS)
        engine.close()
        assert not loop.is_alive()


def ended(engine: Engine, name: str) -> bool:
    """Tell whether an execution is over."""
    return engine.describe("machine", name).status != "RUNNING"


def test_one_slow_call_holds_up_nobody_else() -> None:
    release = threading.Event()

    def invoke(function: str, payload: Any) -> TaskReply:
        if payload["name"] == "slow":
            release.wait(PATIENCE_SECONDS)
        return TaskReply("x")

    with running(invoke, {"Call": task(payload={"name.$": "$.name"}, TimeoutSeconds=900)}) as engine:
        engine.start("machine", "slow", {"name": "slow"})
        for number in range(20):
            engine.start("machine", f"quick-{number}", {"name": "quick"})
        until(lambda: all(ended(engine, f"quick-{number}") for number in range(20)))
        slow_was_running = not ended(engine, "slow")
        release.set()
        until(lambda: ended(engine, "slow"))

    assert slow_was_running


def test_a_late_answer_is_thrown_away() -> None:
    release = threading.Event()
    answered = threading.Event()

    def invoke(function: str, payload: Any) -> TaskReply:
        if function == "first":
            release.wait(PATIENCE_SECONDS)
            answered.set()
        return TaskReply(function)

    states = {
        "Call": task(TimeoutSeconds=1, Catch=[{"ErrorEquals": ["States.Timeout"], "Next": "Other"}]),
        "Other": task("second", OutputPath="$.Payload", Next="Hold"),
        "Hold": {"Type": "Wait", "Seconds": 2, "End": True},
    }
    with running(invoke, states) as engine:
        engine.start("machine", "one", {})
        until(lambda: engine.describe("machine", "one").state == "Hold")
        release.set()
        answered.wait(PATIENCE_SECONDS)
        until(lambda: ended(engine, "one"))

        assert engine.describe("machine", "one").output == "second"


def test_any_thread_may_start_executions() -> None:
    with running(lambda function, payload: TaskReply("x"), {"Call": task()}) as engine:
        threads = [
            threading.Thread(target=lambda n=n: [engine.start("machine", f"{n}-{m}", {}) for m in range(10)])
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: not list(engine.executions(status="RUNNING")))

        assert len(list(engine.executions(status="SUCCEEDED"))) == 80


def test_a_call_may_start_another_execution_from_its_worker() -> None:
    engine: Engine

    def invoke(function: str, payload: Any) -> TaskReply:
        if function == "first":
            engine.start("machine", "two", {"go": False})
        return TaskReply("x")

    states = {
        "Ask": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.go", "BooleanEquals": True, "Next": "Call"}],
            "Default": "No",
        },
        "Call": task(),
        "No": answer("no"),
    }
    with running(invoke, states) as engine:
        engine.start("machine", "one", {"go": True})
        until(lambda: ended(engine, "one"))

        assert ended(engine, "two")


def test_invoke_that_raises_is_an_error_of_the_task(caplog: pytest.LogCaptureFixture) -> None:
    def invoke(function: str, payload: Any) -> TaskReply:
        raise ZeroDivisionError("a bug")

    with caplog.at_level(logging.CRITICAL + 1, logger="gpulease_local"), running(invoke, {"Call": task()}) as engine:
        engine.start("machine", "one", {})
        until(lambda: ended(engine, "one"))
        seen = engine.describe("machine", "one")

    assert (seen.status, seen.error, seen.cause) == ("FAILED", "Lambda.Unknown", "ZeroDivisionError: a bug")


def test_a_schedule_never_runs_beside_itself_and_holds_up_nobody() -> None:
    inside = 0
    most = 0
    turns = 0
    lock = threading.Lock()

    def slow_turn() -> None:
        nonlocal inside, most, turns
        with lock:
            inside += 1
            most = max(most, inside)
        pause(0.05)
        with lock:
            inside -= 1
            turns += 1

    with running(lambda function, payload: TaskReply("x"), {"Call": task()}) as engine:
        handle = engine.call_every(0.2, slow_turn)
        engine.start("machine", "one", {})
        until(lambda: turns >= 3 and ended(engine, "one"))
        handle.cancel()

    assert most == 1


def test_a_schedule_that_raises_is_logged_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    turns = 0

    def broken() -> None:
        nonlocal turns
        turns += 1
        raise ZeroDivisionError

    with running(lambda function, payload: TaskReply("x"), {"Call": task()}) as engine:
        engine.call_every(0.2, broken)
        until(lambda: turns >= 2)

    assert "schedule_failed" in caplog.text


def test_closing_lets_calls_finish_and_starts_no_new_ones(tmp_path: Path) -> None:
    calls: list[str] = []
    began = threading.Event()

    def invoke(function: str, payload: Any) -> TaskReply:
        calls.append(function)
        began.set()
        pause(0.2)
        return TaskReply(function)

    store = SqliteStore(tmp_path / "engine.sqlite")
    states = {"A": task("first", ResultPath=None, Next="B"), "B": task("second", OutputPath="$.Payload")}
    with running(invoke, states, store=store) as engine:
        engine.start("machine", "one", {})
        began.wait(PATIENCE_SECONDS)
    parked = store.get("machine", "one")
    with running(invoke, states, store=store) as engine:
        until(lambda: ended(engine, "one"))
        output = engine.describe("machine", "one").output
    store.close()

    assert parked is not None
    assert (parked.status, parked.state) == ("RUNNING", "B")
    assert (output, calls) == ("second", ["first", "second"])


def test_run_until_works_on_the_wall_clock_too() -> None:
    clock = ScaledClock(scale=20.0)
    engine = Engine(clock=clock, seed=1, invoke=lambda function, payload: TaskReply("x"), store=MemoryStore())
    hold = {"StartAt": "Hold", "States": {"Hold": {"Type": "Wait", "Seconds": 1, "End": True}}}
    engine.register(load_definition(hold, name="machine"))
    engine.start("machine", "one", {})

    engine.run_until_idle(limit=clock.time() + 60)
    engine.run_until(clock.time() + 0.5)

    assert engine.describe("machine", "one").status == "SUCCEEDED"
