"""What each state does with its input: pure functions, no time, no store, no loop.

Order of the data fields, as the service applies them: InputPath, Parameters, the work, ResultSelector, ResultPath (into
the state's raw input), OutputPath. A path that leads nowhere is States.Runtime and ends the execution.
"""

from typing import Any

from gpulease_local.asl.errors import NO_CHOICE_MATCHED, RUNTIME, StateError
from gpulease_local.asl.execution import Execution
from gpulease_local.asl.model import Choice, Pass, Service, State, Task, Wait
from gpulease_local.asl.paths import ReferencePath, check_size, decode_json, encode_json

MAX_SECONDS = 99_999_999  # the service's limit for waits and timeouts


def select(path: ReferencePath | None, data: Any, execution: Execution) -> Any:
    """Apply InputPath or OutputPath; null gives an empty object."""
    if path is None:
        return {}
    return path.read(data, execution) if path.steps or path.of_context else data


def place(path: ReferencePath | None, raw: Any, result: Any) -> Any:
    """Apply ResultPath; null throws the result away."""
    return raw if path is None else path.write(raw, result)


def leave(state: State, raw: Any, data: Any, execution: Execution) -> Any:
    """Apply OutputPath and check the size of a state's output."""
    output = select(state.output_path, data, execution)
    if output is not raw:
        check_size(encode_json(output), f"The output of {state.name}")
    return output


def run_choice(state: Choice, raw: Any, execution: Execution) -> tuple[str, Any]:
    """Return the next state's name and its input."""
    data = select(state.input_path, raw, execution)
    output = leave(state, raw, data, execution)
    for rule, target in state.rules:
        if rule(data, execution):
            return target, output
    if state.default is None:
        raise StateError(NO_CHOICE_MATCHED, f"No rule of {state.name} matched and it has no Default")
    return state.default, output


def run_pass(state: Pass, raw: Any, execution: Execution) -> Any:
    """Return the output of a Pass."""
    data = select(state.input_path, raw, execution)
    if state.result is not None:
        data = state.result(data, execution)
    return leave(state, raw, place(state.result_path, raw, data), execution)


def wait_seconds(state: Wait, raw: Any, execution: Execution) -> int:
    """Return how long a Wait waits."""
    if state.seconds_path is None:
        return state.seconds or 0
    seconds = state.seconds_path.read(select(state.input_path, raw, execution), execution)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= MAX_SECONDS:
        raise StateError(RUNTIME, f"{state.seconds_path.text} must be a whole number of seconds, it is {seconds!r}")
    return seconds


def run_through(state: State, raw: Any, execution: Execution) -> Any:
    """Return the output of a Wait or a Succeed: the input through InputPath and OutputPath."""
    return leave(state, raw, select(state.input_path, raw, execution), execution)


def task_payload(state: Task, raw: Any, execution: Execution) -> Any:
    """Return the Payload (or Input) of a task: a fresh copy that the called code may change."""
    data = select(state.input_path, raw, execution)
    text = encode_json(state.payload(data, execution))
    check_size(text, f"The input of {state.name}")
    return decode_json(text)


def execution_name(state: Task, raw: Any, execution: Execution) -> str:
    """Return the Name that a startExecution task gives to the new execution."""
    assert state.execution_name is not None  # noqa: S101 - the definition was checked at load
    name = state.execution_name(select(state.input_path, raw, execution), execution)
    if not isinstance(name, str):
        raise StateError(RUNTIME, f"The Name of {state.name} must be a text, it is {name!r}")
    return name


def task_output(state: Task, raw: Any, reply: Any, execution: Execution) -> Any:
    """Return the output of a task whose call answered `reply` (JSON)."""
    if state.service is Service.LAMBDA_INVOKE:
        reply = {"ExecutedVersion": "$LATEST", "Payload": reply, "StatusCode": 200}
    if state.result_selector is not None:
        reply = state.result_selector(reply, execution)
    return leave(state, raw, place(state.result_path, raw, reply), execution)
