"""Routes that pause and resume a lease."""

from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import BaseModel

from gpulease.api.access import Access, LeaseId
from gpulease.api.openapi import answers
from gpulease.api.pausing import pause, pause_dry_run, resume, resume_dry_run
from gpulease.api.query import only
from gpulease.api.schemas import LeaseView
from gpulease.api.schemas_pause import PauseDryRun, ResumeDryRun
from gpulease.domain.policy import HOUR, Capacity
from gpulease.domain.record import LeaseRecord
from gpulease.ports import Deps

DryRun = Annotated[bool, Query(alias="dry_run", description="Only say what it would do and cost")]


def pause_router(deps: Deps) -> Router:
    """The routes over these dependencies."""
    router = Router()
    access = Access(deps, router)

    def by(record: LeaseRecord) -> str:
        who = access.caller().owner
        return "" if who == record.lease.owner else f"by {who}"

    @router.post(
        "/v1/leases/<lease_id>/pause",
        summary="Stop the bill of a machine and keep what can be kept",
        description=(
            "Where the provider does not bill a stopped machine it is stopped; elsewhere it is given back and its "
            "cache is kept. Without a cache that is refused (`nothing_to_keep`). Safe to repeat. It is shown as "
            "`pausing`, and billed, until it is proven stopped."
        ),
        tags=["leases"],
        operation_id="pauseLease",
        status_code=202,
        middlewares=[only("dry_run")],
        responses=answers(
            {202: ("Being paused, or paused already", LeaseView), 200: ("Dry run", PauseDryRun)}, 404, 409, 503
        ),
    )
    def pause_lease(lease_id: LeaseId, dry: DryRun = False) -> Response[LeaseView | PauseDryRun]:
        record = access.owned(lease_id)
        if dry:
            return _json(HTTPStatus.OK, pause_dry_run(record, deps))
        return _json(HTTPStatus.ACCEPTED, access.view(pause(record, deps, by(record))))

    @router.post(
        "/v1/leases/<lease_id>/resume",
        summary="Let a paused machine run again",
        description=(
            "The stopped machine is started, or a new one is made with the lease's cache. When that cannot be had the "
            "lease stays paused and says why. Addresses change. Safe to repeat."
        ),
        tags=["leases"],
        operation_id="resumeLease",
        status_code=202,
        middlewares=[only("dry_run", "on_no_capacity", "wait_seconds")],
        responses=answers(
            {202: ("Being resumed, or running already", LeaseView), 200: ("Dry run", ResumeDryRun)}, 404, 409, 503
        ),
    )
    def resume_lease(
        lease_id: LeaseId,
        on_no_capacity: Annotated[
            Capacity | None,
            Query(
                description="`replace`: a new machine instead, to which the stopped one hands its cache over; "
                "the default is the policy's word"
            ),
        ] = None,
        wait_seconds: Annotated[
            int | None, Query(ge=0, le=24 * HOUR, description="How long to try for capacity; 120 when missing")
        ] = None,
        dry: DryRun = False,
    ) -> Response[LeaseView | ResumeDryRun]:
        record = access.owned(lease_id)
        if dry:
            return _json(HTTPStatus.OK, resume_dry_run(record, deps))
        resumed = resume(record, deps, by(record), on_no_capacity, wait_seconds)
        return _json(HTTPStatus.ACCEPTED, access.view(resumed))

    return router


def _json(status: HTTPStatus, body: BaseModel) -> Response[Any]:
    return Response(status_code=status.value, content_type="application/json", body=body)
