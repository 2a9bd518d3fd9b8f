"""Routes that hold the ledger against the providers: to look (everybody's own), and to act on it (admins)."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Query

from gpulease.api.caller import caller_of
from gpulease.api.doctor import examine
from gpulease.api.openapi import answers
from gpulease.api.problems import Problem, unavailable
from gpulease.api.query import only
from gpulease.api.schemas_doctor import DoctorView, SweepView
from gpulease.domain.sweep import SweepReport
from gpulease.ports import Deps

SweepNow = Callable[[bool], SweepReport]
"""`dry_run` → what was done. Given to the app from outside: routes do not know the steps."""


def doctor_router(deps: Deps, sweep: SweepNow | None) -> Router:
    """The two routes over these dependencies."""
    router = Router()

    @router.get(
        "/v1/doctor",
        summary="Ledger and provider side by side",
        description="Reads the providers' lists now, for at most some 15 seconds; places that did not answer in time "
        "are shown as the last sweep saw them. Changes nothing.",
        tags=["service"],
        operation_id="getDoctor",
        middlewares=[only("live")],
        responses=answers({200: ("What is held, on its way out, unowned, lost, exempt", DoctorView)}, 503),
    )
    def doctor(
        live: Annotated[bool, Query(description="false: ask no provider, show what the last sweep saw")] = True,
    ) -> DoctorView:
        return examine(deps, caller_of(router.current_event.raw_event, deps.policy.admins), live=live)

    @router.post(
        "/v1/sweep",
        summary="Sweep now; admins only",
        description="What the schedule does every five minutes. Acts by the same rules: twice seen, and older than "
        "the provider's visibility window.",
        tags=["service"],
        operation_id="sweep",
        middlewares=[only("dry_run")],
        responses=answers({200: ("What was done", SweepView)}, 403, 503),
    )
    def sweep_now(
        dry_run: Annotated[bool, Query(description="Only look, and say what would be done")] = False,
    ) -> SweepView:
        caller = caller_of(router.current_event.raw_event, deps.policy.admins)
        if not caller.admin:
            raise Problem(HTTPStatus.FORBIDDEN, "admins_only", "only an admin can sweep; everybody can use /v1/doctor")
        if sweep is None:
            raise unavailable("no_sweep", "this process cannot sweep; the schedule does", retry_after_seconds=300)
        report = sweep(dry_run)
        return SweepView(dry_run=report.dry_run, lines=tuple(report.lines), **report.counts())

    return router
