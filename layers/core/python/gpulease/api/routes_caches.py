"""Routes of caches. A caller sees its own and nobody else's: another's name is one that does not exist."""

from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from gpulease.api.cache_use import found
from gpulease.api.cache_views import cache_view
from gpulease.api.caches import change, make, plan, remove
from gpulease.api.caller import Caller, caller_of
from gpulease.api.catalogue import CatalogueReader
from gpulease.api.openapi import answers
from gpulease.api.problems import FieldError, invalid
from gpulease.api.query import only
from gpulease.api.schemas_caches import CacheChange, CachePage, CachePlan, CacheRequest, CacheView
from gpulease.domain.cache import cache_owner
from gpulease.domain.lease import LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.errors import InputInvalid
from gpulease.ports import Deps

Name = Annotated[str, Path(description="Such as models")]
_NOT_REMOVED = tuple(state for state in LeaseState if state is not LeaseState.RELEASED)


def caches_router(deps: Deps, catalogue: CatalogueReader) -> Router:
    """The cache routes over these dependencies."""
    router = Router()

    def caller() -> Caller:
        return caller_of(router.current_event.raw_event, deps.policy.admins)

    def view(record: LeaseRecord) -> CacheView:
        return cache_view(record, deps.clock.now(), deps.ledger)

    @router.post(
        "/v1/caches",
        summary="Make a cache",
        description="Safe to repeat: the same name and content give the same cache.",
        tags=["caches"],
        operation_id="createCache",
        status_code=202,
        middlewares=[only("dry_run")],
        responses=answers(
            {202: ("Being made, or made already; see Location", CacheView), 200: ("Dry run", CachePlan)},
            400,
            409,
            413,
            415,
            503,
        ),
    )
    def create_cache(
        request: Annotated[CacheRequest, Body()],
        dry: Annotated[bool, Query(alias="dry_run", description="Only say what it would cost")] = False,
    ) -> Response[CacheView | CachePlan]:
        who = caller()
        known = catalogue.loaded() if request.provider is not None else catalogue.read()
        if dry:
            return _json(HTTPStatus.OK, plan(request, who, deps, known)[1])
        record, _ = make(request, who, deps, known)
        return _json(HTTPStatus.ACCEPTED, view(record), Location=f"/v1/caches/{record.lease.name}")

    @router.get(
        "/v1/caches",
        summary="List caches, newest first",
        tags=["caches"],
        operation_id="listCaches",
        middlewares=[only("cursor", "limit", "removed")],
        responses=answers({200: ("One page", CachePage)}),
    )
    def list_caches(
        cursor: Annotated[str | None, Query(max_length=2048, description="From the page before; opaque")] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        removed: Annotated[bool, Query(description="Also those that are gone")] = False,
    ) -> CachePage:
        states = () if removed else _NOT_REMOVED
        owner = cache_owner(caller().owner)
        try:
            page = deps.ledger.leases_of(owner, states=states, cursor=cursor, limit=limit)
        except InputInvalid as error:
            raise invalid([FieldError(field=error.field or "cursor", message=str(error))]) from error
        # The index may lag behind; a row that is not the caller's is never shown whatever it says.
        records = [deps.ledger.load(lease.id) for lease in page.items if lease.owner == owner]
        return CachePage(caches=tuple(view(record) for record in records), cursor=page.cursor)

    @router.get(
        "/v1/caches/<name>",
        summary="One cache",
        tags=["caches"],
        operation_id="getCache",
        middlewares=[only()],
        responses=answers({200: ("The cache", CacheView)}, 404),
    )
    def get_cache(name: Name) -> CacheView:
        return view(found(caller().owner, name, deps.ledger))

    @router.patch(
        "/v1/caches/<name>",
        summary="Change when an unused cache is removed",
        tags=["caches"],
        operation_id="changeCache",
        middlewares=[only()],
        responses=answers({200: ("The cache", CacheView)}, 400, 404, 409, 413, 415, 503),
    )
    def change_cache(name: Name, wanted: Annotated[CacheChange, Body()]) -> CacheView:
        return view(change(caller().owner, name, wanted, deps))

    @router.delete(
        "/v1/caches/<name>",
        summary="Remove a cache with all that it holds",
        description="Safe to repeat. Refused while a machine uses it. What is in its object store stays there.",
        tags=["caches"],
        operation_id="removeCache",
        status_code=202,
        middlewares=[only()],
        responses=answers({202: ("Being removed", CacheView)}, 404, 409, 503),
    )
    def remove_cache(name: Name) -> CacheView:
        return view(remove(caller().owner, name, deps))

    return router


def _json(status: HTTPStatus, body: CacheView | CachePlan, **headers: str) -> Response[CacheView | CachePlan]:
    return Response(status_code=status.value, content_type="application/json", body=body, headers=headers)
