"""Which cache a name means, and whether a lease may have it.

Invariant: a cache is found among its owner's own and nowhere else, so that another's is one that does not exist.
"""

from http import HTTPStatus

from gpulease.api.problems import FieldError, Problem, echo, invalid
from gpulease.cache_facts import takes_its_volume
from gpulease.domain.cache import (
    cache_id,
    cache_owner,
    is_usable,
    offers_for,
    place_of,
    spec_of,
    user_of,
)
from gpulease.domain.cache_spec import CacheUse
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.record import LeaseRecord
from gpulease.errors import LeaseNotFound
from gpulease.ports import Deps, Ledger

# --- finding ----------------------------------------------------------------------------------------------------------


def find(user: str, name: str, ledger: Ledger) -> tuple[LeaseRecord | None, int]:
    """The user's cache of that name that is not removed, and the generation that the next one would have.

    The index says where to begin and may be late; rows decide.
    """
    generation = max((lease.generation for lease in _listed(user, ledger) if lease.name == name), default=1)
    while True:
        try:
            record = ledger.load(cache_id(user, name, generation))
        except LeaseNotFound:
            return None, generation
        # One that the sweep made for a volume without a record is nobody's, and ends by itself.
        if record.lease.owner == cache_owner(user) and record.lease.state is not LeaseState.RELEASED:
            return record, generation + 1
        generation += 1


def _listed(user: str, ledger: Ledger) -> list[Lease]:
    found: list[Lease] = []
    cursor = None
    while True:
        page = ledger.leases_of(cache_owner(user), cursor=cursor, limit=100)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


def found(user: str, name: str, ledger: Ledger) -> LeaseRecord:
    """The same; a 404 problem where there is none, or only somebody else's."""
    record, _ = find(user, name, ledger)
    if record is None:
        raise Problem(HTTPStatus.NOT_FOUND, "cache_not_found", f"there is no cache {echo(name)}; see GET /v1/caches")
    return record


# --- for a lease ------------------------------------------------------------------------------------------------------


def cache_for_lease(use: CacheUse, user: str, ledger: Ledger, *, field: str = "cache.name") -> LeaseRecord:
    """The cache that a request for a lease names, usable and free. Raises problems: 422 (unknown), 409 (not now)."""
    record, _ = find(user, use.name, ledger)
    if record is None:
        text = f"there is no cache {use.name}; make it first (POST /v1/caches, or `gpulease cache create`)"
        raise invalid([FieldError(field=field, message=text, value=use.name)], code="cache_not_found")
    cache = record.lease
    if cache.state is LeaseState.RELEASING:
        raise Problem(HTTPStatus.CONFLICT, "cache_being_removed", f"the cache {cache.name} is being removed")
    if not is_usable(cache):
        raise Problem(
            HTTPStatus.CONFLICT, "cache_not_ready", f"the cache {cache.name} is being made; ask again in a minute"
        )
    holder = user_of(cache)
    if holder is not None:
        other = ledger.load(holder.lease_id).lease
        # What is on its way out is waited for, before anything is asked of a provider.
        if other.state not in (LeaseState.RELEASING, LeaseState.RELEASED):
            text = f"cache {cache.name} is in use by {other.name} ({other.id}), which is {other.state}"
            raise Problem(HTTPStatus.CONFLICT, "cache_in_use", text, lease_id=other.id)
    return record


def offers_with(cache: LeaseRecord, offers: list[Offer], deps: Deps) -> list[Offer]:
    """Of these the offers whose machines could use the cache, at least one. Raises a 422 problem (C37)."""
    spec = spec_of(cache.lease)
    fitting = offers_for(spec, offers, lambda offer: takes_its_volume(cache, offer, deps))
    if fitting:
        return fitting
    place, name = (spec.region, spec.zone), cache.lease.name
    text = f"cache {name} is a volume in {place_of(spec)}, and no offer that fits otherwise could use it there"
    if any(o.kind is PlanKind.BARE_METAL and o.provider == spec.provider and o.region == spec.region for o in offers):
        text += "; bare metal takes no volume: it can use an object store only"
    elif here := sorted({o.plan for o in offers if (o.provider, o.region, o.zone) == (spec.provider, *place)}):
        text += f"; machines there cannot tell which disk is which: {', '.join(here[:12])}"
    elif offers:
        text += f"; what fits is in {', '.join(sorted({f'{o.provider}/{o.region}' for o in offers})[:12])}"
    raise invalid([FieldError(field="cache.name", message=text, value=cache.lease.name)], code="no_matching_offer")
