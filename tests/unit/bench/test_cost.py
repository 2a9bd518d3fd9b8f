"""What things cost: units and prices by hand, and a metered lease whose transitions are those of its state machines."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease_sim.vultr import Settings

from bench.bench_cost import VM_REQUEST
from bench.cost_report import without
from bench.metered_stack import Assumed, MeteredStack, Stack
from bench.metered_stores import index_units
from bench.prices import (
    PRICES,
    SERVERS,
    Price,
    bill,
    item_bytes,
    lambda_cpu_share,
    read_units,
    total,
    write_units,
)


@pytest.mark.parametrize(
    ("size", "single", "together"), [(0, 1, 2), (1, 1, 2), (1024, 1, 2), (1025, 2, 4), (10_240, 10, 20)]
)
def test_a_write_costs_each_started_kibibyte_and_twice_that_in_a_transaction(
    size: int, single: int, together: int
) -> None:
    assert write_units(size) == single
    assert write_units(size, transaction=True) == together


@pytest.mark.parametrize(("size", "strong"), [(0, 1.0), (4096, 1.0), (4097, 2.0), (40_960, 10.0)])
def test_a_read_costs_each_started_four_kibibytes_and_half_of_it_where_it_may_be_late(size: int, strong: float) -> None:
    assert read_units(size, consistent=True) == strong
    assert read_units(size, consistent=False) == strong / 2


def test_a_row_is_as_large_as_its_names_and_values() -> None:
    row: dict[str, dict[str, Any]] = {
        "pk": {"S": "l-1"},
        "doc": {"S": "é"},
        "version": {"N": "1234"},
        "peers": {"M": {"lease": {"N": "2"}}},
    }

    assert item_bytes(row) == (2 + 3) + (3 + 2) + (7 + 3) + (5 + 3 + 1 + 5 + 2)


def test_a_value_of_an_unknown_kind_is_refused_and_not_taken_for_nothing() -> None:
    with pytest.raises(ValueError, match="kind NS"):
        item_bytes({"numbers": {"NS": ["1"]}})


def test_a_price_is_proportional_and_what_is_free_is_taken_off_at_most_once() -> None:
    price = Price("things", Decimal("0.50"), 1_000, "https://example.org/", free_per_month=3_000)

    assert price.of(2_000) == Decimal(1)
    assert price.of(4_000, free=True) == Decimal("0.50")
    assert price.of(2_000, free=True) == 0


def test_a_bill_has_the_dearest_first_and_its_total() -> None:
    use = {"lambda_requests": 1_000_000.0, "transitions": 100_000.0}

    billed = bill(use)

    assert billed == {"transitions": Decimal("2.5"), "lambda_requests": Decimal("0.2")}
    assert list(billed) == ["transitions", "lambda_requests"]
    assert total(use) == Decimal("2.7")
    assert total(without(use, ("transitions",))) == Decimal("0.2")


def test_a_quantity_without_a_price_is_refused() -> None:
    with pytest.raises(KeyError):
        bill({"transitoins": 1.0})


def test_every_price_is_positive_and_has_a_source() -> None:
    for price in (*PRICES.values(), *SERVERS.values()):
        assert price.usd > 0, price.what
        assert price.source.startswith("https://aws.amazon.com/"), price.what


def test_a_function_gets_the_share_of_a_processor_that_its_memory_buys() -> None:
    assert lambda_cpu_share(1769) == 1
    assert lambda_cpu_share(3538) == 1
    assert lambda_cpu_share(256) == pytest.approx(0.1447, abs=1e-4)


def test_an_index_costs_what_changes_in_it() -> None:
    due = {
        "pk": {"S": "l-1"},
        "sk": {"S": "lease"},
        "due_shard": {"S": "due#0"},
        "next_check_at": {"S": "2026-01-01"},
    }
    later = due | {"next_check_at": {"S": "2026-01-02"}}
    never = {name: due[name] for name in ("pk", "sk")}

    assert index_units(None, due) == 1
    assert index_units(due, due | {"doc": {"S": "other"}}) == 0
    assert index_units(due, later) == 2
    assert index_units(due, never) == 1
    assert index_units(None, never) == 0


def test_the_template_says_how_much_memory_each_function_has() -> None:
    stack = Stack.read()

    assert stack.memory_mb["ApiFunction"] == 512
    assert stack.memory_mb["PollInstanceFunction"] == 256
    assert (stack.alarms, stack.dashboards, stack.traced) == (11, 1, False)


@pytest.fixture
def world() -> Iterator[MeteredStack]:
    stack = MeteredStack(Stack.read(), Assumed(), Settings(), 1)
    yield stack
    stack.close()


def test_a_lease_is_charged_for_each_state_it_enters_and_each_call_it_makes(world: MeteredStack) -> None:
    world.meter.take()

    lease = world.up(**VM_REQUEST)
    world.wait(lease, LeaseState.RUNNING)
    world.down(lease)
    world.wait(lease, LeaseState.RELEASED)

    detail, use = world.meter.detail, world.meter.take()
    entered = sum(amount for name, amount in detail.items() if name.startswith("state "))
    executions = detail["state Provisioned"] + detail["state Released"]
    assert executions == 2
    assert use["transitions"] == entered + 2 * executions
    assert use["lambda_requests"] == sum(amount for name, amount in detail.items() if name.startswith("calls "))
    assert use["api_requests"] == detail["calls ApiFunction"]
    assert detail["state PollInstance"] < 5, "a call looks more than once"
    assert use["traces"] == executions + use["api_requests"] + use["scheduler_calls"]
    assert detail["calls PollInstanceFunction"] == detail["state PollInstance"]
    assert use["write_units"] > 0 < use["read_units"]
    assert use["log_bytes"] > use["lambda_requests"] * Assumed().platform_log_bytes


def test_a_provider_call_is_billed_for_as_long_as_it_takes(world: MeteredStack) -> None:
    world.meter.take()

    lease = world.up(**VM_REQUEST)
    world.wait(lease, LeaseState.RUNNING, asking=False)

    detail = world.meter.detail
    assert detail["billed_ms CreateInstanceFunction"] >= (Assumed().provider_seconds + Assumed().cold_seconds) * 1000
    assert detail["billed_ms MarkRunningFunction"] < Assumed().cold_seconds * 1000 + 500
