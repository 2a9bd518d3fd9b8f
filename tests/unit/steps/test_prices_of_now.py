"""Prices of now put offers in order, and must not take the time in which one of them is tried."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpulease.domain.offer import Offer
from gpulease.ports import Deps
from gpulease.steps.select_offer import LOOK_TIME, Today

from tests.support.api_world import StillClock, offer
from tests.support.provider_world import Lines

REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-south-1")
OFFERS = [offer("g5.xlarge", "A10G", "1.00", provider="aws", region=each, spot=True) for each in REGIONS]


@dataclass
class Slow:
    """A provider whose answer about prices takes its time; the cheapest is the last region."""

    clock: StillClock
    seconds: float
    asked: list[str] = field(default_factory=list)

    def get(self, account: str) -> "Slow":
        return self

    def priced(self, offers: Sequence[Offer]) -> list[Offer]:
        self.clock.advance(self.seconds)
        self.asked += {each.region for each in offers}
        cheap = {"price_per_hour_usd": Decimal("0.10")}
        return [each.model_copy(update=cheap) if each.region == REGIONS[-1] else each for each in offers]


def today(provider: Slow) -> Today:
    deps: Any = SimpleNamespace(clock=provider.clock, providers=provider, log=Lines())
    return Today(cast(Deps, deps))


def test_each_place_is_asked_once_and_the_cheapest_of_now_comes_first() -> None:
    provider = Slow(StillClock(), 0.3)
    prices = today(provider)

    first, *_ = prices.in_order(OFFERS)
    prices.in_order(OFFERS)

    assert first.region == REGIONS[-1] and sorted(provider.asked) == sorted(REGIONS)


@pytest.mark.parametrize("turns", [1, 3])
def test_regions_that_do_not_answer_leave_time_to_try_an_offer(turns: int) -> None:
    """One read with its retries takes 48 seconds where nothing answers; the function has 150 in all."""
    provider = Slow(StillClock(), 48)
    prices, began = today(provider), provider.clock.now()

    for _ in range(turns):
        assert len(prices.in_order(OFFERS)) == len(OFFERS), "the catalogue's prices do"

    assert provider.clock.now() - began <= LOOK_TIME
