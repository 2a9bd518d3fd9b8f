"""Virtual time: waits, calls that take time, timeouts, retries and schedules."""

import pytest
from gpulease_local.asl import Engine, Status, TaskReply, VirtualClock

from tests.asl.machines import task
from tests.support.asl import T0, Bench, script

DONE = {"Type": "Succeed"}


def test_a_wait_of_an_hour_costs_no_real_time() -> None:
    bench = Bench({})
    bench.machine({"Hold": {"Type": "Wait", "Seconds": 3600, "Next": "Done"}, "Done": DONE})

    ended = bench.run()

    assert ended.status == "SUCCEEDED"
    assert (ended.start_time, ended.stop_time) == (T0, T0 + 3600)


def test_an_answer_arrives_as_late_as_the_call_took() -> None:
    bench = Bench({"first": script(TaskReply("x", duration_seconds=2.5))})
    bench.machine({"Call": task()})

    ended = bench.run()

    assert (ended.status, ended.stop_time) == ("SUCCEEDED", T0 + 2.5)


def test_a_call_that_takes_too_long_is_a_timeout_at_its_limit() -> None:
    bench = Bench({"first": script(TaskReply("too late", duration_seconds=31.0))})
    bench.machine({"Call": task(TimeoutSeconds=30)})

    ended = bench.run()

    assert (ended.status, ended.error, ended.stop_time) == ("FAILED", "States.Timeout", T0 + 30)
    assert len(bench.calls) == 1  # its effects have happened


def test_a_call_that_takes_exactly_its_limit_is_in_time() -> None:
    bench = Bench({"first": script(TaskReply("just", duration_seconds=30.0))})
    bench.machine({"Call": task(TimeoutSeconds=30)})

    assert bench.run().status == "SUCCEEDED"


def test_code_inside_a_call_may_spend_time() -> None:
    clock = VirtualClock(T0)
    seen = []

    def invoke(function: str, payload: object) -> TaskReply:
        clock.begin_call()
        clock.spend(4.0)
        seen.append(clock.time())
        return TaskReply("x", duration_seconds=clock.end_call())

    bench = Bench({"first": script(TaskReply())})
    engine = Engine(clock=clock, seed=1, invoke=invoke)
    bench.engine = engine
    bench.machine({"Call": task(Next="Again"), "Again": task()})
    engine.start("machine", "one", {})
    engine.run_until_idle()

    assert seen == [T0 + 4.0, T0 + 8.0]


def test_retries_wait_longer_each_time_and_are_told_apart_in_the_log() -> None:
    bench = Bench({"first": script(TaskReply(error="Throttled"))})
    retry = {"ErrorEquals": ["Throttled"], "IntervalSeconds": 2, "BackoffRate": 3.0, "MaxAttempts": 3}
    bench.machine({"Call": task(Retry=[{**retry, "MaxDelaySeconds": 10}])})

    ended = bench.run()

    assert [when for when, _, _ in bench.calls] == [0.0, 2.0, 8.0, 18.0]
    assert [(e.from_state, e.to_state, e.error) for e in bench.log] == [
        (None, "Call", None),
        *[("Call", "Call", "Throttled")] * 3,
        ("Call", None, "Throttled"),
    ]
    assert ended.transitions == 4  # one state and three retries are billed


def test_the_time_limit_of_an_execution_holds_during_a_call_too() -> None:
    bench = Bench({"first": script(TaskReply("x", duration_seconds=20.0))})
    bench.machine(
        {"Call": task(Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Done"}], Next="Done"), "Done": DONE},
        TimeoutSeconds=10,
    )

    ended = bench.run()
    bench.engine.run_until(T0 + 100)

    assert (ended.status, ended.stop_time) == ("TIMED_OUT", T0 + 10)
    assert bench.log[-1].status is Status.TIMED_OUT


def test_executions_due_at_the_same_time_interleave_in_the_order_they_were_started() -> None:
    bench = Bench({"first": script(TaskReply())})
    bench.machine({"A": task(ResultPath=None, Next="B"), "B": task(ResultPath=None)})
    for name in ("x", "y"):
        bench.engine.start("machine", name, {})

    bench.engine.run_until_idle()

    assert [(e.execution, e.to_state) for e in bench.log if e.to_state] == [
        ("x", "A"),
        ("y", "A"),
        ("x", "B"),
        ("y", "B"),
    ]


def test_run_until_stops_the_clock_where_it_was_told() -> None:
    bench = Bench({})
    bench.machine({"Hold": {"Type": "Wait", "Seconds": 100, "End": True}})
    bench.engine.start("machine", "one", {})

    bench.engine.run_until(T0 + 60)
    halfway = bench.engine.describe("machine", "one")
    bench.engine.run_until(T0 + 100)

    assert (halfway.status, halfway.state) == ("RUNNING", "Hold")
    assert bench.engine.describe("machine", "one").status == "SUCCEEDED"
    assert bench.seconds() == 100.0


def test_schedules_keep_to_their_grid_and_can_be_cancelled() -> None:
    bench = Bench({})
    seen: list[float] = []
    handle = bench.engine.call_every(60, lambda: seen.append(bench.seconds()), first_after=10)
    bench.engine.call_at(T0 + 200, handle.cancel)

    bench.engine.run_until(T0 + 1000)

    assert seen == [10.0, 70.0, 130.0, 190.0]


def test_a_call_in_the_past_is_made_at_once() -> None:
    bench = Bench({})
    seen: list[float] = []
    bench.engine.call_at(T0 - 50, lambda: seen.append(bench.seconds()))

    bench.engine.run_until(T0)

    assert seen == [0.0]


def test_schedules_alone_do_not_keep_a_run_going() -> None:
    bench = Bench({})
    bench.machine({"Hold": {"Type": "Wait", "Seconds": 100, "End": True}})
    bench.engine.call_every(30, lambda: None)
    bench.engine.start("machine", "one", {})

    bench.engine.run_until_idle()

    assert bench.seconds() == 100.0


def test_a_run_until_idle_ends_at_its_limit() -> None:
    bench = Bench({})
    bench.machine(
        {
            "Hold": {"Type": "Wait", "Seconds": 100, "Next": "Again"},
            "Again": {"Type": "Wait", "Seconds": 100, "Next": "Hold"},
        }
    )
    bench.engine.start("machine", "one", {})

    bench.engine.run_until_idle(limit=T0 + 350)

    assert bench.engine.describe("machine", "one").status == "RUNNING"
    assert bench.seconds() == 350.0


def test_a_schedule_that_raises_is_heard_and_goes_on() -> None:
    bench = Bench({})
    turns: list[float] = []

    def broken() -> None:
        turns.append(bench.seconds())
        raise ZeroDivisionError

    bench.engine.call_every(60, broken)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            bench.engine.run_until(T0 + 1000)

    assert turns == [60.0, 120.0]


def test_threads_and_virtual_time_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="workers=0"):
        Engine(clock=VirtualClock(), seed=1, invoke=lambda function, payload: TaskReply(), workers=1)
