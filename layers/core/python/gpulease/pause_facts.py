"""What a pause of a lease would be and cost, from the ledger and the providers' own facts. Needs no provider call.

For whoever decides about a pause and for whoever has to tell of it beforehand (law 11): steps and API alike.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from gpulease.domain.cost import first_bill, lease_cost, rate_now
from gpulease.domain.lease import Lease, PauseMode
from gpulease.domain.offer import Offer
from gpulease.domain.pause import pause_mode
from gpulease.domain.pause_plan import BilledPart, PausePlan, no_stop, per_hour, plan_pause
from gpulease.domain.policy import Keep, LeasePolicy, Then, in_words
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.errors import InputInvalid, LeaseNotFound
from gpulease.ports import Deps

PAUSE_NOTICE = "when paused:"


def mode_of(record: LeaseRecord, deps: Deps) -> PauseMode | None:
    """What a pause of this lease would do; None = it would keep nothing."""
    offer = offer_of(record.lease)
    if offer is None or not is_configured(offer.provider, deps):
        return None
    can_stop = can_be_stopped(offer, deps)
    return pause_mode(can_stop=can_stop, has_cache=bool(record.lease.cache_id))


def plan_of(record: LeaseRecord, deps: Deps) -> PausePlan:
    """What a pause of this lease would do and cost."""
    offer = offer_of(record.lease)
    machine = machine_held(record)
    running = rate_now(machine) if machine is not None else Decimal(0)
    if offer is None:
        return plan_pause(None, provider="nobody", running=running, stopped=Decimal(0), cache=None)
    if not is_configured(offer.provider, deps):
        text = f"the account {offer.provider} is not in the settings (any more): nothing can be asked of it"
        return PausePlan(None, running, (), text)
    mode = mode_of(record, deps)
    stopped = deps.providers.get(offer.provider).stopped_price_per_hour(offer) if mode is PauseMode.STOP else Decimal(0)
    cache = cache_part(record.lease, deps)
    spot = is_never_stopped_as_spot(offer, deps)
    return plan_pause(mode, provider=offer.provider, running=running, stopped=stopped, cache=cache, spot=spot)


def pause_notice(
    policy: LeasePolicy, offer: Offer, deps: Deps, *, has_cache: bool, cache: BilledPart | None = None
) -> str:
    """What a pause would be on a machine of this offer: told before the machine is asked for (law 11)."""
    mode = pause_mode(can_stop=can_be_stopped(offer, deps), has_cache=has_cache)
    if mode is None:
        spot = is_never_stopped_as_spot(offer, deps)
        why = f"{PAUSE_NOTICE} {no_stop(offer.provider, spot=spot)} and there is no cache: it"
        whens = _pausing_limits(policy)
        if not whens:
            return f"{why} cannot be paused"
        price = per_hour(offer.price_per_hour_usd)
        return f"{why} is given back with all that is on it {' or '.join(whens)} ({price} until then, nothing after)"
    stopped = deps.providers.get(offer.provider).stopped_price_per_hour(offer) if mode is PauseMode.STOP else Decimal(0)
    plan = plan_pause(
        mode,
        provider=offer.provider,
        running=offer.price_per_hour_usd,
        stopped=stopped,
        cache=cache,
        spot=is_never_stopped_as_spot(offer, deps),
    )
    return f"{PAUSE_NOTICE} {plan.text}"


def pause_notices(
    policy: LeasePolicy, offers: Sequence[Offer], deps: Deps, *, has_cache: bool, cache: BilledPart | None = None
) -> str:
    """The same of each sort of machine among these offers, the first of each for all."""
    firsts: dict[tuple[str, bool], Offer] = {}
    for offer in offers:
        firsts.setdefault((offer.provider, offer.spot), offer)
    told = [pause_notice(policy, offer, deps, has_cache=has_cache, cache=cache) for offer in firsts.values()]
    if len(told) == 1:
        return told[0]
    names = [f"{provider} spot" if spot else provider for provider, spot in firsts]
    parts = (f"[{name}] {text.removeprefix(PAUSE_NOTICE).strip()}" for name, text in zip(names, told, strict=True))
    return f"{PAUSE_NOTICE} {'; '.join(parts)}"


def _pausing_limits(policy: LeasePolicy) -> list[str]:
    """When its policy says pause, in words."""
    idle, silent, found = policy.idle, policy.unreachable, []
    if idle.enabled and idle.then is Then.PAUSE:
        found.append(f"after {in_words(idle.after_seconds)} without use")
    if silent.enabled and silent.then is Then.PAUSE:
        found.append(f"after {in_words(silent.after_seconds)} without a report of its agent")
    if any(window.keep is Keep.OFF for window in policy.windows):
        found.append("when a window keeps it off")
    return found


def cache_part(lease: Lease, deps: Deps) -> BilledPart | None:
    """What the lease's cache costs; None = it has none."""
    return part_of_cache(lease.cache_id, deps)


def part_of_cache(cache_id: str, deps: Deps) -> BilledPart | None:
    """What this cache costs; None = there is none."""
    if not cache_id:
        return None
    try:
        cache = deps.ledger.load(cache_id)
    except LeaseNotFound:
        return None
    price = sum((rate_now(volume) for volume in cache.of_kind(ResourceKind.VOLUME)), Decimal(0))
    return BilledPart(f"cache {cache.lease.name}", price)


def least_cost(offer: Offer, deps: Deps) -> Decimal:
    """What a machine of this offer costs before it is of any use: at some providers its whole first hour."""
    rule = deps.providers.get(offer.provider).billing_rule(ResourceKind.INSTANCE)
    return first_bill(rule, offer.price_per_hour_usd)


def is_over_budget(record: LeaseRecord, now: datetime, deps: Deps) -> bool:
    """Whether a machine that runs again would be given back, with its disk, before it is of any use."""
    budget, offer = record.lease.rules.budget_usd, offer_of(record.lease)
    if budget is None or offer is None or not is_configured(offer.provider, deps):
        return False
    return lease_cost(record, now) + least_cost(offer, deps) > budget


def offer_of(lease: Lease) -> Offer | None:
    """Of its current machine, or of the last one."""
    attempt = lease.attempt or (lease.attempts[-1] if lease.attempts else None)
    return attempt.offer if attempt is not None else None


def offer_of_machine(lease: Lease, machine: Resource) -> Offer:
    return next(attempt.offer for attempt in lease.attempts if attempt.number == machine.attempt)


def machine_held(record: LeaseRecord) -> Resource | None:
    """Its current machine, while it is held."""
    attempt = record.lease.attempt
    machines = record.of_kind(ResourceKind.INSTANCE, attempt.number) if attempt is not None else ()
    return next((machine for machine in machines if machine.state is ResourceState.HELD), None)


def is_configured(account: str, deps: Deps) -> bool:
    """Whether the settings know the account. What they do not know may be misspelt: nothing final follows from that."""
    try:
        deps.providers.get(account)
    except InputInvalid:
        return False
    return True


def is_never_stopped_as_spot(offer: Offer, deps: Deps) -> bool:
    """Whether it is only for being a spot machine that this one is not stopped."""
    return offer.spot and not can_be_stopped(offer, deps) and can_be_stopped(_on_demand(offer), deps)


def _on_demand(offer: Offer) -> Offer:
    return offer.model_copy(update={"spot": False})


def can_be_stopped(offer: Offer, deps: Deps) -> bool:
    """False also where the account was taken out of the settings: of what cannot be asked nothing is promised."""
    try:
        return deps.providers.get(offer.provider).can_stop(offer)
    except InputInvalid:
        return False
