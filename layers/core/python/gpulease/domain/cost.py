"""What a lease costs. Cost = sum over resources of rate times time, by the provider's own rule of rounding."""

from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal

from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import BillingRule, Resource, ResourceState

_HOUR = timedelta(hours=1)
_LEAST_BY_THE_SECOND = timedelta(minutes=1)
"""Each time it runs (https://aws.amazon.com/ec2/pricing/on-demand/: by the second, with a minimum of 60 seconds)."""
_LEAST_USE_HOURS = Decimal(1) / 6
"""Less than ten minutes of a machine are of no use: it boots for some, and is given back before its budget is spent."""


def is_billed(resource: Resource) -> bool:
    """Whether it may cost money now. Everything not proven gone does, an intent included: it may exist."""
    return resource.state is not ResourceState.RELEASED


def rate_now(resource: Resource) -> Decimal:
    """US dollars per hour now; 0 once released."""
    if not is_billed(resource) or not resource.rates:
        return Decimal(0)
    return resource.rates[-1].usd_per_hour


def cost_of(resource: Resource, now: datetime) -> Decimal:
    """US dollars from its creation to its proven end (or `now`), exact, not rounded to cents."""
    if not resource.rates or resource.billing is BillingRule.FREE or resource.provider_id == "":
        return Decimal(0)
    end = min(resource.released_at or now, now)
    if resource.billing is BillingRule.STARTED_HOUR:
        since = resource.billed_from or resource.rates[0].since
        hours = (Decimal(max((end - since).total_seconds(), 0)) / 3600).to_integral_value(ROUND_CEILING)
        return max(hours, Decimal(1)) * resource.rates[-1].usd_per_hour
    total = Decimal(0)
    for rate, following in zip(resource.rates, (*resource.rates[1:], None), strict=True):
        until = min(following.since, end) if following else end
        if until > rate.since:
            total += Decimal(max(until - rate.since, _LEAST_BY_THE_SECOND) / _HOUR) * rate.usd_per_hour
    return total


def first_bill(rule: BillingRule, usd_per_hour: Decimal) -> Decimal:
    """What a machine costs at the least before it has been of any use, in US dollars."""
    if rule is BillingRule.FREE:
        return Decimal(0)
    return usd_per_hour if rule is BillingRule.STARTED_HOUR else usd_per_hour * _LEAST_USE_HOURS


def lease_cost(record: LeaseRecord, now: datetime) -> Decimal:
    return sum((cost_of(resource, now) for resource in record.resources), Decimal(0))


def price_per_hour(record: LeaseRecord, now: datetime) -> Decimal:
    """What everything of this lease that is not proven gone costs per hour."""
    return sum((rate_now(resource) for resource in record.resources), Decimal(0))
