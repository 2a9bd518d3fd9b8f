"""Choose the next offer for a lease and open an attempt for it. Nothing is asked of a provider but its live stock."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

from gpulease.agent_program import fits_anywhere, offers_that_carry
from gpulease.cache_facts import takes_its_volume
from gpulease.domain.cache import offers_for, spec_of
from gpulease.domain.cost import lease_cost
from gpulease.domain.event import Event
from gpulease.domain.lease import IN_PROVISION, Attempt, Lease, LeaseState, Reason
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.pause import without
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.selection import affordable, next_offers
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event, moved
from gpulease.domain.user_data import UserDataTooLarge
from gpulease.draining import end_while_draining
from gpulease.errors import (
    ProviderAuthFailed,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
)
from gpulease.pause_facts import PAUSE_NOTICE, cache_part, least_cost, pause_notice
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.cache import cache_of
from gpulease.steps.starting import go_on, start_overdue_release

OUTCOMES = frozenset({"offer", "more", "none", "handed_over", "superseded"})
HAND_OVER_AFTER = timedelta(hours=6)
"""A provider that answers nothing but errors costs some 1,300 history events an hour; the service ends an execution at
25,000. Whatever went wrong, a workflow comes back here."""
NOT_MEASURED = (
    "whether it is used is not measured, since machines here have no agent: it is not paused or given back for "
    "idleness; limits of time and money still hold"
)
"""Nobody must rely on a default that cannot work."""
MAX_LOOKS = 20
LOOK_TIME = timedelta(seconds=60)
"""Offers whose live stock is read in one call, and for how long: one read may take a minute of retries, and the
function must end in time. The next turn goes on after them."""

PRICES_TIME = timedelta(seconds=10)
"""Regions are not asked for their prices of now after this: one that does not answer takes a minute, too."""


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.REQUESTED, *IN_PROVISION)
    now = deps.clock.now()
    if command.started_at is not None and now - command.started_at > HAND_OVER_AFTER:
        go_on(record, "provision", deps)
        return Outcome("handed_over")
    if record.lease.attempt is not None:
        return Outcome("offer")
    if end_while_draining(record, deps):
        return Outcome("superseded")
    start_overdue_release(record, deps, now)
    offers = [o for s in deps.offers.load() if s.provider in deps.providers.accounts() for o in s.offers]
    offers = _within_budget(record, _that_carry(record.lease, offers, deps), now, deps)
    fitting = _fitting_cache(record.lease, deps)
    lease, events = record.lease, list[Event]()
    silent: dict[str, ProviderError] = {}
    today = Today(deps)
    for _ in range(MAX_LOOKS):
        if (events or silent) and deps.clock.now() - now > LOOK_TIME:
            break
        candidates = [o for o in fitting(today.in_order(next_offers(lease, offers))) if _place(o) not in silent]
        if not candidates:
            break
        provider = deps.providers.get(candidates[0].provider)
        try:
            attempt = _look(lease, candidates[0], provider, now, deps)
        except (ProviderUnavailable, ProviderThrottled) as error:
            if isinstance(error, ProviderThrottled) and error.reason == ProviderThrottled.reason:
                raise
            # Nothing is known of what is offered there; what is offered elsewhere may do.
            silent[_place(candidates[0])] = error
            continue
        lease = lease.model_copy(update={"attempts": (*lease.attempts, attempt)})
        events.append(_told(lease.id, attempt, now))
        if attempt.open:
            lease = _under_way(lease, attempt, now, deps)
            break
    if events:
        deps.ledger.commit(Change(lease_id=lease.id, lease=lease, events=tuple(events), epoch=command.epoch))
    if lease.attempt is not None:
        return Outcome("offer")
    if silent:
        raise next(iter(silent.values()))
    return Outcome("more" if fitting(next_offers(lease, offers)) else "none")


class Today:
    """Offers in the order of what they cost now: the catalogue is hours old, and prices of spot machines move.

    Prices are asked once in the life of this object, for those that would be tried soon. It is about the order alone:
    what the chosen one costs is asked again, and a price that cannot be had now changes nothing.
    """

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._until = deps.clock.now() + PRICES_TIME
        self._prices: dict[str, Decimal] = {}
        self._asked: set[str] = set()

    def in_order(self, offers: list[Offer]) -> list[Offer]:
        soon: dict[str, list[Offer]] = {}
        for offer in offers[:MAX_LOOKS]:
            if offer.spot and _place(offer) not in self._asked:
                soon.setdefault(_place(offer), []).append(offer)
        for place, there in soon.items():
            if self._deps.clock.now() > self._until:
                break
            self._asked.add(place)
            self._ask(there)
        if not self._prices:
            return offers
        return sorted(offers, key=lambda o: (o.in_stock is False, self._price(o), o.key))

    def _ask(self, offers: list[Offer]) -> None:
        try:
            priced = self._deps.providers.get(offers[0].provider).priced(offers)
        except ProviderError as error:
            self._deps.log.info("prices_of_now_not_known", place=_place(offers[0]), reason=error.reason)
            return
        self._prices |= {offer.key: offer.price_per_hour_usd for offer in priced}

    def _price(self, offer: Offer) -> Decimal:
        return self._prices.get(offer.key, offer.price_per_hour_usd)


def _fitting_cache(lease: Lease, deps: Deps) -> Callable[[list[Offer]], list[Offer]]:
    """Keeps the offers whose machines can use the lease's cache, before anything is created (C37)."""
    cache = cache_of(lease, deps)
    if cache is None:
        return lambda offers: offers
    return lambda offers: offers_for(spec_of(cache.lease), offers, lambda offer: takes_its_volume(cache, offer, deps))


def _that_carry(lease: Lease, offers: list[Offer], deps: Deps) -> list[Offer]:
    """Offers of providers that take the machine's user data; the request was refused where none does (C60)."""
    if fits_anywhere(lease.spec, lease.start_script_bytes):
        return offers
    limits = lambda name: deps.providers.get(name).capabilities.max_user_data_bytes  # noqa: E731
    try:
        script = deps.ledger.start_script(lease.id)
        return offers_that_carry(lease.spec, script, deps.policy.agent_url, offers, limits)
    except UserDataTooLarge as error:
        deps.log.warning("user_data_too_large", lease_id=lease.id, reason=str(error))
        return []


def _within_budget(record: LeaseRecord, offers: list[Offer], now: datetime, deps: Deps) -> list[Offer]:
    """Offers whose machines are of some use before the budget is spent: attempts that failed may have cost an hour."""
    budget = record.lease.rules.budget_usd
    if budget is None or record.lease.state is LeaseState.RESUMING:
        return offers
    return affordable(offers, budget - lease_cost(record, now), lambda offer: least_cost(offer, deps))


def _place(offer: Offer) -> str:
    return f"{offer.provider}/{offer.region}"


def _look(lease: Lease, offer: Offer, provider: Provider, now: datetime, deps: Deps) -> Attempt:
    """An open attempt, or one that ended before anything was asked for: out of stock, or too dear by now."""
    deadline = now + timedelta(seconds=provider.ready_deadline_seconds(offer))
    attempt = Attempt(number=len(lease.attempts) + 1, offer=offer, started_at=now, ready_deadline=deadline)
    try:
        live = provider.live(offer)
    except ProviderAuthFailed as error:
        alarms.auth_failed(deps, provider.account, error)
        return _ruled_out(attempt, now, Reason.AUTH_FAILED, str(error))
    except ProviderRejected as error:
        return _ruled_out(attempt, now, Reason.REJECTED, str(error))
    attempt = attempt.model_copy(update={"offer": live})
    if live.in_stock is False:
        return _ruled_out(attempt, now, Reason.NO_CAPACITY, "out of stock")
    limit = lease.spec.max_price_per_hour_usd
    if limit is not None and live.price_per_hour_usd > limit:
        detail = f"now ${live.price_per_hour_usd} per hour, it was ${offer.price_per_hour_usd}; the limit is ${limit}"
        return _ruled_out(attempt, now, Reason.PRICE_CHANGED, detail)
    return attempt


def _ruled_out(attempt: Attempt, now: datetime, reason: Reason, detail: str) -> Attempt:
    return attempt.model_copy(update={"asked": False, "ended_at": now, "reason": reason, "detail": detail[:500]})


def _told(lease_id: str, attempt: Attempt, now: datetime) -> Event:
    offer = attempt.offer
    if attempt.open:
        text = f"trying {offer.key} at ${offer.price_per_hour_usd} per hour"
        return event(lease_id, now, "offer_selected", text, offer=offer.key, attempt=attempt.number)
    text = f"passed over {offer.key}: {attempt.reason} ({attempt.detail})"
    return event(lease_id, now, "offer_passed_over", text, offer=offer.key, reason=str(attempt.reason))


def _when_paused(lease: Lease, offer: Offer, deps: Deps) -> str:
    has_cache = lease.spec.cache is not None
    return pause_notice(lease.rules, offer, deps, has_cache=has_cache, cache=cache_part(lease, deps))


def _under_way(lease: Lease, attempt: Attempt, now: datetime, deps: Deps) -> Lease:
    notices = (*without(lease.notices, PAUSE_NOTICE), _when_paused(lease, attempt.offer, deps))
    if not deps.policy.agent_url and lease.rules.idle.enabled:
        notices = notices if NOT_MEASURED in notices else (*notices, NOT_MEASURED)
    if attempt.offer.kind is PlanKind.BARE_METAL:
        minutes = round((attempt.ready_deadline - now).total_seconds() / 60)
        notice = f"bare metal can take up to {minutes} minutes to become ready"
        notices = notices if notice in notices else (*notices, notice)
    return moved(
        lease,
        LeaseState.RESUMING if lease.state is LeaseState.RESUMING else LeaseState.PROVISIONING,
        now,
        notices=notices,
        waiting_for=f"{attempt.offer.key} to be created",
        next_check_at=now + CHECK_WORKFLOW_EVERY,
    )
