"""The simulator's book: what everything cost by the provider's own rules, whatever clients believe."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from gpulease_sim.vultr.book import Entry, cost_of
from gpulease_sim.vultr.catalog import PLANS
from gpulease_sim.vultr.machines import NEVER
from hypothesis import given
from hypothesis import strategies as st

from tests.support.vultr_world import GPU_VM, START, STEADY, VultrWorld, steady

HOURLY, MONTHLY = Decimal("1.671"), Decimal("1219.83")


def entry(created: float = START, destroyed: float = NEVER) -> Entry:
    return Entry("instance", "id", "", "ord", GPU_VM, (), created, created, destroyed, [(created, HOURLY, MONTHLY)])


def test_a_started_hour_is_a_paid_hour_and_one_is_the_least() -> None:
    world = VultrWorld()
    machine_id = world.create_vm()["id"]

    costs = {}
    for seconds in (0, 1, 3600, 3601, 7200, 7201):
        costs[seconds] = world.cloud.book.get(machine_id, START + seconds).cost_usd

    assert costs == {0: HOURLY, 1: HOURLY, 3600: HOURLY, 3601: 2 * HOURLY, 7200: 2 * HOURLY, 7201: 3 * HOURLY}


def test_cost_stops_when_the_machine_is_gone_not_when_the_delete_is_accepted() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, destruction_seconds=(200, 200))))
    machine_id = world.create_vm()["id"]
    world.wait(3500)
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10_000)

    assert world.cloud.book.get(machine_id).destroyed == START + 3700
    assert world.cloud.book.cost() == 2 * HOURLY


def test_a_month_never_costs_more_than_its_price() -> None:
    first = datetime(2026, 3, 1, tzinfo=UTC).timestamp()

    assert cost_of(entry(first), first + 730 * 3600) == 730 * HOURLY
    assert cost_of(entry(first), first + 744 * 3600) == MONTHLY
    assert cost_of(entry(first), first + 745 * 3600) == MONTHLY + HOURLY


def test_a_cpu_vm_costs_more_per_hour_than_the_api_says_and_is_capped_at_672_hours() -> None:
    plan = PLANS["vc2-2c-4gb"]

    assert plan.shown_hourly_usd == Decimal("0.027")
    assert plan.billed_hourly_usd == Decimal("0.030")
    assert PLANS[GPU_VM].shown_hourly_usd == PLANS[GPU_VM].billed_hourly_usd == HOURLY


def test_a_dear_region_costs_more() -> None:
    world = VultrWorld()

    cheap = world.create_vm(plan="vc2-2c-4gb", region="ewr")["id"]
    dear = world.create_vm(plan="vc2-2c-4gb", region="sao")["id"]

    book = world.cloud.book
    assert (book.get(cheap).hourly_usd, book.get(dear).hourly_usd) == (Decimal("0.030"), Decimal("0.045"))


def test_a_machine_deleted_before_it_was_active_was_never_active() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, active_seconds=(500, 500))))
    machine_id = world.create_vm()["id"]
    world.wait(301)
    assert world.call("DELETE", f"/instances/{machine_id}").status == 204
    world.wait(1000)

    entry = world.cloud.book.get(machine_id)

    assert (entry.active, entry.destroyed) == (None, START + 311)


def test_the_book_never_forgets_and_tells_the_state_of_any_moment() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()
    machine_id = world.running_vm(label="a", tags=["gpulease:d:1"])
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(100_000)
    world.call("GET", "/instances")

    book = world.cloud.book
    assert [each.id for each in book.objects()] == [vpc, machine_id]
    assert [each.id for each in book.billed()] == [vpc]
    assert book.billed(free=False) == []
    assert [each.id for each in book.billed(START + 50, free=False)] == [machine_id]
    assert book.get(machine_id, START + 10).active is None
    assert book.get(machine_id, START + 20).active == START + 20
    assert book.get(machine_id).markers == ("gpulease:d:1",)


def test_a_label_changed_later_is_the_label_in_the_book() -> None:
    world = VultrWorld()
    machine_id = world.running_vm(label="a", tags=["x"])

    world.call("PATCH", f"/instances/{machine_id}", {"label": "b", "tags": ["y"]})

    found = world.cloud.book.get(machine_id)
    assert (found.label, found.tags) == ("b", ("y",))


@given(st.floats(0, 5_000_000), st.floats(0, 5_000_000))
def test_cost_only_grows_and_never_beyond_hours_times_price(first: float, more: float) -> None:
    early, late = cost_of(entry(), START + first), cost_of(entry(), START + first + more)

    assert HOURLY <= early <= late
    assert late <= HOURLY * max(1, -int(-(first + more) // 3600) + 1)
