"""C56, C58, and a region that goes dark: what a provider cannot or will not answer changes nothing but the pace."""

from collections import Counter
from itertools import pairwise
from math import ceil

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease_sim.vultr import Fault, outage

from tests.cases.conftest import NewWorld
from tests.support.case_world import ONE_VM, R_SECONDS, REGION, CaseWorld

RUNNING, RELEASED, PROVISIONING = LeaseState.RUNNING, LeaseState.RELEASED, LeaseState.PROVISIONING
STORM_SECONDS = 90.0


def _storm(world: CaseWorld, method: str, *, after: float, retry_after: float | None) -> None:
    now = world.stack.clock.time() + after
    world.cloud.faults.add(
        Fault(
            method=method,
            status=429,
            error="Too many requests",
            execute=False,
            retry_after=retry_after,
            from_seconds=now,
            until_seconds=now + STORM_SECONDS,
        )
    )


@pytest.mark.parametrize("retry_after", [10, None], ids=["retry-after", "no-retry-after"])
@pytest.mark.parametrize("method", ["GET", ".*"], ids=["reads", "everything"])
def test_c56_rate_limit_right_after_create(world: CaseWorld, method: str, retry_after: float | None) -> None:
    leases = [world.up() for _ in range(5)]
    world.at(5)
    assert len(world.ours("instance")) == 5
    _storm(world, method, after=0, retry_after=retry_after)

    for lease_id in leases:
        world.until(lease_id, RUNNING, within=400)

    refused = [call.at for call in world.calls() if call.status == 429]
    assert 2 <= len(refused) <= 15, "the account waits, not each lease for itself"
    pauses = [later - earlier for earlier, later in pairwise(refused)]
    if retry_after:
        assert min(pauses) >= retry_after
    else:
        assert pauses == sorted(pauses), "they grow"
    busiest = Counter(int(call.at) for call in world.calls(since=STORM_SECONDS)).most_common(1)[0][1]
    assert busiest <= 5, "what waited does not come in step"
    assert all(len(world.lease(each).attempts) == 1 for each in leases)
    world.assert_right_at_the_end()


@pytest.mark.parametrize("retry_after", [10, None], ids=["retry-after", "no-retry-after"])
def test_c56_creates_that_are_refused_for_the_rate_wait_for_their_turn(
    world: CaseWorld, retry_after: float | None
) -> None:
    _storm(world, "POST", after=0, retry_after=retry_after)

    leases = [world.up(**{**ONE_VM, "max_attempts": 1}) for _ in range(5)]
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=600)

    sent = world.calls("POST", "/instances")
    assert len([call for call in sent if call.status == 429]) <= 15
    assert len([call for call in sent if call.status == 202]) == 5
    for lease_id in leases:
        *refused, last = world.lease(lease_id).attempts
        assert {a.reason for a in refused} <= {Reason.THROTTLED}
        assert last.reason is None
    world.assert_right_at_the_end()


def test_c56_giving_back_goes_on_after_a_storm(world: CaseWorld) -> None:
    leases = [world.up() for _ in range(5)]
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=300)
    asked = world.now
    _storm(world, ".*", after=0, retry_after=None)

    for lease_id in leases:
        world.down(lease_id)
    for lease_id in leases:
        world.until(lease_id, RELEASED, within=STORM_SECONDS + R_SECONDS)

    assert len([call for call in world.calls(since=asked) if call.status == 429]) <= 15
    world.assert_right_at_the_end()


def test_a_rate_that_is_exhausted_for_good_ends_a_lease_after_a_quarter_of_an_hour(world: CaseWorld) -> None:
    world.cloud.faults.add(Fault(method="POST", path="/instances", status=429, execute=False, retry_after=30))

    lease_id = world.up()
    ended = world.until(lease_id, RELEASED, within=1800)

    assert 900 <= ended <= 1100
    assert world.lease(lease_id).reason is Reason.THROTTLED
    assert len(world.calls("POST", "/instances")) <= 35
    world.assert_right_at_the_end()


MACHINES = 120
"""Of C58's thousand; `bench/bench_calls.py` measures the thousand."""


def test_c58_machines_are_not_polled_one_by_one(new_world: NewWorld) -> None:
    world = new_world(requests_per_second=30, requests_per_hour=3600)

    leases = [world.up() for _ in range(MACHINES)]
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=900)
    running = world.now
    world.run_for(1200)

    assert not [call for call in world.calls() if call.status == 429]
    assert max(Counter(int(call.at) for call in world.calls()).values()) <= 30
    by_id = world.calls("GET", "/instances/.*")
    assert len(by_id) <= MACHINES / 10
    per_minute = Counter(int(call.at // 60) for call in world.calls(since=running + 60))
    assert max(per_minute.values()) <= ceil(MACHINES / 500) + 20


def test_c58_a_throttled_cycle_changes_no_state(world: CaseWorld) -> None:
    leases = [world.up() for _ in range(10)]
    world.at(30)
    before = len(world.states)
    _storm(world, "GET", after=0, retry_after=20)

    world.run_for(STORM_SECONDS)

    assert {state for _, _, state in world.states[before:]} <= {PROVISIONING}
    assert [kind for each in leases for kind in (e.kind for e in world.events(each)) if kind == "attempt_failed"] == []
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=400)
    world.assert_right_at_the_end()


def test_a_region_that_is_dark_for_an_hour_is_left_alone_and_everything_ends_right(world: CaseWorld) -> None:
    under_way = [world.up() for _ in range(3)]
    world.at(20)
    begins = world.stack.clock.time()
    world.cloud.faults.add(outage(begins, begins + 3600, region=REGION))

    world.at(60)
    only_there = [world.up() for _ in range(3)]
    elsewhere_too = world.up(plan_kinds=["vm"], gpu=["L40S"])
    world.at(120)
    world.down(under_way[0])
    placed = world.until(elsewhere_too, RUNNING, within=900)
    world.at(3620)
    dark = world.calls(path=rf"/(regions/{REGION}|instances/).*", since=600)
    quiet_minutes = Counter(int(call.at // 60) for call in dark if call.at < 3600)
    assert max(quiet_minutes.values(), default=0) <= 30, "few calls while nothing is answered"
    assert world.lease(under_way[0]).state is LeaseState.RELEASING, "nothing is taken for gone"

    for lease_id in (*under_way[1:], *only_there):
        if world.lease(lease_id).state is not RELEASED:
            world.until(lease_id, RUNNING, within=1200)
    world.until(under_way[0], RELEASED, within=1200)

    assert placed < 900
    attempts = world.lease(elsewhere_too).attempts
    assert attempts[-1].offer.region != REGION
    world.assert_right_at_the_end()


def test_a_region_that_answers_no_create_is_shut_before_everybody_has_an_intent_there(world: CaseWorld) -> None:
    begins = world.stack.clock.time()
    dark = Fault(
        method="POST",
        path="/instances",
        status=502,
        html=True,
        execute=False,
        from_seconds=begins,
        until_seconds=begins + 300,
    )
    world.cloud.faults.add(dark)

    leases = [world.up() for _ in range(20)]
    world.at(290)

    intents = [r for each in leases for r in world.record(each).resources]
    assert 5 <= len(intents) <= 15, "five failures, then a few calls let through one by one"
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=900)
    assert len(world.ours("instance")) == 20
    world.assert_right_at_the_end()


def test_a_region_that_answers_nothing_is_asked_less_and_less(world: CaseWorld) -> None:
    begins = world.stack.clock.time()
    world.cloud.faults.add(
        Fault(region=REGION, status=502, html=True, execute=False, from_seconds=begins, until_seconds=begins + 900)
    )

    leases = [world.up() for _ in range(8)]
    world.at(890)

    asked = Counter(int(call.at // 180) for call in world.calls(path=f"/regions/{REGION}/.*"))
    assert max(asked[n] for n in range(1, 5)) <= 24, "GETs are sent three times each"
    assert [r for each in leases for r in world.record(each).resources] == []
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=900)
    assert len(world.ours("instance")) == 8
    world.assert_right_at_the_end()
