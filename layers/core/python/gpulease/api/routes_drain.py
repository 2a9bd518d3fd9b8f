"""Routes under /v1/drain, for admins: empty the deployment before it is deleted."""

from http import HTTPStatus

from aws_lambda_powertools.event_handler.api_gateway import Router

from gpulease.api.caller import Caller, caller_of
from gpulease.api.draining import look, put_off, put_on
from gpulease.api.openapi import answers
from gpulease.api.problems import Problem
from gpulease.api.query import only
from gpulease.api.schemas_drain import DrainView
from gpulease.ports import Deps


def drain_router(deps: Deps) -> Router:
    """The routes over these dependencies."""
    router = Router()

    def admin() -> Caller:
        caller = caller_of(router.current_event.raw_event, deps.policy.admins)
        if not caller.admin:
            raise Problem(HTTPStatus.FORBIDDEN, "admins_only", "only an admin can drain the deployment")
        return caller

    @router.post(
        "/v1/drain",
        summary="Refuse new leases and give back all open ones; admins only",
        description="Ask again until it is done: each request also gives back what the one before did not get to. "
        "Caches are shown and never removed.",
        tags=["service"],
        operation_id="drain",
        middlewares=[only()],
        responses=answers({200: ("How far it is", DrainView)}, 403, 503),
    )
    def put_it_on() -> DrainView:
        return put_on(deps, admin())

    @router.get(
        "/v1/drain",
        summary="Whether the deployment is being drained, and what is left; admins only",
        tags=["service"],
        operation_id="getDrain",
        middlewares=[only()],
        responses=answers({200: ("How far it is", DrainView)}, 403, 503),
    )
    def how_far() -> DrainView:
        admin()
        return look(deps)

    @router.delete(
        "/v1/drain",
        summary="Take new leases again; admins only",
        description="What is on its way out by then stays so.",
        tags=["service"],
        operation_id="stopDraining",
        middlewares=[only()],
        responses=answers({200: ("What there is", DrainView)}, 403, 503),
    )
    def put_it_off() -> DrainView:
        return put_off(deps, admin())

    return router
