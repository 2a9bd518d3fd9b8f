"""Routes that change a living lease: its policy, and the owner's word that it is in use."""

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import ValidationError

from gpulease.agent_facts import agent_to_show
from gpulease.api.access import Access, LeaseId
from gpulease.api.ending import refuse_if_it_ends_now
from gpulease.api.openapi import answers
from gpulease.api.problems import Problem, field_errors, invalid, unavailable
from gpulease.api.query import only
from gpulease.api.schemas import LeaseView
from gpulease.api.schemas_policy import KeepRequest, LeasePatch, PolicyPatch
from gpulease.domain.changing import change_policy, keep, merged, touch
from gpulease.domain.record import Change, LeaseRecord
from gpulease.errors import LeaseConflict, LeaseSuperseded
from gpulease.ports import Deps

MAX_TRIES = 5


def policy_router(deps: Deps) -> Router:
    """The routes over these dependencies."""
    router = Router()
    access = Access(deps, router)
    caller, owned, view = access.caller, access.owned, access.view

    def apply(lease_id: str, decide: Callable[[LeaseRecord], Change]) -> LeaseView:
        for _ in range(MAX_TRIES):
            record = owned(lease_id)
            try:
                change = decide(record)
            except ValueError as error:
                if isinstance(error, ValidationError):
                    raise
                raise Problem(
                    HTTPStatus.CONFLICT,
                    "being_released",
                    f"the lease is {record.lease.state}: nothing of it can be changed any more",
                    lease_id=lease_id,
                ) from None
            try:
                deps.ledger.commit(change)
            except (LeaseConflict, LeaseSuperseded):
                continue
            return view(deps.ledger.load(lease_id))
        raise unavailable(
            "lease_busy",
            "the lease is being changed by somebody else at this moment; nothing was done, repeat the request",
            retry_after_seconds=1,
        )

    @router.patch(
        "/v1/leases/<lease_id>",
        summary="Change the policy of a lease while it lives",
        description=(
            "What is not named stays as it is; lists are replaced whole. Acted on within a minute. Refused where the "
            "lease would be given back at once (`would_end_at_once`)."
        ),
        tags=["leases"],
        operation_id="changeLease",
        middlewares=[only()],
        responses=answers({200: ("The lease", LeaseView)}, 400, 404, 409, 413, 415, 503),
    )
    def change_lease(lease_id: LeaseId, patch: Annotated[LeasePatch, Body()]) -> LeaseView:
        def decide(record: LeaseRecord) -> Change:
            try:
                policy = merged(record.lease.rules, patch.policy.given())
            except ValidationError as error:
                found = field_errors([{**e, "loc": ("body", "policy", *e["loc"])} for e in error.errors()], KNOWN)
                raise invalid(found) from None
            change = change_policy(record, policy, deps.clock.now(), caller().owner)
            refuse_if_it_ends_now(record, change, agent_to_show(record.lease, deps), deps)
            return change

        return apply(lease_id, decide)

    @router.post(
        "/v1/leases/<lease_id>/touch",
        summary="Say that a machine is in use now",
        description="Idleness counts from here again.",
        tags=["leases"],
        operation_id="touchLease",
        middlewares=[only()],
        responses=answers({200: ("The lease", LeaseView)}, 404, 409, 503),
    )
    def touch_lease(lease_id: LeaseId) -> LeaseView:
        return apply(lease_id, lambda record: touch(record, deps.clock.now(), caller().owner))

    @router.post(
        "/v1/leases/<lease_id>/keep",
        summary="Keep a machine for a while, used or not",
        description="Neither idleness nor a window pauses it until then. Limits of time and money still hold.",
        tags=["leases"],
        operation_id="keepLease",
        middlewares=[only()],
        responses=answers({200: ("The lease", LeaseView)}, 400, 404, 409, 413, 415, 503),
    )
    def keep_lease(lease_id: LeaseId, request: Annotated[KeepRequest, Body()]) -> LeaseView:
        def decide(record: LeaseRecord) -> Change:
            now = deps.clock.now()
            return keep(record, now + timedelta(seconds=request.seconds), now, caller().owner)

        return apply(lease_id, decide)

    return router


KNOWN = tuple(PolicyPatch.model_fields)
