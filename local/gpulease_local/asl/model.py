"""The compiled state machine: what a checked definition becomes.

Invariant: everything here is immutable and already valid; the interpreter never looks at JSON again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gpulease_local.asl.choice import Rule
from gpulease_local.asl.paths import Reader, ReferencePath
from gpulease_local.asl.retry import Catcher, Retrier


class Service(Enum):
    """The two task resources of the subset."""

    LAMBDA_INVOKE = "arn:aws:states:::lambda:invoke"
    START_EXECUTION = "arn:aws:states:::states:startExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What every state has. `input_path`/`output_path` None is the JSON null: an empty object."""

    name: str
    input_path: ReferencePath | None
    output_path: ReferencePath | None
    next: str | None = None  # None ends the execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(State):
    """Calls a function or starts an execution."""

    service: Service
    target: str  # FunctionName, or the state machine's name
    payload: Reader  # Payload, or Input
    execution_name: Reader | None  # startExecution only
    result_selector: Reader | None
    result_path: ReferencePath | None
    retry: tuple[Retrier, ...]
    catch: tuple[Catcher, ...]
    timeout_seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(State):
    """Goes where the first matching rule says."""

    rules: tuple[tuple[Rule, str], ...]
    default: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(State):
    """Waits a number of seconds, fixed or read from the input."""

    seconds: int | None
    seconds_path: ReferencePath | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(State):
    """Shapes its input."""

    result: Reader | None  # Result or Parameters
    result_path: ReferencePath | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeed(State):
    """Ends the execution well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(State):
    """Ends the execution with an error."""

    error: str | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class StateMachine:
    """A checked definition. `timeout_seconds` bounds a whole execution."""

    name: str
    start_at: str
    states: Mapping[str, State]
    timeout_seconds: int | None
    file: str = ""
