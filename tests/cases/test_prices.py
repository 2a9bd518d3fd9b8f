"""C63: a catalogue that is out of date. The price is asked anew before anything is created, where the provider tells
one; neither Vultr nor AWS tells the price of a machine that exists."""

from decimal import Decimal

import pytest
from gpulease.domain.lease import LeaseState, Reason

from tests.cases.conftest import NewWorld
from tests.support.case_world import ONE_VM, VM_PLAN, CaseWorld

RUNNING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASED
STALE = Decimal("0.28")


def stale_catalogue(world: CaseWorld) -> Decimal:
    """Every offer of the plan is listed for less than it costs; what it costs."""
    store = world.stack.stack.deps.offers
    [listed] = [each for each in store.load() if each.provider == "vultr"]
    real = {each.price_per_hour_usd for each in listed.offers if each.plan == VM_PLAN and each.region == "ewr"}
    cheap = tuple(
        each.model_copy(update={"price_per_hour_usd": STALE}) if each.plan == VM_PLAN else each
        for each in listed.offers
    )
    store.save(listed.model_copy(update={"offers": cheap}))
    [price] = real
    return price


def test_c63_above_the_users_limit_nothing_is_launched_and_both_numbers_are_told(new_world: NewWorld) -> None:
    world = new_world()
    real = stale_catalogue(world)
    assert real > Decimal("0.30")

    lease_id = world.up(**ONE_VM, max_price_per_hour_usd="0.30")
    world.until(lease_id, RELEASED, within=60)

    lease = world.lease(lease_id)
    assert {each.reason for each in lease.attempts} == {Reason.PRICE_CHANGED}
    assert lease.reason is Reason.PRICE_CHANGED
    for number in (str(real), str(STALE)):
        assert number in lease.reason_detail or number in lease.attempts[0].detail
    assert world.calls("POST", "/instances") == [] and world.ours() == []
    world.assert_right_at_the_end()


@pytest.mark.parametrize("limit", [{}, {"max_price_per_hour_usd": "5.00"}], ids=["no-limit", "within-the-limit"])
def test_c63_the_real_price_is_shown_from_the_start_and_counted(new_world: NewWorld, limit: dict[str, str]) -> None:
    world = new_world()
    real = stale_catalogue(world)

    lease_id = world.up(**ONE_VM, **limit)
    world.until(lease_id, RUNNING, within=300)

    shown = world.stack.api("GET", f"/v1/leases/{lease_id}")
    [machine] = world.billed("instance")
    assert Decimal(shown["price_per_hour_usd"]) == real == machine.hourly_usd
    world.run_for(5000)
    [machine] = world.billed("instance")
    shown = world.stack.api("GET", f"/v1/leases/{lease_id}")
    assert Decimal(shown["cost_so_far_usd"]) == machine.cost_usd
    assert str(STALE) not in str([each.text for each in world.events(lease_id)])
    world.assert_right_at_the_end()
