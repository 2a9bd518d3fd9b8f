"""The decorators around every handler: input faults by name, one log line per call, outcomes as plain JSON."""

import gc
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from pydantic import ValidationError

from gpulease.errors import GpuleaseError, InputInvalid, LeaseSuperseded, ProviderAuthFailed
from gpulease.runtime.deps import current
from gpulease.steps import alarms
from gpulease.steps.base import Outcome

Handler = Callable[[dict[str, Any], Any], Outcome]


def _operation(handler: Callable[..., object]) -> str:
    """Whose log line it is. In Lambda every handler's module is called `app`, and all functions share one log group."""
    return os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or handler.__module__


def _imported() -> None:
    """The function's module is there but for its last line: see `runtime/__init__.py`."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def step(handler: Handler) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Wrap the handler of one Task.

    A lost epoch is the end of a workflow, not a fault, wherever in the step it was noticed. Everything else that is
    raised reaches the state machine under its class name.
    """

    _imported()

    @wraps(handler)
    def wrapped(event: dict[str, Any], context: Any) -> dict[str, Any]:
        facts = {"operation": _operation(handler), "lease_id": event.get("lease_id"), "epoch": event.get("epoch")}
        try:
            outcome = handler(event, context)
        except LeaseSuperseded:
            current().log.info("step_superseded", **facts)
            return Outcome("superseded").as_json()
        except ValidationError as error:
            fields = ", ".join(".".join(str(part) for part in e["loc"]) for e in error.errors())
            raise InputInvalid(f"task input: {fields}", field=fields) from None
        except GpuleaseError as error:
            if isinstance(error, ProviderAuthFailed):
                # An account is told apart by what the step knows; here only its provider is known, whose name the first
                # account bears.
                alarms.auth_failed(current(), error.facts.provider, error)
            current().log.warning("step_failed", **facts, error=type(error).__name__, reason=str(error))
            raise
        current().log.info("step_done", **facts, outcome=outcome.outcome, wait_seconds=outcome.wait_seconds)
        return outcome.as_json()

    return wrapped


def scheduled(
    handler: Callable[[dict[str, Any], Any], dict[str, int]],
) -> Callable[[dict[str, Any], Any], dict[str, int]]:
    """Wrap the handler of one schedule: what it did is logged as numbers."""

    _imported()

    @wraps(handler)
    def wrapped(event: dict[str, Any], context: Any) -> dict[str, int]:
        done = handler(event, context)
        current().log.info("schedule_done", operation=_operation(handler), **done)
        return done

    return wrapped


def api(handler: Callable[[dict[str, Any], Any], dict[str, Any]]) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Wrap the API handler: one line per request, with its route and status, never its body."""

    _imported()

    @wraps(handler)
    def wrapped(event: dict[str, Any], context: Any) -> dict[str, Any]:
        response = handler(event, context)
        http = event.get("requestContext", {}).get("http", {})
        facts = {"method": http.get("method"), "path": http.get("path"), "status": response.get("statusCode")}
        current().log.info("request_done", **facts)
        return response

    return wrapped
