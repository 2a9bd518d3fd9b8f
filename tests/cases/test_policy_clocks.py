"""The clocks of a policy beside idleness, through the whole stack: budget, maximum duration, pauses that last too long.
Money is judged by the provider's own book."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.pause import BUDGET_NOTICE

from tests.cases.conftest import NewCloud
from tests.support.cloud_world import ONE_AWS, R_SECONDS, CloudWorld

S = LeaseState
MINUTE, HOUR = 60.0, 3600.0
VULTR = {"providers": ["vultr"], "regions": ["ewr"], "plans": ["vcg-l40s-16c-180g-48vram"], "plan_kinds": ["vm"]}


@pytest.fixture
def reworded() -> bool:
    """Nothing here depends on what a provider says: once is enough."""
    return False


def owed(cloud: CloudWorld) -> Decimal:
    """What all of ours has cost so far, by the book."""
    now = cloud.stack.clock.time()
    things = [each for each in cloud.stack.clouds.things() if each.id not in cloud.strangers]
    return sum((each.source.cost_usd(now) for each in things), Decimal(0))


def decided_at(cloud: CloudWorld, lease_id: str, state: LeaseState) -> float:
    """T+ of the first write that says so."""
    return next(at for at, whose, what in cloud.states if whose == lease_id and what is state)


@pytest.mark.parametrize(("provider", "budget"), [("aws", "1.50"), ("vultr", "6.00")])
def test_a_budget_is_warned_about_at_80_per_cent_and_never_passed(
    new_cloud: NewCloud, provider: str, budget: str
) -> None:
    cloud = new_cloud(provider)
    request: dict[str, Any] = dict(ONE_AWS) if provider == "aws" else dict(VULTR)
    lease_id = cloud.running(**request, policy={"budget_usd": budget})

    cloud.wait(lambda: cloud.lease(lease_id).budget_warned_at is not None, 6 * HOUR, "nobody warned")
    spent = Decimal(cloud.view(lease_id)["cost_so_far_usd"])
    assert Decimal(budget) * Decimal("0.8") <= spent < Decimal(budget)
    assert cloud.lease(lease_id).state is S.RUNNING
    cloud.until(lease_id, S.RELEASED, within=6 * HOUR)

    assert cloud.lease(lease_id).reason is Reason.BUDGET
    assert owed(cloud) <= Decimal(budget)
    assert owed(cloud) > Decimal(budget) * Decimal("0.7"), "not long before either"
    alarms = [facts for name, facts in cloud.stack.log.alarms if name == "BudgetNearlySpent"]
    assert [each["lease_id"] for each in alarms] == [lease_id], "told once"
    cloud.assert_right_at_the_end()


def test_a_budget_counts_what_a_paused_machine_costs(new_cloud: NewCloud) -> None:
    cloud = new_cloud()
    policy = {"budget_usd": "0.50", "paused": {"release_after_seconds": 366 * 86400}}
    lease_id = cloud.running(**ONE_AWS, policy=policy)
    cloud.at(30 * MINUTE)
    cloud.post(f"/v1/leases/{lease_id}/pause")
    cloud.until(lease_id, S.PAUSED, within=600)
    assert cloud.costing() == []

    cloud.until(lease_id, S.RELEASED, within=48 * HOUR)

    assert cloud.lease(lease_id).reason is Reason.BUDGET
    assert Decimal("0.40") < owed(cloud) <= Decimal("0.50")
    cloud.assert_right_at_the_end()


def test_a_window_resumes_nothing_that_the_budget_does_not_pay_for(new_cloud: NewCloud) -> None:
    """It would run for a moment and be given back, with the disk that the pause kept."""
    cloud = new_cloud()
    off, on = (datetime.fromtimestamp(cloud.t0 + seconds, UTC) for seconds in (30 * MINUTE, 60 * MINUTE))
    window = {"keep": "off", "start": f"{off:%M %H} * * *", "end": f"{on:%M %H} * * *"}
    lease_id = cloud.running(**ONE_AWS, policy={"budget_usd": "0.50", "windows": [window]})
    cloud.until(lease_id, S.PAUSED, within=HOUR)

    cloud.at(90 * MINUTE)

    lease = cloud.lease(lease_id)
    assert (lease.state, BUDGET_NOTICE in lease.notices) == (S.PAUSED, True)
    assert cloud.existing() != [], "its disk is kept"
    told = cloud.stack.api("GET", f"/v1/leases/{lease_id}/events")["events"]
    assert [event["kind"] for event in told].count("not_resumed") == 1

    cloud.stack.api("PATCH", f"/v1/leases/{lease_id}", {"policy": {"budget_usd": "50"}})
    cloud.until(lease_id, S.RUNNING, within=HOUR)

    assert BUDGET_NOTICE not in cloud.lease(lease_id).notices
    cloud.stack.down(lease_id)
    cloud.until(lease_id, S.RELEASED, within=HOUR)
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("resumed", [True, False])
def test_the_maximum_duration_counts_a_pause_in_it(new_cloud: NewCloud, resumed: bool) -> None:
    cloud = new_cloud()
    lease_id = cloud.running(**ONE_AWS, policy={"max_duration_seconds": int(2 * HOUR)})
    since = cloud.lease(lease_id).running_at
    assert since is not None
    ends = since.timestamp() - cloud.t0 + 2 * HOUR
    cloud.at(30 * MINUTE)
    cloud.post(f"/v1/leases/{lease_id}/pause")
    cloud.until(lease_id, S.PAUSED, within=600)
    cloud.at(90 * MINUTE)
    if resumed:
        cloud.post(f"/v1/leases/{lease_id}/resume")
        cloud.until(lease_id, S.RUNNING, within=600)

    cloud.until(lease_id, S.RELEASED, within=2 * HOUR)

    assert cloud.lease(lease_id).reason is Reason.EXPIRED
    assert ends <= decided_at(cloud, lease_id, S.RELEASING) <= ends + 2 * MINUTE
    assert cloud.existing() == []
    cloud.assert_right_at_the_end()


def test_a_lease_that_is_paused_for_too_long_is_given_back(new_cloud: NewCloud) -> None:
    cloud = new_cloud()
    policy = {"paused": {"release_after_seconds": int(6 * HOUR)}}
    lease_id = cloud.running(**ONE_AWS, policy=policy)
    cloud.post(f"/v1/leases/{lease_id}/pause")
    paused = cloud.until(lease_id, S.PAUSED, within=600)
    cloud.at(paused + 6 * HOUR - 2 * MINUTE)
    assert cloud.lease(lease_id).state is S.PAUSED

    cloud.until(lease_id, S.RELEASED, within=R_SECONDS + 10 * MINUTE)

    lease = cloud.lease(lease_id)
    assert (lease.reason, "paused for 6 hours" in lease.reason_detail) == (Reason.EXPIRED, True)
    assert paused + 6 * HOUR <= decided_at(cloud, lease_id, S.RELEASING) <= paused + 6 * HOUR + 2 * MINUTE
    assert cloud.existing() == []
    cloud.assert_right_at_the_end()


def test_a_pause_in_between_begins_the_long_pause_anew(new_cloud: NewCloud) -> None:
    cloud = new_cloud()
    policy = {"paused": {"release_after_seconds": int(2 * HOUR)}}
    lease_id = cloud.running(**ONE_AWS, policy=policy)
    for _ in range(3):
        cloud.post(f"/v1/leases/{lease_id}/pause")
        cloud.until(lease_id, S.PAUSED, within=600)
        cloud.run_for(HOUR)
        cloud.post(f"/v1/leases/{lease_id}/resume")
        cloud.until(lease_id, S.RUNNING, within=600)

    assert cloud.now > 3 * HOUR and S.RELEASING not in cloud.states_of(lease_id)
    cloud.assert_right_at_the_end()
