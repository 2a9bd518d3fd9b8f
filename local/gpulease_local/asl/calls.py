"""What the engine exchanges with the code around it: calls of functions, and news of transitions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpulease_local.asl.execution import Status


@dataclass(frozen=True, slots=True)
class TaskReply:
    """What a called function answered: a JSON value, or an error name with its cause.

    `duration_seconds` is how long the call took in virtual time; leave it 0 with the wall clock.
    """

    value: Any = None
    error: str | None = None
    cause: str = ""
    duration_seconds: float = 0.0


Invoke = Callable[[str, Any], TaskReply]


@dataclass(frozen=True, slots=True)
class TransitionEvent:
    """A state was entered, retried (`from_state` = `to_state`) or the execution ended (`to_state` None)."""

    time: float
    machine: str
    execution: str
    from_state: str | None
    to_state: str | None
    status: Status
    error: str | None
