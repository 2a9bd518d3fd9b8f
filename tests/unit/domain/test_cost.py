"""What a machine costs by its provider's own rule of rounding."""

from decimal import Decimal

import pytest
from gpulease.domain.cost import cost_of
from gpulease.domain.resource import BillingRule, Rate

from tests.support.ledger_samples import a_resource, at

PER_HOUR = Decimal("3.60")


@pytest.mark.parametrize(("seconds", "usd"), [(1, "0.06"), (24, "0.06"), (60, "0.06"), (61, "0.061"), (3600, "3.60")])
def test_by_the_second_a_machine_costs_a_minute_at_the_least(seconds: float, usd: str) -> None:
    machine = a_resource(
        provider_id="i-1",
        billing=BillingRule.PER_SECOND,
        billed_from=at(0),
        rates=(Rate(since=at(0), usd_per_hour=PER_HOUR),),
        released_at=at(seconds),
    )

    assert round(cost_of(machine, at(10_000)), 6) == Decimal(usd)


def test_each_start_costs_a_minute_at_the_least() -> None:
    stopped = Decimal("0.36")
    machine = a_resource(
        provider_id="i-1",
        billing=BillingRule.PER_SECOND,
        billed_from=at(0),
        rates=(
            Rate(since=at(0), usd_per_hour=PER_HOUR),
            Rate(since=at(600), usd_per_hour=stopped),
            Rate(since=at(1200), usd_per_hour=PER_HOUR),
        ),
        released_at=at(1205),
    )

    assert round(cost_of(machine, at(10_000)), 6) == Decimal("0.60") + Decimal("0.06") + Decimal("0.06")
