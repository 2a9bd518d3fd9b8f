"""What a thing in nobody's hands costs: by what it is, not by the first offer of its plan."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.offer import Offer, OfferSnapshot, PlanKind
from gpulease.domain.resource import ResourceKind
from gpulease.steps.taking_up import price_of

from tests.support.provider_world import ManualClock


def _offer(price: str, *, zone: str = "us-east-1a", spot: bool = False, provider: str = "aws") -> Offer:
    return Offer(
        provider=provider,
        region="us-east-1",
        plan="g6.xlarge",
        kind=PlanKind.VM,
        gpu_model="L4",
        gpu_count=1,
        gpu_memory_gib=24,
        vcpus=4,
        memory_gib=16,
        disk_gb=100,
        price_per_hour_usd=Decimal(price),
        zone=zone,
        spot=spot,
    )


OFFERS = (
    _offer("0.81"),
    _offer("0.30", spot=True),
    _offer("0.35", zone="us-east-1b", spot=True),
    _offer("9", provider="other", zone="us-east-1c", spot=True),
)


def _price(**seen: Any) -> Decimal | None:
    snapshot = OfferSnapshot(provider="aws", as_of=ManualClock().now(), offers=OFFERS[:3])
    other = OfferSnapshot(provider="other", as_of=ManualClock().now(), offers=OFFERS[3:])
    deps: Any = SimpleNamespace(offers=SimpleNamespace(load=lambda: [other, snapshot]))
    given = {"region": "us-east-1", "plan": "g6.xlarge", "zone": "us-east-1a"} | seen
    shown = Observation(ResourceKind.INSTANCE, "i-1", marker="m", condition=Condition.READY, words="running", **given)
    return price_of(deps, SimpleNamespace(name="aws"), shown)


@pytest.mark.parametrize(
    ("seen", "price"),
    [
        ({}, "0.81"),
        ({"spot": True}, "0.30"),
        ({"spot": True, "zone": "us-east-1b"}, "0.35"),
        ({"spot": True, "zone": "us-east-1c"}, "0.35"),
        ({"price_per_hour_usd": "0.77"}, "0.77"),
    ],
)
def test_it_costs_what_its_kind_costs_in_its_zone(seen: dict[str, Any], price: str) -> None:
    assert _price(**seen) == Decimal(price)


@pytest.mark.parametrize("seen", [{"plan": "p5.48xlarge"}, {"region": "eu-west-1"}])
def test_what_the_catalogue_does_not_have_has_no_price(seen: dict[str, Any]) -> None:
    assert _price(**seen) is None
