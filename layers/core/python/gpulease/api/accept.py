"""Accepts a request for a lease: checks, one conditional write, one workflow start.

Invariants: the write comes last of everything that can refuse, so a refused request leaves nothing; two requests with
one idempotency key make one lease, however they race and however late the second comes (decision 0002).
"""

import base64
import json
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus

from gpulease.agent_program import offers_that_carry
from gpulease.api.cache_use import cache_for_lease, offers_with
from gpulease.api.caller import Caller
from gpulease.api.catalogue import Catalogue, CatalogueReader
from gpulease.api.names import name_for
from gpulease.api.preflight import offers_to_try
from gpulease.api.problems import FieldError, Problem, invalid, unavailable
from gpulease.api.schemas import DryRun, LeaseRequest
from gpulease.api.views import money
from gpulease.domain.lease import Lease, LeaseState, execution_name
from gpulease.domain.offer import Offer
from gpulease.domain.record import LeaseRecord
from gpulease.domain.selection import affordable
from gpulease.domain.transitions import new_lease
from gpulease.domain.user_data import UserDataTooLarge
from gpulease.draining import DETAIL, end_while_draining
from gpulease.errors import (
    GpuleaseError,
    LeaseConflict,
    LeaseExists,
    LeaseNotFound,
    LeaseSuperseded,
    LedgerUnavailable,
)
from gpulease.pause_facts import least_cost, part_of_cache, pause_notices
from gpulease.ports import Deps

MAX_NEW_IDS = 3
MAX_TRIES = 5


def accept(
    request: LeaseRequest, caller: Caller, idempotency_key: str | None, deps: Deps, catalogue: CatalogueReader
) -> LeaseRecord:
    """Record the lease and start its provisioning. The same key again gives the lease that it made."""
    digest = request_digest(request)
    keyed_id = lease_id_for(caller.owner, idempotency_key) if idempotency_key else None
    try:
        _, cache_id = _offers(request, caller, deps, catalogue.loaded())
    except Problem:
        # The catalogue may have changed since the first request with this key; its lease is the answer all the same.
        earlier = _load(deps, keyed_id) if keyed_id else None
        if earlier is None:
            raise
        return _replay(earlier, caller, digest, deps)
    if keyed_id:
        lease = _make(request, keyed_id, caller, digest, deps, cache_id)
        if lease is None:
            return _replay(deps.ledger.load(keyed_id), caller, digest, deps)
    else:
        lease = _make_with_new_id(request, caller, digest, deps, cache_id)
    if ends_at_once(lease.id, deps):
        raise draining(lease.id)
    start(deps, lease, "provision")
    return LeaseRecord(lease)


def ends_at_once(lease_id: str, deps: Deps) -> bool:
    """Whether the deployment began to be drained while the lease, or the cache, was written; it is ended then."""
    is_draining = False
    try:
        is_draining = deps.drains.load().on
        for _ in range(MAX_TRIES if is_draining else 0):
            # Whoever drains may have been there first, and has ended it: so the next look says.
            with suppress(LeaseConflict, LeaseSuperseded):
                return end_while_draining(deps.ledger.load(lease_id), deps)
    except GpuleaseError as error:
        # The lease is recorded, and its workflow looks at the switch before it asks for anything.
        deps.log.warning("drain_left", lease_id=lease_id, error=type(error).__name__)
    return is_draining


def draining(lease_id: str | None = None) -> Problem:
    """409: nothing new begins here."""
    text = f"{DETAIL}: nothing new begins (`gpulease drain --off` ends that)"
    return Problem(HTTPStatus.CONFLICT, "draining", text, lease_id=lease_id)


def dry_run(request: LeaseRequest, caller: Caller, deps: Deps, catalogue: CatalogueReader) -> DryRun:
    """What would be tried, after all the same checks. Creates nothing."""
    spec, known = request.spec(), catalogue.loaded()
    offers, cache_id = _offers(request, caller, deps, known)
    cache = part_of_cache(cache_id, deps)
    return DryRun(
        name=request.name,
        spec=spec,
        offers=tuple(offers[: spec.max_attempts]),
        total=len(offers),
        cheapest_price_per_hour_usd=money(min(o.price_per_hour_usd for o in offers)),
        when_paused=pause_notices(
            spec.policy, offers[: spec.max_attempts], deps, has_cache=spec.cache is not None, cache=cache
        ),
        catalogue=known.age(deps.clock.now()),
    )


def _offers(request: LeaseRequest, caller: Caller, deps: Deps, known: Catalogue) -> tuple[list[Offer], str]:
    """Offers that would be tried, and the id of the cache that the machine will use; "" = none. Raises problems."""
    offers = _that_carry(request, offers_to_try(request.spec(), known, deps.providers), deps)
    if request.cache is None:
        return _within_budget(request, offers, deps), ""
    cache = cache_for_lease(request.cache, caller.owner, deps.ledger)
    return _within_budget(request, offers_with(cache, offers, deps), deps), cache.lease.id


def _within_budget(request: LeaseRequest, offers: list[Offer], deps: Deps) -> list[Offer]:
    """Offers whose machines are of some use before the budget is spent; at least one. Raises a 422 problem."""
    budget = request.policy.budget_usd
    found = affordable(offers, budget, lambda offer: least_cost(offer, deps))
    if found:
        return found
    best = min(offers, key=lambda offer: least_cost(offer, deps))
    text = (
        f"is spent before a machine is of any use: {best.key}, the cheapest that fits, costs "
        f"${money(least_cost(best, deps))} at the least (${money(best.price_per_hour_usd)} per hour)"
    )
    raise invalid([FieldError(field="policy.budget_usd", message=text, value=str(budget))], code="no_matching_offer")


def _that_carry(request: LeaseRequest, offers: list[Offer], deps: Deps) -> list[Offer]:
    """Offers of providers that take what the machine has to be given at its creation (C60)."""
    limits = lambda name: deps.providers.get(name).capabilities.max_user_data_bytes  # noqa: E731
    try:
        return offers_that_carry(request.spec(), request.script(), deps.policy.agent_url, offers, limits)
    except UserDataTooLarge as error:
        size = len(request.script())
        text = (
            f"is too long: with its {size} bytes a machine's user data has {error.size} bytes at the least, "
            f"and {error.limit} are taken; have a short script fetch the rest"
        )
        raise invalid([FieldError(field="start_script", message=text)], code="user_data_too_large") from None


def request_digest(request: LeaseRequest) -> str:
    """SHA-256 of what was asked for, the same for the same meaning: order, blanks and defaults do not matter."""
    asked = request.model_dump(mode="json", exclude_defaults=True, exclude={"start_script", "start_script_base64"})
    asked["start_script_sha256"] = sha256(request.script()).hexdigest()
    return sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def lease_id_for(owner: str, idempotency_key: str) -> str:
    """The id of the one lease that this owner's key can make; looks like any other lease id."""
    digest = sha256(f"{owner}\n{idempotency_key}".encode()).digest()
    return "l-" + base64.b32encode(digest).decode().lower()[:12]


def start(deps: Deps, lease: Lease, machine: str) -> None:
    """Start the lease's workflow. A failure is only logged: the ledger knows, and check_leases starts it later."""
    try:
        deps.workflows.start(
            machine, execution_name(lease.id, machine, lease.epoch), lease_id=lease.id, epoch=lease.epoch
        )
    except Exception as error:
        # Whatever it was: the lease is recorded and the caller must learn its id.
        deps.log.warning(
            "workflow_not_started", lease_id=lease.id, machine=machine, epoch=lease.epoch, error=type(error).__name__
        )


def _make(request: LeaseRequest, lease_id: str, caller: Caller, digest: str, deps: Deps, cache_id: str) -> Lease | None:
    """The lease as recorded; None when the id is taken."""
    if deps.drains.load().on:
        if _load(deps, lease_id) is None:
            raise draining()
        return None
    lease, event = new_lease(
        lease_id=lease_id,
        owner=caller.owner,
        name=request.name or name_for(lease_id),
        spec=request.spec(),
        now=deps.clock.now(),
        digest=digest,
        start_script=request.script(),
        cache_id=cache_id,
    )
    try:
        deps.ledger.create_lease(lease, [event], request.script())
    except LeaseExists:
        return None
    except LedgerUnavailable as error:
        raise unavailable(
            "ledger_unavailable",
            f"the ledger did not answer; if it did record the lease, it is {lease_id}. "
            "Repeat the request with the same Idempotency-Key to be sure",
            retry_after_seconds=5,
            lease_id=lease_id,
        ) from error
    return lease


def _make_with_new_id(request: LeaseRequest, caller: Caller, digest: str, deps: Deps, cache_id: str) -> Lease:
    for _ in range(MAX_NEW_IDS):
        lease_id = deps.ids.lease_id()
        if lease := _make(request, lease_id, caller, digest, deps, cache_id):
            return lease
    raise GpuleaseError(f"{MAX_NEW_IDS} new lease ids were all taken")


def _load(deps: Deps, lease_id: str) -> LeaseRecord | None:
    try:
        return deps.ledger.load(lease_id)
    except LeaseNotFound:
        return None


def _replay(record: LeaseRecord, caller: Caller, digest: str, deps: Deps) -> LeaseRecord:
    lease = record.lease
    if lease.owner != caller.owner or lease.request_digest != digest:
        raise Problem(
            HTTPStatus.CONFLICT,
            "idempotency_key_reused",
            "this Idempotency-Key was used before with another request; take a new key for a new lease",
        )
    if lease.state is LeaseState.REQUESTED:
        # The first request may have ended between the write and the start.
        start(deps, lease, "provision")
    return record
