"""What can go wrong, in two families.

* `StateError`: an error inside an execution. It has an ASL error name and goes through Retry and Catch.
* The others are raised to the caller. Where the service has a name for the refusal, ours is the same.
"""

RUNTIME = "States.Runtime"
TIMEOUT = "States.Timeout"
TASK_FAILED = "States.TaskFailed"
ALL = "States.ALL"
NO_CHOICE_MATCHED = "States.NoChoiceMatched"
DATA_LIMIT_EXCEEDED = "States.DataLimitExceeded"
RESULT_PATH_MATCH_FAILURE = "States.ResultPathMatchFailure"
MARSHAL_ERROR = "Runtime.MarshalError"  # the name a Lambda runtime gives to an answer that is not JSON

# https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html: always end the execution.
UNCATCHABLE = frozenset({RUNTIME, DATA_LIMIT_EXCEEDED})


class StateError(Exception):
    """An error inside a state: `error` is the ASL error name, `cause` is for people."""

    def __init__(self, error: str, cause: str = "") -> None:
        super().__init__(f"{error}: {cause}")
        self.error = error
        self.cause = cause


class DefinitionRefused(Exception):
    """A state machine file holds something outside the supported subset; says where and why."""

    def __init__(self, file: str, state: str, field: str, why: str) -> None:
        super().__init__(f"{file}: state {state or '(top level)'}: {field or '(whole state)'}: {why}")
        self.file = file
        self.state = state
        self.field = field
        self.why = why


class EngineRefused(Exception):
    """The engine refused a call; the subclasses carry the service's names."""


class StateMachineDoesNotExist(EngineRefused):
    """No machine of that name is registered."""


class ExecutionDoesNotExist(EngineRefused):
    """No execution of that name was ever started."""


class ExecutionAlreadyExists(EngineRefused):
    """The name is taken by an execution that has ended or has another input."""


class InvalidName(EngineRefused):
    """A name must have 1 to 80 characters and none of the reserved ones."""


class InvalidExecutionInput(EngineRefused):
    """The input is not JSON or is larger than 256 KB."""
