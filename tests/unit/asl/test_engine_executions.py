"""Starting, stopping and looking at executions; limits; what a call may do to the engine."""

from typing import Any

import pytest
from gpulease_local.asl import (
    ExecutionAlreadyExists,
    ExecutionDoesNotExist,
    InvalidExecutionInput,
    InvalidName,
    MemoryStore,
    StateMachineDoesNotExist,
    TaskReply,
)

from tests.asl.machines import START, answer, task
from tests.support.asl import T0, Bench, script

HOLD = {"Hold": {"Type": "Wait", "Seconds": 100, "End": True}}
DAY = 86_400


def holding() -> Bench:
    """Return a bench with one running execution."""
    bench = Bench({})
    bench.machine(HOLD)
    bench.engine.start("machine", "one", {"a": 1})
    return bench


def test_a_doubled_start_is_the_same_execution_while_it_runs() -> None:
    bench = holding()

    first = bench.engine.describe("machine", "one").arn
    again = bench.engine.start("machine", "one", {"a": 1})

    assert again == first
    assert len(list(bench.engine.executions())) == 1


def test_a_running_name_with_another_input_is_refused() -> None:
    bench = holding()

    with pytest.raises(ExecutionAlreadyExists):
        bench.engine.start("machine", "one", {"a": 2})


def test_an_ended_name_is_refused_for_ninety_days() -> None:
    bench = holding()
    bench.engine.run_until_idle()

    bench.engine.run_until(T0 + 90 * DAY)
    with pytest.raises(ExecutionAlreadyExists):
        bench.engine.start("machine", "one", {"a": 1})
    bench.engine.run_until(T0 + 91 * DAY)
    bench.engine.start("machine", "one", {"a": 3})

    assert [e.input for e in bench.engine.executions()] == [{"a": 3}]


def test_a_machine_nobody_registered_cannot_be_started() -> None:
    with pytest.raises(StateMachineDoesNotExist):
        Bench({}).engine.start("machine", "one", {})


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a/b", "a:b", "a*", "a\n", "a\x00"])
def test_bad_names_are_refused(name: str) -> None:
    bench = holding()

    with pytest.raises(InvalidName):
        bench.engine.start("machine", name, {})


@pytest.mark.parametrize("value", [{"x": object()}, {"x": float("nan")}, {"x": "y" * 300_000}])
def test_bad_inputs_are_refused(value: Any) -> None:
    bench = holding()

    with pytest.raises(InvalidExecutionInput):
        bench.engine.start("machine", "two", value)


def test_stop_aborts_and_no_catch_runs() -> None:
    bench = Bench({"first": script(TaskReply("x", duration_seconds=50))})
    bench.machine({"Call": task(Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]), "Caught": answer("caught")})
    bench.engine.start("machine", "one", {})
    bench.engine.run_until(T0 + 10)

    bench.engine.stop("machine", "one", error="Cancelled", cause="by the user")
    bench.engine.run_until(T0 + 1000)

    ended = bench.engine.describe("machine", "one")
    assert (ended.status, ended.error, ended.cause, ended.stop_time) == ("ABORTED", "Cancelled", "by the user", T0 + 10)
    assert [e.to_state for e in bench.log] == ["Call", None]


def test_stopping_an_ended_execution_changes_nothing() -> None:
    bench = holding()
    bench.engine.run_until_idle()

    bench.engine.stop("machine", "one")

    assert bench.engine.describe("machine", "one").status == "SUCCEEDED"


def test_what_was_never_started_can_be_neither_stopped_nor_described() -> None:
    bench = holding()

    with pytest.raises(ExecutionDoesNotExist):
        bench.engine.stop("machine", "two")
    with pytest.raises(ExecutionDoesNotExist):
        bench.engine.describe("machine", "two")


def test_a_description_is_a_copy() -> None:
    bench = holding()

    seen = bench.engine.describe("machine", "one")
    bench.engine.run_until_idle()

    assert seen.status == "RUNNING"


def test_executions_can_be_selected() -> None:
    bench = holding()
    bench.machine({"Only": {"Type": "Fail", "Error": "No"}}, name="other")
    bench.engine.start("other", "two", {})
    bench.engine.run_until(T0 + 1)

    assert [e.name for e in bench.engine.executions()] == ["one", "two"]
    assert [e.name for e in bench.engine.executions("other")] == ["two"]
    assert [e.name for e in bench.engine.executions(status="RUNNING")] == ["one"]
    assert [e.name for e in bench.engine.executions("machine", "FAILED")] == []


def test_a_call_may_stop_its_own_execution() -> None:
    bench: Bench

    def stops(payload: Any) -> TaskReply:
        bench.engine.stop("machine", "one", error="Superseded")
        return TaskReply("too late")

    bench = Bench({"first": stops})
    bench.machine({"Call": task(Next="After"), "After": answer("after")})

    ended = bench.run()

    assert (ended.status, ended.error) == ("ABORTED", "Superseded")
    assert [e.to_state for e in bench.log] == ["Call", None]


def test_a_call_may_start_another_execution() -> None:
    bench: Bench

    def starts(payload: Any) -> TaskReply:
        return TaskReply(bench.engine.start("other", "two", {}))

    bench = Bench({"first": starts})
    bench.machine(HOLD, name="other")
    bench.machine({"Call": task()})

    bench.run()

    assert bench.engine.describe("other", "two").status == "SUCCEEDED"


def test_a_started_execution_gets_its_input() -> None:
    bench = Bench({})
    bench.machine({"Only": {"Type": "Succeed"}}, name="other")
    start = {"StateMachineArn": "other", "Name.$": "$.name", "Input": {"lease_id.$": "$.name", "epoch": 1}}
    bench.machine({"Start": {"Type": "Task", "Resource": START, "Parameters": start, "End": True}})

    bench.run({"name": "lease-1"})

    assert bench.engine.describe("other", "lease-1").output == {"lease_id": "lease-1", "epoch": 1}


def test_starting_an_unknown_machine_is_an_error_that_can_be_caught() -> None:
    bench = Bench({})
    start = {"StateMachineArn": "gone", "Name": "x", "Input": {}}
    bench.machine({"Start": {"Type": "Task", "Resource": START, "Parameters": start, "End": True}})

    assert bench.run().error == "StepFunctions.StateMachineDoesNotExistException"


def test_what_a_call_does_to_its_payload_stays_there() -> None:
    def greedy(payload: Any) -> TaskReply:
        payload["lease"].clear()
        return TaskReply("x")

    bench = Bench({"first": greedy})
    bench.machine({"Call": task(payload={"lease.$": "$.lease"}, ResultPath=None)})

    assert bench.run({"lease": {"id": 1}}).output == {"lease": {"id": 1}}


def test_an_answer_that_is_not_json_is_an_error() -> None:
    bench = Bench({"first": script(TaskReply({1, 2}))})
    bench.machine({"Call": task()})

    assert bench.run().error == "Runtime.MarshalError"


def test_a_payload_over_the_limit_cannot_be_caught() -> None:
    bench = Bench({"first": script(TaskReply("x" * 200_000))})
    caught = [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]
    bench.machine(
        {
            "A": task(ResultPath="$.a", Next="B"),
            "B": task(ResultPath="$.b", Catch=caught, Next="Caught"),
            "Caught": answer("caught"),
        }
    )

    assert bench.run().error == "States.DataLimitExceeded"


def test_a_loop_ends_at_the_history_limit_of_the_service() -> None:
    bench = Bench({"first": script(TaskReply())})
    bench.machine(
        {
            "WaitBeforePoll": {"Type": "Wait", "Seconds": 5, "Next": "Poll"},
            "Poll": task(ResultPath=None, Next="IsReady"),
            "IsReady": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.never", "IsPresent": True, "Next": "Done"}],
                "Default": "WaitBeforePoll",
            },
            "Done": {"Type": "Succeed"},
        }
    )

    ended = bench.run()

    assert (ended.status, ended.error, ended.events) == ("FAILED", "States.Runtime", 25_000)
    assert "25000" in ended.cause
    assert len(bench.calls) == 25_000 // 9 + 1  # nine events for each turn, and the turn that was cut off


def test_endless_retries_end_at_the_history_limit() -> None:
    bench = Bench({"first": script(TaskReply(error="Throttled"))})
    retry = {"ErrorEquals": ["Throttled"], "MaxAttempts": 99_999, "MaxDelaySeconds": 5}
    bench.machine({"Call": task(Retry=[retry])})

    assert bench.run().error == "States.Runtime"


def test_a_call_that_blows_up_is_made_again_by_whoever_runs_on() -> None:
    blown: list[str] = []

    def fragile(payload: Any) -> TaskReply:
        if not blown:
            blown.append("once")
            raise KeyboardInterrupt
        return TaskReply("x")

    store = MemoryStore()
    bench = Bench({"first": fragile}, store=store)
    bench.machine({"Call": task()})
    with pytest.raises(KeyboardInterrupt):
        bench.run()

    second = Bench({"first": fragile}, store=store)
    second.machine({"Call": task()})
    second.engine.run_until_idle()

    assert second.engine.describe("machine", "one").status == "SUCCEEDED"
    bench.engine.run_until_idle()
    assert len(bench.calls) + len(second.calls) == 2


def test_an_execution_whose_state_is_gone_fails_with_a_reason() -> None:
    store = MemoryStore()
    bench = Bench({}, store=store)
    bench.machine(HOLD)
    bench.engine.start("machine", "one", {})
    bench.engine.run_until(T0 + 10)

    newer = Bench({}, store=store)
    newer.machine({"Renamed": {"Type": "Succeed"}})
    newer.engine.run_until_idle()

    ended = newer.engine.describe("machine", "one")
    assert (ended.status, ended.error) == ("FAILED", "States.Runtime")
    assert "Hold" in str(ended.cause)
