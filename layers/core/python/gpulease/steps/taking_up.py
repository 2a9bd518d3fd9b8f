"""Take up what exists at a provider and is in nobody's hands: it becomes a `releasing` row of the lease that its marker
names, and `release` gives it back as it gives back everything else. Nothing here talks to a provider.
"""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal, InvalidOperation

from gpulease.domain.lease import Lease, LeaseKind, LeaseState, Reason
from gpulease.domain.observation import Observation
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Rate, Resource, ResourceKind, ResourceState
from gpulease.domain.spec import LeaseSpec
from gpulease.domain.sweep import Named
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event, reopen
from gpulease.errors import LeaseConflict, LeaseNotFound
from gpulease.ports import Deps, Provider
from gpulease.steps.base import FACT_TRIES, account_identity
from gpulease.steps.facts import note_created
from gpulease.steps.starting import start_release

UNOWNED_OWNER = "system:unowned"
"""Of leases made for things whose own lease is not in the ledger."""


def take_up(deps: Deps, provider: Provider, seen: Observation, named: Named) -> bool:
    """Hold it as releasing and start `release`. False = at the last look somebody held it after all; nothing was done.

    Safe to repeat and to cut off anywhere: what is missing is done by the next one.
    """
    for _ in range(FACT_TRIES):
        try:
            record = deps.ledger.load(named.lease_id)
        except LeaseNotFound:
            record = _foundling(deps, provider, named)
        if is_owned(record, seen):
            return False
        if record.resource(named.resource_id) is not None:
            note_created(deps, named.lease_id, named.resource_id, seen)
            return True
        try:
            _add_row(deps, provider, record, seen, named)
        except LeaseConflict:
            continue
        return True
    raise LeaseConflict(f"{named.lease_id}: {FACT_TRIES} writes in a row lost against others")


def may_be_a_cache(deps: Deps, named: Named) -> bool:
    """Whether it may be a cache that somebody uses: the ledger has never known this volume, and knows no end of it.

    So it is after the ledger was restored from before the cache was made. It holds data and only its owner ends it.
    """
    if named.kind is not ResourceKind.VOLUME or not named.lease_id.startswith("c-"):
        return False
    try:
        record = deps.ledger.load(named.lease_id)
    except LeaseNotFound:
        return True
    ended = record.lease.state in (LeaseState.RELEASING, LeaseState.RELEASED)
    return not ended and record.resource(named.resource_id) is None


def is_owned(record: LeaseRecord, seen: Observation) -> bool:
    """Whether an open resource of the lease holds it, or an open intent will find it by its marker."""
    return any(
        resource.provider_id == seen.provider_id or (not resource.provider_id and resource.marker == seen.marker)
        for resource in record.resources
        if resource.state is not ResourceState.RELEASED
    )


def _foundling(deps: Deps, provider: Provider, named: Named) -> LeaseRecord:
    """A lease that is ending, under the id that the marker names, for somebody else's lost one. Not stored yet: it is
    written together with its first row, since without one it would be closed as if everything were gone."""
    now = deps.clock.now()
    detail = f"found at {provider.name} with our marker; the ledger knows no such lease"
    return LeaseRecord(
        Lease(
            id=named.lease_id,
            owner=UNOWNED_OWNER,
            name=f"unowned-{named.lease_id}",
            spec=LeaseSpec(),
            state=LeaseState.RELEASING,
            epoch=1,
            created_at=now,
            updated_at=now,
            release_requested_at=now,
            reason=Reason.LOST,
            reason_detail=detail,
            waiting_for="everything to be given back",
            kind=LeaseKind.CACHE if named.lease_id.startswith("c-") else LeaseKind.MACHINE,
            # Should this die before the start, `check_leases` goes on.
            next_check_at=now + CHECK_WORKFLOW_EVERY,
        )
    )


def _add_row(deps: Deps, provider: Provider, record: LeaseRecord, seen: Observation, named: Named) -> None:
    opened = account_identity(provider, deps)
    now = deps.clock.now()
    born = min(seen.created_at or now, now)
    found = Resource(
        id=named.resource_id,
        lease_id=named.lease_id,
        attempt=named.attempt,
        kind=named.kind,
        provider=provider.name,
        account=provider.account,
        account_identity=opened,
        region=seen.region,
        zone=seen.zone,
        marker=seen.marker,
        state=ResourceState.RELEASED,
        plan=seen.plan,
        subkind=seen.subkind,
        intended_at=born,
        provider_id=seen.provider_id,
        held_at=now,
        billed_from=born,
        billing=provider.billing_rule(named.kind),
        rates=_rates(deps, provider, seen, born),
        status=seen.words,
    )
    text = f"{found.kind} {found.provider_id} carries our marker and nobody holds it; it is being given back"
    told = event(record.lease.id, now, "unowned_found", text, "warning", resource_id=found.id)
    change = replace(reopen(record, found, now=now), events=(told,))
    if record.lease.version == 0:
        first = event(record.lease.id, now, "lease_found", record.lease.reason_detail, "warning")
        change = replace(change, events=(first, told))
    if change.lease is None:
        soon = now + CHECK_WORKFLOW_EVERY
        due = record.lease.next_check_at
        change = replace(change, lease=record.lease.model_copy(update={"next_check_at": min(due or soon, soon)}))
    deps.ledger.commit(change)
    start_release(deps.ledger.load(named.lease_id), deps, f"found{len(record.resources)}")


def _rates(deps: Deps, provider: Provider, seen: Observation, born: datetime) -> tuple[Rate, ...]:
    price = price_of(deps, provider, seen)
    return () if price is None else (Rate(since=born, usd_per_hour=price),)


def price_of(deps: Deps, provider: Provider, seen: Observation) -> Decimal | None:
    """US dollars per hour by the provider's word, else by the catalogue; None = not known.

    Of a zone that the catalogue does not have: the dearest of its region's other zones.
    """
    try:
        return Decimal(seen.price_per_hour_usd)
    except InvalidOperation:
        pass
    offers = (o for s in deps.offers.load() if s.provider == provider.name for o in s.offers)
    kind = (seen.region, seen.plan, seen.spot)
    prices = {o.zone: o.price_per_hour_usd for o in offers if (o.region, o.plan, o.spot) == kind}
    return prices.get(seen.zone, max(prices.values(), default=None))
