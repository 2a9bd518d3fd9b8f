"""Routes under /v1/leases. Thin: who asks, what is meant, one call, one view."""

from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body, Header, Query

from gpulease.agent_facts import agent_to_show
from gpulease.api.accept import accept, dry_run
from gpulease.api.access import Access, LeaseId
from gpulease.api.catalogue import CatalogueReader
from gpulease.api.ending import keeps_something
from gpulease.api.give_back import give_back
from gpulease.api.openapi import answers
from gpulease.api.problems import FieldError, Problem, invalid
from gpulease.api.query import only, separated
from gpulease.api.schemas import DryRun, EventPage, LeasePage, LeaseRequest, LeaseSummary, LeaseView
from gpulease.api.views import event_view, lease_summary
from gpulease.domain.lease import Lease, LeaseKind, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.errors import InputInvalid
from gpulease.ports import Deps, Page

MAX_PAGES_FOR_A_NAME = 10
"""Pages read for one request with a name filter, which the ledger does not know; then the cursor is handed out."""

Cursor = Annotated[str | None, Query(max_length=2048, description="From the page before; opaque")]


def leases_router(deps: Deps, catalogue: CatalogueReader) -> Router:
    """The lease routes over these dependencies."""
    router = Router()

    access = Access(deps, router)
    caller, owned, view = access.caller, access.owned, access.view

    @router.post(
        "/v1/leases",
        summary="Ask for a machine",
        tags=["leases"],
        operation_id="createLease",
        status_code=202,
        middlewares=[only("dry_run")],
        responses=answers(
            {202: ("Accepted; see Location", LeaseView), 200: ("Dry run", DryRun)}, 400, 409, 413, 415, 503
        ),
    )
    def create_lease(
        request: Annotated[LeaseRequest, Body()],
        dry: Annotated[bool, Query(alias="dry_run", description="Only say which offers would be tried")] = False,
        key: Annotated[
            str | None,
            Header(
                alias="Idempotency-Key",
                pattern="^[!-~]{1,255}$",
                description="1 to 255 visible ASCII characters. The same key again gives the same lease, for ever",
            ),
        ] = None,
    ) -> Response[LeaseView | DryRun]:
        who = caller()
        if dry:
            return _json(HTTPStatus.OK, dry_run(request, who, deps, catalogue))
        record = accept(request, who, key, deps, catalogue)
        return _json(HTTPStatus.ACCEPTED, view(record), Location=f"/v1/leases/{record.lease.id}")

    @router.get(
        "/v1/leases",
        summary="List leases, newest first",
        tags=["leases"],
        operation_id="listLeases",
        middlewares=[only("cursor", "limit", "state", "name", "all")],
        responses=answers({200: ("One page", LeasePage)}, 403),
    )
    def list_leases(
        cursor: Cursor = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        state: Annotated[list[str] | None, Query(description="Repeated, or separated by commas")] = None,
        name: Annotated[str | None, Query(max_length=63, description="Exactly this name")] = None,
        everybodys: Annotated[bool, Query(alias="all", description="Everybody's; admins only")] = False,
    ) -> LeasePage:
        who = caller()
        if everybodys and not who.admin:
            raise Problem(HTTPStatus.FORBIDDEN, "admins_only", "only an admin can list everybody's leases")
        owner = None if everybodys else who.owner
        page = _page_of_leases(deps, owner, _states(state), cursor, limit, name)
        # The index may lag behind; a row that is not the caller's is never shown whatever it says.
        shown = [each for each in page.items if who.may_see(each.owner) and each.kind is LeaseKind.MACHINE]
        now = deps.clock.now()

        def summary(lease: Lease) -> LeaseSummary:
            if lease.state is LeaseState.RELEASED:
                return lease_summary(LeaseRecord(lease), now, with_cost=False)
            record, agent = deps.ledger.load(lease.id), agent_to_show(lease, deps)
            keeps = keeps_something(record, deps)
            return lease_summary(record, now, with_cost=True, agent=agent, keeps_something=keeps)

        return LeasePage(leases=tuple(summary(lease) for lease in shown), cursor=page.cursor)

    @router.get(
        "/v1/leases/<lease_id>",
        summary="One lease with everything that is known of it",
        tags=["leases"],
        operation_id="getLease",
        middlewares=[only()],
        responses=answers({200: ("The lease", LeaseView)}, 404),
    )
    def get_lease(lease_id: LeaseId) -> LeaseView:
        return view(owned(lease_id))

    @router.delete(
        "/v1/leases/<lease_id>",
        summary="Give a machine back",
        description=(
            "Safe to repeat. Everything is shown as billed until its absence is proven. A running machine whose cache "
            "is in use is first given the time in which its agent saves and unmounts it: `cache_saving` says until "
            "when at most."
        ),
        tags=["leases"],
        operation_id="releaseLease",
        status_code=202,
        middlewares=[only("now")],
        responses=answers({202: ("Being given back, or given back already", LeaseView)}, 404, 503),
    )
    def release_lease(
        lease_id: LeaseId,
        now: Annotated[
            bool,
            Query(
                description="Do not wait for the cache to be saved. Also later, while that is waited for. "
                "What was written to it since it was last saved is lost where only an object store has it"
            ),
        ] = False,
    ) -> LeaseView:
        record = owned(lease_id)
        who = caller().owner
        detail = "" if who == record.lease.owner else f"by {who}"
        return view(give_back(record, deps, detail, at_once=now))

    @router.get(
        "/v1/leases/<lease_id>/events",
        summary="The story of a lease, oldest first",
        tags=["leases"],
        operation_id="listLeaseEvents",
        middlewares=[only("cursor", "limit")],
        responses=answers({200: ("One page", EventPage)}, 404),
    )
    def lease_events(
        lease_id: LeaseId, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=200)] = 100
    ) -> EventPage:
        owned(lease_id)
        try:
            page = deps.ledger.events(lease_id, cursor=cursor, limit=limit)
        except InputInvalid as error:
            raise _bad_cursor(error) from error
        return EventPage(events=tuple(event_view(event) for event in page.items), cursor=page.cursor)

    return router


def _json(status: HTTPStatus, body: LeaseView | DryRun, **headers: str) -> Response[LeaseView | DryRun]:
    return Response(status_code=status.value, content_type="application/json", body=body, headers=headers)


def _states(given: list[str] | None) -> tuple[LeaseState, ...]:
    """The states to show; none given = all. Raises a 422 problem."""
    names = separated(given)
    known = [state.value for state in LeaseState]
    wrong = [name for name in names if name not in known]
    if wrong:
        text = f"unknown state; known: {', '.join(known)}"
        raise invalid([FieldError(field="state", message=text, value=name[:100]) for name in wrong[:10]])
    return tuple(LeaseState(name) for name in dict.fromkeys(names))


def _page_of_leases(
    deps: Deps,
    owner: str | None,
    states: tuple[LeaseState, ...],
    cursor: str | None,
    limit: int,
    name: str | None,
) -> Page[Lease]:
    """One page; with a name, of a few pages of the ledger what fits."""
    found: list[Lease] = []
    for _ in range(MAX_PAGES_FOR_A_NAME if name else 1):
        try:
            page = deps.ledger.leases_of(owner, states=states, cursor=cursor, limit=limit - len(found))
        except InputInvalid as error:
            raise _bad_cursor(error) from error
        found += [lease for lease in page.items if name is None or lease.name == name]
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return Page(tuple(found), cursor)


def _bad_cursor(error: InputInvalid) -> Problem:
    return invalid([FieldError(field=error.field or "cursor", message=str(error))])
