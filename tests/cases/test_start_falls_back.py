"""C38, as EC2 tells it when it has accepted a start: the machine goes to `pending` and falls back to `stopped`."""

import itertools

import pytest
from gpulease.domain.lease import LeaseState, Reason

from tests.support.pause_world import R_SECONDS, PauseWorld

S = LeaseState
MINUTE = 60.0
FALLS_BACK = {"start_failure": "Server.InsufficientInstanceCapacity"}


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    made = PauseWorld()
    yield made
    made.close()


def test_c38_a_start_that_is_accepted_and_falls_back_is_tried_again(world: PauseWorld) -> None:
    world.behave(**FALLS_BACK, start_failures=2)
    lease_id = world.up()
    world.paused(lease_id)

    began = world.now
    world.resume(lease_id)
    running = world.until(lease_id, S.RUNNING, within=900)

    assert running - began < 5 * MINUTE, "not the time in which it would have become ready"
    starts = world.calls("StartInstances")
    assert len(starts) == 3 and all(later - earlier >= 30 for earlier, later in itertools.pairwise(starts)), starts
    assert [each.facts["reason"] for each in world.events(lease_id, "start_fell_back")] == ["no_capacity"] * 2
    assert len(world.machines_booked()) == 1 and world.lease(lease_id).resume is None
    world.assert_right()


def test_c38_a_start_that_falls_back_each_time_ends_paused_within_the_patience(world: PauseWorld) -> None:
    world.behave(**FALLS_BACK)
    lease_id = world.up()
    world.paused(lease_id)

    began = world.now
    world.resume(lease_id)
    back = world.until(lease_id, S.PAUSED, within=900)

    lease = world.lease(lease_id)
    assert back - began <= 2 * MINUTE + 30, "the last start may be on its way when the patience ends"
    assert lease.pause is not None and lease.pause.resume_failed is Reason.NO_CAPACITY
    assert world.machine(lease_id).stopped_at is not None and world.booked(lease_id).hourly_usd == 0
    assert len(world.calls("StartInstances")) <= 5 and world.calls("StopInstances", since=began) == []
    assert world.view(lease_id)["pause"]["resume_failed"] == "no_capacity"
    assert world.view(lease_id)["address"] == ""
    world.assert_right()


def test_c38_a_start_that_falls_back_is_replaced_where_its_owner_wants_that(world: PauseWorld) -> None:
    world.behave(**FALLS_BACK)
    lease_id = world.up()
    world.paused(lease_id)
    old = world.machine(lease_id)

    began = world.now
    world.resume(lease_id, on_no_capacity="replace")
    running = world.until(lease_id, S.RUNNING, within=1200)

    assert running - began < 6 * MINUTE
    world.wait(lambda: world.aws.book.get(old.provider_id).destroyed is not None, 600, "the old one is not gone")
    assert world.machine(lease_id).provider_id != old.provider_id
    world.run_for(2 * R_SECONDS)
    world.assert_right()


def test_c38_a_start_that_falls_back_for_a_limit_is_not_tried_again(world: PauseWorld) -> None:
    world.behave(start_failure="Client.VolumeLimitExceeded")
    lease_id = world.up()
    world.paused(lease_id)

    world.resume(lease_id)
    world.until(lease_id, S.PAUSED, within=200)

    lease = world.lease(lease_id)
    assert lease.pause is not None and lease.pause.resume_failed is Reason.QUOTA_EXCEEDED
    assert len(world.calls("StartInstances")) == 1
    world.assert_right()
