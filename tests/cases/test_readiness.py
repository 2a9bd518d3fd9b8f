"""C27, C28, C33: machines that become ready late or never, and the reason that each failure is given."""

import math
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.steps.select_offer import NOT_MEASURED

from tests.cases.conftest import NewWorld
from tests.support.case_world import ONE_METAL, ONE_VM, REGION, VM_PLAN, CaseWorld

RELEASED, RUNNING = LeaseState.RELEASED, LeaseState.RUNNING
MINUTE = 60.0


def test_c27_bare_metal_needs_42_minutes_and_5_more(world: CaseWorld) -> None:
    world.machine(active_seconds=42 * MINUTE, ssh_seconds=5 * MINUTE)

    lease_id = world.up(**ONE_METAL)
    world.at(MINUTE)
    notices = world.stack.api("GET", f"/v1/leases/{lease_id}")["notices"]
    assert "bare metal can take up to 55 minutes to become ready" in notices
    running = world.until(lease_id, RUNNING, within=3600)

    assert 47 * MINUTE <= running <= 48 * MINUTE
    [machine] = world.ours("bare_metal")
    assert machine.cost_usd == machine.hourly_usd, "one hour is billed"
    assert world.calls("DELETE") == []
    world.assert_right_at_the_end()


@pytest.mark.parametrize(
    ("request_", "behaviour", "limit"),
    [
        (ONE_VM, {"stuck": "pending"}, 10 * MINUTE),
        (ONE_VM, {"no_address": True}, 10 * MINUTE),
        (ONE_VM, {"stuck": "installingbooting"}, 10 * MINUTE),
        (ONE_VM, {"ssh_seconds": math.inf}, 10 * MINUTE),
        (ONE_METAL, {"stuck": "pending"}, 55 * MINUTE),
        (ONE_METAL, {"no_address": True}, 55 * MINUTE),
    ],
    ids=["vm-pending", "vm-no-address", "vm-installing", "vm-no-ssh", "metal-pending", "metal-no-address"],
)
def test_c28_never_ready(world: CaseWorld, request_: dict[str, Any], behaviour: dict[str, Any], limit: float) -> None:
    world.machine(**behaviour)

    lease_id = world.up(**request_)
    world.until(lease_id, RELEASED, within=3600)

    [machine] = world.ours("instance") + world.ours("bare_metal")
    assert limit <= world.gone_at(machine.id) <= limit + 2 * MINUTE
    assert machine.cost_usd == machine.hourly_usd, "no second hour"
    assert world.lease(lease_id).reason is Reason.NOT_READY_IN_TIME
    last_state = "pending" if behaviour.get("stuck") == "pending" else "active"
    assert last_state in world.lease(lease_id).reason_detail
    world.assert_right_at_the_end()


def test_no_second_machine_is_rented_for_whose_first_hour_the_budget_does_not_suffice(world: CaseWorld) -> None:
    """The first one has cost an hour. Another would be given back as soon as it runs, and be paid for as well."""
    world.machine(stuck="pending")

    lease_id = world.up(plans=[VM_PLAN], regions=[REGION, "ord"], retry_not_ready=True, policy={"budget_usd": "2.20"})
    world.until(lease_id, RELEASED, within=3600)

    [machine] = world.ours("instance")
    assert machine.hourly_usd < Decimal("2.20") < 2 * machine.hourly_usd
    assert world.lease(lease_id).reason is Reason.NOT_READY_IN_TIME
    world.assert_right_at_the_end()


def test_c28_never_ready_and_the_next_offer_is_tried_where_that_was_asked_for(world: CaseWorld) -> None:
    world.machine(1, stuck="pending")

    lease_id = world.up(plans=[VM_PLAN], regions=[REGION, "ord"], retry_not_ready=True)
    world.until(lease_id, RUNNING, within=1500)

    first, second = world.ours("instance")
    assert first.cost_usd == first.hourly_usd, "no second hour"
    assert [attempt.reason for attempt in world.lease(lease_id).attempts] == [Reason.NOT_READY_IN_TIME, None]
    assert second.region == world.lease(lease_id).attempts[-1].offer.region
    world.down(lease_id)
    world.until(lease_id, RELEASED, within=600)
    world.assert_right_at_the_end()


def _sold_out(world: CaseWorld) -> None:
    world.before("GET", "/regions/.*", lambda: world.set(capacity={f"*/{VM_PLAN}": 9}), function="SelectOfferFunction")
    world.before("POST", "/instances", lambda: world.set(capacity={f"*/{VM_PLAN}": 0}))


FAILURES: dict[str, tuple[Reason, Any]] = {
    "a": (Reason.NO_CAPACITY, _sold_out),
    "b": (Reason.QUOTA_EXCEEDED, lambda world: world.set(instance_limit=2)),
    "c": (Reason.NOT_READY_IN_TIME, lambda world: world.machine(ssh_seconds=math.inf)),
    # Vultr sells nothing that can be reclaimed: a machine that vanishes was deleted by somebody.
    "d": (Reason.LOST, lambda world: world.machine(vanish_after_seconds=130, ssh_seconds=math.inf)),
    # Without an agent only the provider can say that the boot failed.
    "e": (Reason.BOOT_FAILED, lambda world: world.machine(suspend_after_seconds=80)),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_c33_each_failure_has_its_own_reason(world: CaseWorld, failure: str) -> None:
    reason, arrange = FAILURES[failure]
    arrange(world)

    lease_id = world.up(plans=[VM_PLAN], regions=[REGION, "ord"])
    world.until(lease_id, RELEASED, within=1500)

    assert world.lease(lease_id).reason is reason
    regions = [attempt.offer.region for attempt in world.lease(lease_id).attempts]
    if failure in "ab":
        # A limit of the account is per region here: the other region is another try, this one is not tried again.
        assert regions == [REGION, "ord"]
    else:
        assert regions == [REGION], "only a lack of capacity is retried on other offers"
    world.assert_right_at_the_end()


def test_c33_a_limit_of_the_account_is_not_retried_in_the_same_region(new_world: NewWorld) -> None:
    world = new_world(instance_limit=2)

    lease_id = world.up(regions=[REGION], plan_kinds=["vm"], gpu=["A16", "A40", "L40S"])
    world.until(lease_id, RELEASED, within=300)

    assert world.lease(lease_id).reason is Reason.QUOTA_EXCEEDED
    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


def test_a_lease_whose_use_nobody_measures_says_so(world: CaseWorld) -> None:
    by_default = world.up(**ONE_VM)
    switched_off = world.up(**ONE_VM, policy={"idle": {"enabled": False}})
    world.run_for(30)

    told = [NOT_MEASURED in world.lease(lease_id).notices for lease_id in (by_default, switched_off)]

    assert told == [True, False], "idle is on by default, and without an agent it cannot work"
    for lease_id in (by_default, switched_off):
        world.down(lease_id)
    world.until_nothing_is_billed(within=600)
    world.assert_right_at_the_end()
