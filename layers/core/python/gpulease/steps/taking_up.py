"""Take up what exists at a provider and is in nobody's hands: it becomes a `releasing` row of the lease that its marker
names, and `release` gives it back as it gives back everything else. Nothing here talks to a provider.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from gpulease.domain.lease import Lease, LeaseState, Reason
from gpulease.domain.observation import Observation
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Rate, Resource, ResourceState
from gpulease.domain.spec import LeaseSpec
from gpulease.domain.sweep import Named
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event, reopen
from gpulease.errors import LeaseConflict, LeaseExists, LeaseNotFound
from gpulease.ports import Deps, Provider
from gpulease.steps.base import FACT_TRIES
from gpulease.steps.facts import note_created
from gpulease.steps.starting import start_release

FOUNDLING_WAITS = timedelta(days=1)
"""How long a lease made for a found thing waits for its row, before it is closed as having nothing."""
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
            _make_foundling(deps, provider, named)
            continue
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


def is_owned(record: LeaseRecord, seen: Observation) -> bool:
    """Whether an open resource of the lease holds it, or an open intent will find it by its marker."""
    return any(
        resource.provider_id == seen.provider_id or (not resource.provider_id and resource.marker == seen.marker)
        for resource in record.resources
        if resource.state is not ResourceState.RELEASED
    )


def _make_foundling(deps: Deps, provider: Provider, named: Named) -> None:
    """A lease that is ending, under the id that the marker names, for somebody else's lost one."""
    now = deps.clock.now()
    detail = f"found at {provider.name} with our marker; the ledger knows no such lease"
    lease = Lease(
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
        # Should this die before its row is written, the next sweep writes it; nobody may close the lease before that.
        next_check_at=now + FOUNDLING_WAITS,
    )
    try:
        deps.ledger.create_lease(lease, [event(lease.id, now, "lease_found", detail, "warning")])
    except LeaseExists:
        return


def _add_row(deps: Deps, provider: Provider, record: LeaseRecord, seen: Observation, named: Named) -> None:
    now = deps.clock.now()
    born = min(seen.created_at or now, now)
    found = Resource(
        id=named.resource_id,
        lease_id=named.lease_id,
        attempt=named.attempt,
        kind=named.kind,
        provider=provider.name,
        account=provider.account,
        region=seen.region,
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
    if change.lease is None:
        soon = now + CHECK_WORKFLOW_EVERY
        due = record.lease.next_check_at
        change = replace(change, lease=record.lease.model_copy(update={"next_check_at": min(due or soon, soon)}))
    deps.ledger.commit(change)
    start_release(deps.ledger.load(named.lease_id), deps, f"found{len(record.resources)}")


def _rates(deps: Deps, provider: Provider, seen: Observation, born: datetime) -> tuple[Rate, ...]:
    price = price_of(deps, provider, seen.region, seen.plan, seen.price_per_hour_usd)
    return () if price is None else (Rate(since=born, usd_per_hour=price),)


def price_of(deps: Deps, provider: Provider, region: str, plan: str, told: str = "") -> Decimal | None:
    """US dollars per hour by the provider's word, else by the catalogue; None = not known."""
    try:
        return Decimal(told)
    except InvalidOperation:
        pass
    offers = (o for s in deps.offers.load() if s.provider == provider.name for o in s.offers)
    return next((o.price_per_hour_usd for o in offers if (o.region, o.plan) == (region, plan)), None)
