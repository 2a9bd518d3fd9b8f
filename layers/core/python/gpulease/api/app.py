"""The API as one app: routers, guards before them, errors after them.

Invariants: whatever comes in, what goes out is a JSON body or problem details; a traceback is logged and never sent;
nobody without an identity gets past the guard, whatever else is wrong with the request.
"""

import threading
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from gpulease.api.body import checked_body, read_json
from gpulease.api.caller import caller_of
from gpulease.api.catalogue import CatalogueReader
from gpulease.api.openapi import PUBLIC_PATHS, Document
from gpulease.api.problems import FieldError, Problem, field_errors, invalid, unavailable
from gpulease.api.routes_caches import caches_router
from gpulease.api.routes_doctor import SweepNow, doctor_router
from gpulease.api.routes_drain import drain_router
from gpulease.api.routes_leases import leases_router
from gpulease.api.routes_meta import meta_router
from gpulease.api.routes_offers import offers_router
from gpulease.api.routes_pause import pause_router
from gpulease.api.routes_policy import policy_router
from gpulease.api.schemas import LeaseRequest
from gpulease.api.schemas_caches import CacheRequest
from gpulease.errors import InputInvalid, LedgerUnavailable
from gpulease.ports import Deps

MAX_ERRORS = 50
MAX_TRACE_LINES = 12

WITH_A_BODY = frozenset(
    {
        ("POST", "/v1/leases"),
        ("PATCH", "/v1/leases/*"),
        ("POST", "/v1/leases/*/keep"),
        ("POST", "/v1/caches"),
        ("PATCH", "/v1/caches/*"),
    }
)
"""Routes whose body is checked and made plain before anything else looks at it."""

_one_at_a_time = threading.RLock()
"""Powertools keeps the current event on a class shared by all apps of the process: two requests at once would see each
other's identity. Lambda sends one at a time; the local server has threads."""


class Api(APIGatewayHttpResolver):
    """The resolver with guards in front and problem details for everything that goes wrong."""

    def __init__(self, deps: Deps) -> None:
        super().__init__(
            enable_validation=True,
            # An answer that does not fit its own schema is our fault, not the caller's.
            response_validation_error_http_code=HTTPStatus.INTERNAL_SERVER_ERROR,
            json_body_deserializer=read_json,
            debug=False,
        )
        self.deps = deps

    def resolve(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Answer one request (API Gateway payload format 2.0). Never raises."""
        with _one_at_a_time:
            try:
                return super().resolve(self._guarded(event), context)
            except Problem as problem:
                return _as_answer(problem)
            except Exception as error:
                return _as_answer(self.unexpected(error, event))

    def _guarded(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The event with its body as checked text. Raises problems: 401, 413, 415, 400."""
        request = APIGatewayProxyEventV2(dict(event))
        path = request.path
        if path.startswith("/v1/") and path not in PUBLIC_PATHS:
            caller_of(event, self.deps.policy.admins)
        if (request.http_method, _shape(path)) in WITH_A_BODY:
            # Powertools takes a type in capitals for another one.
            headers = {**event["headers"], "content-type": "application/json"}
            return {**event, "headers": headers, "body": checked_body(event), "isBase64Encoded": False}
        return event

    def allowed_methods(self, path: str) -> list[str]:
        """Methods that some route has for this path."""
        return sorted({r.method for r in (*self._static_routes, *self._dynamic_routes) if r.rule.match(path)})

    def unexpected(self, error: Exception, event: Mapping[str, Any]) -> Problem:
        """Log what nobody expected, and say only under which id it was logged."""
        context = event.get("requestContext") or {}
        request_id = str(context.get("requestId", ""))
        # Frames and type only: the message of an exception may repeat what was sent.
        frames = traceback.format_list(traceback.extract_tb(error.__traceback__))[-MAX_TRACE_LINES:]
        self.deps.log.error(
            "request_failed",
            request_id=request_id,
            route=event.get("routeKey", ""),
            error=type(error).__name__,
            trace="".join(frames),
        )
        return Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal_error",
            "something went wrong here; it was logged under this request id",
            request_id=request_id,
        )


def create_app(deps: Deps, sweep: SweepNow | None = None) -> APIGatewayHttpResolver:
    """The API over these dependencies. Uses none of them before the first request. `sweep`: what `/v1/sweep` does."""
    app, catalogue, document = Api(deps), CatalogueReader(deps), Document()
    app.include_router(leases_router(deps, catalogue))
    app.include_router(policy_router(deps))
    app.include_router(pause_router(deps))
    app.include_router(caches_router(deps, catalogue))
    app.include_router(offers_router(deps, catalogue))
    app.include_router(doctor_router(deps, sweep))
    app.include_router(drain_router(deps))
    app.include_router(meta_router(deps, catalogue, document))
    document.describes(app)
    _handle_errors(app)
    return app


def _handle_errors(app: Api) -> None:
    """Every error of a route as problem details; the most special class decides."""

    def no_route(_: NotFoundError) -> Response[str]:
        if methods := app.allowed_methods(app.current_event.path):
            allow = ", ".join(methods)
            return Problem(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "method_not_allowed",
                f"this path knows {allow}",
                headers={"Allow": allow},
            ).response()
        return Problem(HTTPStatus.NOT_FOUND, "no_such_route", "see /openapi.json for what there is").response()

    def bad_request(error: RequestValidationError) -> Response[str]:
        asked = CacheRequest if app.current_event.path.startswith("/v1/caches") else LeaseRequest
        known = tuple(asked.model_fields)
        return invalid(field_errors(error.errors()[:MAX_ERRORS], known)).response()

    def bad_input(error: InputInvalid) -> Response[str]:
        return invalid([FieldError(field=error.field, message=str(error))]).response()

    def no_ledger(error: LedgerUnavailable) -> Response[str]:
        request_id = app.current_event.request_context.request_id
        app.deps.log.warning("ledger_unavailable", request_id=request_id, reason=str(error))
        return unavailable(
            "ledger_unavailable", "the ledger did not answer; repeat the request", retry_after_seconds=5
        ).response()

    def anything_else(error: Exception) -> Response[str]:
        return app.unexpected(error, app.current_event.raw_event).response()

    app.exception_handler(Problem)(Problem.response)
    app.exception_handler(NotFoundError)(no_route)
    app.exception_handler(RequestValidationError)(bad_request)
    app.exception_handler(InputInvalid)(bad_input)
    app.exception_handler(LedgerUnavailable)(no_ledger)
    app.exception_handler(Exception)(anything_else)


def _shape(path: str) -> str:
    """The path with `*` for the id of a lease or the name of a cache."""
    parts = path.split("/")
    if len(parts) > 3 and parts[1] == "v1" and parts[2] in ("leases", "caches"):
        return "/".join([*parts[:3], "*", *parts[4:]])
    return path


def _as_answer(problem: Problem) -> dict[str, Any]:
    """A problem outside any route, in the gateway's form."""
    response = problem.response()
    return {
        "statusCode": response.status_code,
        "body": response.body,
        "isBase64Encoded": False,
        "headers": response.headers,
        "cookies": [],
    }
