"""Makes, finds, changes and ends caches. The rules are in `domain/cache.py`.

Invariants: a cache is found among its owner's own and nowhere else, so that another's is one that does not exist; the
write comes last of everything that can refuse; two requests for one name make one cache, however they race.
"""

from decimal import Decimal
from http import HTTPStatus

from gpulease.api.accept import draining, ends_at_once, start
from gpulease.api.cache_use import find, found
from gpulease.api.caller import Caller
from gpulease.api.catalogue import Catalogue
from gpulease.api.problems import FieldError, Problem, echo, invalid, unavailable
from gpulease.api.schemas_caches import CacheChange, CachePlan, CacheRequest
from gpulease.api.views import money
from gpulease.domain.cache import (
    COMING_STATES,
    may_remove,
    new_cache,
    spec_digest,
    spec_of,
    user_of,
    with_expiry,
    words_of,
)
from gpulease.domain.cache_spec import CacheSpec
from gpulease.domain.lease import Lease, LeaseState, Reason
from gpulease.domain.offer import Offer
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.transitions import cancel, event
from gpulease.errors import InputInvalid, LeaseConflict, LeaseExists, LeaseSuperseded, LedgerUnavailable
from gpulease.ports import Deps, Ledger, Provider

MAX_TRIES = 8


# --- making -----------------------------------------------------------------------------------------------------------


def plan(request: CacheRequest, caller: Caller, deps: Deps, catalogue: Catalogue) -> tuple[CacheSpec, CachePlan]:
    """What would be made and what it costs, after all checks. Creates nothing. Raises a 422 problem."""
    price, offers, account = Decimal(0), 0, ""
    if request.provider is not None:
        provider = _provider(request.provider, deps)
        account = provider.account
        price = _price(request, provider)
        offers = _offers_there(request, provider, catalogue)
    spec = request.spec(caller.owner, account)
    existing, _ = find(caller.owner, request.name, deps.ledger)
    if existing is not None:
        _must_be_the_same(existing, spec)
    return spec, CachePlan(
        name=request.name,
        exists=existing is not None,
        provider=spec.provider,
        region=spec.region,
        zone=spec.zone,
        size_gb=spec.size_gb if spec.has_volume else None,
        throughput_mibps=spec.throughput_mibps,
        object_store=spec.object_store,
        price_per_month_usd=money(price),
        expire_after_seconds=spec.expire_after_seconds,
        offers=offers,
    )


def make(request: CacheRequest, caller: Caller, deps: Deps, catalogue: Catalogue) -> tuple[LeaseRecord, bool]:
    """The cache of this name, and whether it is new. Raises problems: 422, 409 (another one of this name), 503."""
    spec, _ = plan(request, caller, deps, catalogue)
    for _ in range(MAX_TRIES):
        existing, generation = find(caller.owner, request.name, deps.ledger)
        if existing is not None:
            _must_be_the_same(existing, spec)
            if existing.lease.state is LeaseState.REQUESTED:
                # The first request may have ended between the write and the start.
                start(deps, existing.lease, "cache")
            return existing, False
        if deps.drains.load().on:
            raise draining()
        lease, told = new_cache(spec, request.name, generation, deps.clock.now())
        try:
            deps.ledger.create_lease(lease, [told])
        except LeaseExists:
            continue
        except LedgerUnavailable as error:
            raise unavailable(
                "ledger_unavailable",
                "the ledger did not answer; repeat the request: it makes one cache of this name",
                retry_after_seconds=5,
            ) from error
        if ends_at_once(lease.id, deps):
            raise draining(lease.id)
        if spec.has_volume:
            start(deps, lease, "cache")
        return deps.ledger.load(lease.id), True
    raise unavailable("cache_busy", "others make a cache of this name at this moment; repeat", retry_after_seconds=1)


def _must_be_the_same(existing: LeaseRecord, spec: CacheSpec) -> None:
    lease = existing.lease
    if lease.state is LeaseState.RELEASING:
        raise Problem(
            HTTPStatus.CONFLICT,
            "cache_being_removed",
            f"the cache {lease.name} is being removed; a new one of this name can be made when it is gone",
        )
    if lease.request_digest != spec_digest(spec):
        what = words_of(spec_of(lease))
        raise Problem(
            HTTPStatus.CONFLICT,
            "cache_exists",
            f"there is a cache {lease.name} already, and it is another one ({what}); take another name, or remove it",
        )


def _provider(name: str, deps: Deps) -> Provider:
    accounts = deps.providers.accounts()
    if name not in accounts:
        text = f"{echo(name)!r} is no configured provider; configured: {', '.join(sorted(accounts)) or 'none'}"
        raise invalid([FieldError(field="provider", message=text, value=echo(name))])
    return deps.providers.get(name)


def _price(request: CacheRequest, provider: Provider) -> Decimal:
    try:
        return provider.volume_price_per_month(request.region or "", request.size_gb, request.throughput_mibps)
    except InputInvalid as error:
        value = getattr(request, error.field, None) if error.field else request.region
        raise invalid([FieldError(field=error.field or "region", message=str(error), value=echo(value))]) from error


def _offers_there(request: CacheRequest, provider: Provider, catalogue: Catalogue) -> int:
    """How many offers could use the volume; a place without any is refused, and what would do is named."""
    offers = [offer for offer in catalogue.offers if offer.provider == request.provider]
    region, zone = request.region or "", request.zone or ""
    zones = sorted({offer.zone for offer in offers if offer.region == region and offer.zone})
    if zones and zone not in zones:
        text = f"{request.provider} divides {region} into zones, and a volume is in one of them: {', '.join(zones)}"
        text = f"{echo(zone)!r} is none of them: {text}" if zone else text
        raise invalid([FieldError(field="zone", message=text, value=echo(request.zone))])
    if zone and not zones and any(offer.region == region for offer in offers):
        text = f"{request.provider} does not divide {region} into zones, and {echo(zone)!r} is none; leave it out"
        raise invalid([FieldError(field="zone", message=text, value=echo(zone))])

    def fits(offer: Offer) -> bool:
        return provider.can_attach_volume(offer, region, zone)

    near = sum(fits(offer) for offer in offers)
    if not near:
        where = sorted({o.region for o in offers if provider.can_attach_volume(o, o.region, o.zone)})
        text = (
            f"no machine of {request.provider} in {region} could use a volume there; some could in: {', '.join(where)}"
        )
        raise invalid([FieldError(field="region", message=text, value=echo(region))])
    return near


# --- changing and ending ----------------------------------------------------------------------------------------------


def change(user: str, name: str, wanted: CacheChange, deps: Deps) -> LeaseRecord:
    """The cache with another expiry."""
    for _ in range(MAX_TRIES):
        record = found(user, name, deps.ledger)
        lease, now = record.lease, deps.clock.now()
        if lease.state is LeaseState.RELEASING:
            raise Problem(HTTPStatus.CONFLICT, "cache_being_removed", f"the cache {lease.name} is being removed")
        if spec_of(lease).expire_after_seconds == wanted.expire_after_seconds:
            return record
        changed = with_expiry(lease, wanted.expire_after_seconds, now)
        text = f"cache {lease.name} now ends after {wanted.expire_after_seconds} s unused"
        if wanted.expire_after_seconds is None:
            text = f"cache {lease.name} no longer ends by itself"
        told = event(lease.id, now, "cache_changed", text)
        try:
            deps.ledger.commit(Change(lease.id, lease=changed, events=(told,), epoch=lease.epoch))
        except (LeaseConflict, LeaseSuperseded):
            continue
        return deps.ledger.load(lease.id)
    raise _busy(name)


def remove(user: str, name: str, deps: Deps) -> LeaseRecord:
    """The cache on its way out. Safe to repeat; a 409 problem while a machine uses it."""
    for _ in range(MAX_TRIES):
        record = found(user, name, deps.ledger)
        lease = record.lease
        if lease.state is LeaseState.RELEASING:
            # Harmless when it runs already, and mends a start that failed.
            start(deps, lease, "release")
            return record
        if not may_remove(lease):
            raise Problem(HTTPStatus.CONFLICT, "cache_in_use", f"cache {lease.name} is in use{_by(lease, deps)}")
        if coming := _coming_with(lease, user, deps.ledger):
            text = f"cache {lease.name} is kept for {coming.name} ({coming.id}), which is {coming.state}"
            raise Problem(HTTPStatus.CONFLICT, "cache_in_use", f"{text}; give that back first", lease_id=coming.id)
        try:
            deps.ledger.commit(cancel(record, now=deps.clock.now(), reason=Reason.USER))
        except (LeaseConflict, LeaseSuperseded):
            continue
        record = deps.ledger.load(lease.id)
        start(deps, record.lease, "release")
        return record
    raise _busy(name)


def _coming_with(cache: Lease, user: str, ledger: Ledger) -> Lease | None:
    """A lease of the owner's that would come, or come back, with this cache."""
    cursor: str | None = None
    while True:
        page = ledger.leases_of(user, states=COMING_STATES, cursor=cursor)
        for lease in page.items:
            if lease.cache_id == cache.id:
                return lease
        cursor = page.cursor
        if cursor is None:
            return None


def _by(cache: Lease, deps: Deps) -> str:
    user = user_of(cache)
    if user is None:
        return ""
    lease = deps.ledger.load(user.lease_id).lease
    return f" by {lease.name} ({lease.id}), which is {lease.state}; give that back first"


def _busy(name: str) -> Problem:
    text = f"cache {name} is being changed by somebody else at this moment; nothing was done, repeat the request"
    return unavailable("cache_busy", text, retry_after_seconds=1)
