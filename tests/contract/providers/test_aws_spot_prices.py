"""Spot prices on AWS: told zone by zone as of now, and never more is paid than was agreed to (case C63)."""

from dataclasses import replace
from decimal import Decimal

import pytest
from gpulease.domain.offer import Offer, PlanKind
from gpulease.errors import CapacityRefused, ProviderRejected
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.providers.aws.prices import ROOT_DISK_GB, besides_compute_per_hour
from gpulease_sim.aws import Fault

from tests.support.aws_world import (
    OTHER_PLAN,
    OTHER_REGION,
    OTHER_ZONE,
    PLAN,
    REGION,
    TOKEN,
    ZONE,
    AwsWorld,
    rows,
    steady,
)
from tests.support.provider_contract import MARKER
from tests.support.provider_world import request

BESIDES = besides_compute_per_hour(REGION, ROOT_DISK_GB)
USUAL = Decimal("0.321920")
HISTORY = "DescribeSpotPriceHistory"


def asks(**zones: str) -> AwsWorld:
    """The zones of us-east-1 (`a`, `b`, ...) ask this for PLAN on spot."""
    told = {f"{REGION}{zone}/{PLAN}": Decimal(price) for zone, price in zones.items()}
    return AwsWorld(steady(spot_usd=told), shared=SqliteSharedReads())


def spot(world: AwsWorld, zone: str = ZONE) -> Offer:
    return world.offer(PlanKind.VM, zone=zone, spot=True)


def test_a_spot_offer_costs_what_its_zone_asks() -> None:
    world = asks(a="0.7", b="0.2")

    prices = {each.zone: each.price_per_hour_usd for each in world.provider.offers() if each.plan == PLAN and each.spot}

    assert (prices[ZONE], prices[OTHER_ZONE]) == (Decimal("0.7") + BESIDES, Decimal("0.2") + BESIDES)
    assert prices["us-east-1c"] == USUAL + BESIDES


def test_one_call_per_region_tells_the_prices_of_all_types() -> None:
    world = asks()

    world.provider.offers()

    assert world.calls(HISTORY) == 2
    assert {call.region for call in world.cloud.calls if call.action == HISTORY} == {REGION, OTHER_REGION}


def test_on_demand_offers_ask_for_no_spot_price() -> None:
    world = AwsWorld(catalogue=lambda: [row for row in rows() if not row.spot])

    offer = world.offer(PlanKind.VM)

    assert world.provider.live(offer).price_per_hour_usd == offer.price_per_hour_usd
    assert world.provider.priced([offer]) == [offer]
    assert world.calls(HISTORY) == 0


def test_before_a_create_the_price_is_asked_again_and_once_for_all_who_ask() -> None:
    world = asks(a="0.3", b="0.3")
    here, there = spot(world), spot(world, OTHER_ZONE)
    before = world.calls(HISTORY)
    world.set(spot_usd={f"{ZONE}/{PLAN}": Decimal("0.9"), f"{OTHER_ZONE}/{PLAN}": Decimal("0.4")})

    assert world.provider.live(here).price_per_hour_usd == Decimal("0.9") + BESIDES
    assert world.build(world.cloud).live(there).price_per_hour_usd == Decimal("0.4") + BESIDES

    assert world.calls(HISTORY) == before + 1
    world.set(spot_usd={f"{ZONE}/{PLAN}": Decimal("0.1")})
    world.advance(301)
    assert world.provider.live(here).price_per_hour_usd == Decimal("0.1") + BESIDES


def test_a_larger_disk_is_in_the_price_of_now() -> None:
    world = asks(a="0.3")
    larger = spot(world).with_disk(500)

    live = world.provider.live(larger)

    assert live.price_per_hour_usd == Decimal("0.3") + besides_compute_per_hour(REGION, 500)


def test_offers_of_a_region_are_priced_by_one_call() -> None:
    world = asks(a="0.7", b="0.2")
    offers = [each for each in world.provider.offers() if each.region == REGION and each.plan in (PLAN, OTHER_PLAN)]
    stale = [each.model_copy(update={"price_per_hour_usd": Decimal("0.01")}) if each.spot else each for each in offers]
    before = world.calls(HISTORY)

    assert world.provider.priced(stale) == offers
    assert world.calls(HISTORY) == before + 1
    assert world.provider.priced(stale) == offers
    assert world.calls(HISTORY) == before + 1


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InternalError", "RequestLimitExceeded"])
def test_where_prices_cannot_be_read_the_catalogues_hold(code: str) -> None:
    world = asks()
    world.cloud.faults.add(Fault(action=HISTORY, code=code))

    offer = spot(world)

    assert offer.price_per_hour_usd == Decimal("0.3219") + BESIDES
    assert world.provider.live(offer) == offer.model_copy(update={"in_stock": None})
    assert world.provider.priced([offer]) == [offer]


# --- the most that is paid --------------------------------------------------------------------------------------------


def most(world: AwsWorld) -> str | None:
    """What the last launch would pay at most."""
    call = [each for each in world.cloud.calls if each.action == "RunInstances"][-1]
    return call.params.get("InstanceMarketOptions.SpotOptions.MaxPrice")


def test_a_limit_of_the_whole_machine_bounds_what_its_compute_may_cost() -> None:
    world = asks(a="0.3")
    wanted = replace(
        request(spot(world), MARKER, idempotency_token=TOKEN), max_price_per_hour_usd=Decimal("0.50") + BESIDES
    )

    world.provider.create_instance(wanted)

    assert Decimal(most(world) or "") == Decimal("0.50")


def test_without_a_limit_aws_pays_up_to_the_on_demand_price() -> None:
    world = asks(a="0.3")

    world.provider.create_instance(request(spot(world), MARKER, idempotency_token=TOKEN))

    assert most(world) is None


def test_an_on_demand_launch_has_no_limit_of_its_own() -> None:
    world = asks()
    wanted = replace(request(world.offer(PlanKind.VM), MARKER), max_price_per_hour_usd=Decimal("5"))

    world.provider.create_instance(wanted)

    assert most(world) is None


def test_a_price_that_rose_above_the_limit_makes_no_machine() -> None:
    world = asks(a="0.3")
    wanted = replace(request(spot(world), MARKER, idempotency_token=TOKEN), max_price_per_hour_usd=Decimal("0.4"))
    world.set(spot_usd={f"{ZONE}/{PLAN}": Decimal("0.9")})

    with pytest.raises(CapacityRefused) as refused:
        world.provider.create_instance(wanted)

    assert refused.value.facts.code == "SpotMaxPriceTooLow"
    assert world.billed() == set()


def test_a_limit_below_disk_and_address_asks_for_nothing() -> None:
    world = asks(a="0.3")
    wanted = replace(request(spot(world), MARKER), max_price_per_hour_usd=BESIDES)

    with pytest.raises(ProviderRejected):
        world.provider.create_instance(wanted)

    assert world.creates_seen() == 0
