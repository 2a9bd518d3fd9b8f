"""One execution: its public facts and what the loop needs to go on with it.

The loop changes it in place, because a frozen copy for each transition would be most of the simulation's time;
everybody else gets copies (`Engine.describe`), and stores write it down before any effect it announces.
"""

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from gpulease_local.asl.errors import InvalidName

NAME_LIMIT = 80
_FORBIDDEN_IN_NAMES = frozenset(' \t\r\n<>{}[]?*"#%\\^|~`$&,;:/')
ARN_PREFIX = "arn:aws:states:local:000000000000"


class Status(StrEnum):
    """The service's execution states."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    ABORTED = "ABORTED"


@dataclass(slots=True)
class Execution:
    """An execution; times are epoch seconds. While it runs, `state` and `data` say where it is and with what input.

    `due` is when the loop goes on with it, `retries` the attempts used up in this state (one number for each Retry
    entry), `transitions` what the service would bill (states entered and retries), `events` the length of the
    service's history.
    """

    machine: str
    name: str
    input: Any
    start_time: float
    state: str
    data: Any
    due: float
    status: Status = Status.RUNNING
    entered: bool = False
    entered_time: float = 0.0
    retries: list[int] = field(default_factory=list)
    transitions: int = 0
    events: int = 1
    output: Any = None
    error: str | None = None
    cause: str | None = None
    stop_time: float | None = None
    generation: int = 0  # raised whenever older heap entries and late answers must be ignored

    @property
    def arn(self) -> str:
        """Return the execution's id, shaped like the service's."""
        return f"{ARN_PREFIX}:execution:{self.machine}:{self.name}"

    def context(self) -> dict[str, Any]:
        """Return the context object (`$$`)."""
        return {
            "Execution": {
                "Id": self.arn,
                "Name": self.name,
                "Input": self.input,
                "StartTime": iso_time(self.start_time),
            },
            "State": {
                "Name": self.state,
                "EnteredTime": iso_time(self.entered_time),
                "RetryCount": sum(self.retries),
            },
            "StateMachine": {"Id": f"{ARN_PREFIX}:stateMachine:{self.machine}", "Name": self.machine},
        }

    def copy(self) -> "Execution":
        """Return a copy that later transitions do not touch."""
        return dataclasses.replace(self, retries=list(self.retries))


def iso_time(epoch_seconds: float) -> str:
    """Return a time as the service writes it in the context object, in UTC with milliseconds."""
    moment = datetime.fromtimestamp(epoch_seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_name(name: str) -> None:
    """Raise InvalidName unless the service would take this name for an execution."""
    if not 1 <= len(name) <= NAME_LIMIT or not _FORBIDDEN_IN_NAMES.isdisjoint(name) or not name.isprintable():
        raise InvalidName(f"{name!r} is not a name of 1 to {NAME_LIMIT} allowed characters")
