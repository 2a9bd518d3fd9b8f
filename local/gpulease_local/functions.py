"""Imports the functions' own handlers and calls them as Lambda would: JSON in, JSON out, errors by class name.

Invariants: each `app.py` is a module of its own name, imported once; what a handler raises becomes an answer and never
ends the caller; payload and result make the round trip through JSON, so that nothing passes here that the service would
refuse.
"""

import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from gpulease_local.asl import TaskReply
from gpulease_local.template import FunctionSpec, TemplateRefused

Handler = Callable[[Any, Any], Any]
MARSHAL_ERROR = "Runtime.MarshalError"  # as a Lambda runtime names an answer that is not JSON


class LambdaContext:
    """What handlers and Powertools read of the service's context object. Times come from `monotonic` (seconds)."""

    memory_limit_in_mb = 512
    function_version = "$LATEST"

    def __init__(self, spec: FunctionSpec, request_id: str, monotonic: Callable[[], float]) -> None:
        self.function_name = spec.name
        self.invoked_function_arn = f"arn:aws:lambda:local:000000000000:function:{spec.name}"
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{spec.name}"
        self.log_stream_name = "local"
        self._monotonic = monotonic
        self._ends_at = monotonic() + spec.timeout_seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function's Timeout, never below 0."""
        return max(0, int((self._ends_at - self._monotonic()) * 1000))


class Functions:
    """The stack's functions by logical id. `token` makes request ids."""

    def __init__(
        self,
        specs: Iterable[FunctionSpec],
        *,
        monotonic: Callable[[], float],
        token: Callable[[], str],
        on_error: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._monotonic = monotonic
        self._token = token
        self._on_error = on_error
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.Lock()

    def load_all(self) -> None:
        """Import every function now. Raises TemplateRefused for one that cannot be imported."""
        for name in self._specs:
            self._handler(name)

    def invoke(self, name: str, payload: Any) -> TaskReply:
        """Call a function as a state machine's Task does; a raised error is an answer, too."""
        if name not in self._specs:
            return TaskReply(error="Lambda.ResourceNotFoundException", cause=f"Function not found: {name}")
        try:
            value = self.call(name, payload)
        except _NotJson as error:
            return TaskReply(error=MARSHAL_ERROR, cause=_cause(error, MARSHAL_ERROR))
        except Exception as error:
            if self._on_error is not None:
                self._on_error(name, error)
            return TaskReply(error=type(error).__name__, cause=_cause(error, type(error).__name__))
        return TaskReply(value=value)

    def call(self, name: str, payload: Any) -> Any:
        """Call a function and return its result; what it raises comes through."""
        spec = self._specs[name]
        handler = self._handler(name)
        result = handler(json.loads(json.dumps(payload)), LambdaContext(spec, self._token(), self._monotonic))
        try:
            return json.loads(json.dumps(result, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise _NotJson(f"Unable to marshal response: {error}") from error

    def _handler(self, name: str) -> Handler:
        with self._lock:
            if name not in self._handlers:
                self._handlers[name] = _load(self._specs[name])
            return self._handlers[name]


class _NotJson(Exception):
    """The handler's result is not JSON."""


def _cause(error: BaseException, name: str) -> str:
    return json.dumps({"errorMessage": str(error), "errorType": name})


def _load(spec: FunctionSpec) -> Handler:
    module_path, _, attribute = spec.handler.rpartition(".")
    file = spec.folder / f"{module_path.replace('.', '/')}.py"
    try:
        handler = getattr(_import(f"gpulease_functions.{spec.folder.name}.{module_path}", file), attribute)
    except (OSError, ImportError, AttributeError) as error:
        raise TemplateRefused(f"{spec.name}: cannot import {spec.handler} from {file}: {error}") from error
    if not callable(handler):
        raise TemplateRefused(f"{spec.name}: {spec.handler} in {file} is not callable")
    return handler  # type: ignore[no-any-return]


def _import(name: str, file: Any) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(file):
        return known
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise ImportError(f"no module at {file}")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
