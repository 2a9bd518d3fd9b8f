"""Pauses that go amiss: stops and starts without effect or answer, other hands, and long pauses."""

import pytest
from gpulease.domain.breaker import FAILURES_TO_OPEN, LONGEST_OPEN
from gpulease.domain.lease import LeaseState, Reason
from gpulease.errors import ProviderUnavailable
from gpulease.ports import Provider
from gpulease.steps.base import ref_of

from tests.support.ec2_world import steady
from tests.support.pause_world import ONE_AWS, R_SECONDS, PauseWorld

S = LeaseState
MINUTE, HOUR = 60.0, 3600.0
NO_CAPACITY = "InsufficientInstanceCapacity"


def by_hand(world: PauseWorld) -> Provider:
    """Calls that somebody makes past gpulease, as in the provider's console."""
    return world.stack.stack.deps.providers.get("aws")


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    made = PauseWorld()
    yield made
    made.close()


# --- stops and starts that do not take effect -------------------------------------------------------------------------


def test_a_stop_without_effect_is_never_shown_as_paused_and_told_after_ten_minutes() -> None:
    world = PauseWorld(steady({"stopped_seconds": 40 * MINUTE}))
    lease_id = world.up()
    world.pause(lease_id)
    asked = world.now

    world.run_for(30 * MINUTE)
    assert world.lease(lease_id).state is S.PAUSING
    (facts,) = [facts for name, facts in world.stack.log.alarms if name == "PauseStuck"]
    assert (facts["reason"], facts["resource_id"]) == ("still_billed", world.machine(lease_id).id)
    assert 1 <= len(world.calls("StopInstances", since=asked)) <= 5, "asked again with patience"
    assert len(world.events(lease_id, "pause_stuck")) == 1

    world.until(lease_id, S.PAUSED, within=20 * MINUTE)
    world.assert_right()
    world.close()


def test_a_stop_that_was_lost_is_asked_for_again(world: PauseWorld) -> None:
    lease_id = world.up()
    world.fault(action="StopInstances", cut=True, execute=False, times=1)

    paused = world.paused(lease_id)

    assert paused > 0 and len(world.calls("StopInstances")) == 2
    world.assert_right()


def test_a_stop_that_was_never_sent_is_no_try_and_is_sent_when_the_circuit_closes(world: PauseWorld) -> None:
    lease_id = world.up()
    world.fault(action="StopInstances", cut=True, execute=False, times=FAILURES_TO_OPEN)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(ProviderUnavailable):
            by_hand(world).stop(ref_of(world.machine(lease_id)))
    open_for = world.stack.stack.deps.providers.shut_for_seconds("aws", "us-east-1")
    asked, before = world.now, len(world.calls("StopInstances"))

    world.pause(lease_id)
    world.until(lease_id, S.PAUSED, within=600)

    (sent,) = world.calls("StopInstances")[before:]
    assert 0 < open_for <= sent - asked <= open_for + 15
    progress = world.lease(lease_id).pause
    assert progress is not None and progress.tries == 1
    world.assert_right()


@pytest.mark.parametrize("outage", [60.0, 150.0, 400.0, 700.0])
def test_after_an_outage_a_stop_is_asked_for_again_as_soon_as_the_circuit_allows(
    world: PauseWorld, outage: float
) -> None:
    lease_id = world.up()
    over = world.now + outage
    world.fault(cut=True, execute=False, until_seconds=world.stack.clock.time() + outage)

    world.pause(lease_id)
    world.until(lease_id, S.PAUSED, within=outage + 600)

    asked_again = world.calls("StopInstances", since=over)[0]
    assert asked_again - over <= LONGEST_OPEN.total_seconds() + 30
    world.assert_right(may_log=("PauseStuck",))


def test_a_machine_that_can_never_be_stopped_stays_running_and_its_owner_is_told(world: PauseWorld) -> None:
    lease_id = world.up()
    world.fault(action="StopInstances", code="UnsupportedOperation")
    address = world.view(lease_id)["address"]

    world.pause(lease_id)
    world.until(lease_id, S.RUNNING, within=300)

    shown = world.view(lease_id)
    assert any("cannot be paused" in warning for warning in shown["warnings"])
    assert shown["address"] == address
    assert world.booked(lease_id).destroyed is None
    world.assert_right()


def test_a_start_whose_answer_is_lost_is_seen_and_not_sent_twice(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    world.fault(action="StartInstances", cut=True, execute=True, times=1)

    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=600)

    assert len(world.calls("StartInstances")) == 1
    world.assert_right()


def test_a_resumed_machine_that_never_gets_ready_is_stopped_again_and_never_deleted(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    machine = world.machine(lease_id)
    world.aws.impair(machine.provider_id)

    world.resume(lease_id)
    world.wait(lambda: world.lease(lease_id).state is S.PAUSING, 3600, "not stopped again")
    world.until(lease_id, S.PAUSED, within=1200)

    lease = world.lease(lease_id)
    assert lease.pause is not None and lease.pause.resume_failed is not None
    assert world.booked(lease_id).destroyed is None and world.booked(lease_id).hourly_usd == 0
    world.aws.impair(machine.provider_id, impaired=False)
    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=900)
    world.assert_right()


# --- by other hands ---------------------------------------------------------------------------------------------------


def test_a_paused_machine_that_somebody_started_is_taken_as_resumed(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    machine = world.machine(lease_id)
    world.run_for(HOUR)

    by_hand(world).start(ref_of(machine))
    world.until(lease_id, S.RUNNING, within=3 * R_SECONDS)

    assert any("was started at aws" in event.text for event in world.events(lease_id, "resume_requested"))
    rates = world.machine(lease_id).rates
    assert [rate.usd_per_hour for rate in rates] == [
        rates[0].usd_per_hour,
        rates[1].usd_per_hour,
        rates[0].usd_per_hour,
    ]
    world.assert_right()


def test_a_stopped_machine_that_is_gone_ends_its_lease_as_lost(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)

    world.aws.remove_by_hand(world.machine(lease_id).provider_id)
    world.until(lease_id, S.RELEASED, within=2 * HOUR)

    assert world.lease(lease_id).reason is Reason.LOST
    world.assert_right()


def test_a_machine_gone_while_it_is_being_stopped_or_started_ends_its_lease_as_lost(world: PauseWorld) -> None:
    stopping, starting = world.up("one"), world.up("two")
    world.paused(starting)
    world.fault(action="StartInstances", code=NO_CAPACITY)

    world.pause(stopping)
    world.resume(starting, wait_seconds="7200")
    for lease_id in (stopping, starting):
        world.aws.remove_by_hand(world.machine(lease_id).provider_id)
    for lease_id in (stopping, starting):
        world.wait(lambda lease_id=lease_id: world.lease(lease_id).state is S.RELEASED, 3 * HOUR, "not lost")  # type: ignore[misc]
        assert world.lease(lease_id).reason is Reason.LOST
    world.assert_right()


def test_a_lease_paused_for_long_is_given_back_and_its_owner_told_before(world: PauseWorld) -> None:
    policy = {"paused": {"release_after_seconds": 4 * 3600}}
    lease_id = world.up(**ONE_AWS, policy=policy)
    paused = world.paused(lease_id)

    world.at(paused + 2.2 * HOUR)
    assert any("given back at" in notice for notice in world.view(lease_id)["notices"])
    assert len(world.events(lease_id, "paused_release_soon")) == 1
    released = world.until(lease_id, S.RELEASED, within=3 * HOUR)

    assert 4 * HOUR <= released - paused <= 4 * HOUR + 10 * MINUTE
    assert world.lease(lease_id).reason is Reason.EXPIRED
    world.assert_right()


def test_a_paused_machine_costs_what_its_disk_costs(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    before = float(world.view(lease_id)["cost_so_far_usd"])

    world.run_for(10 * HOUR)

    after = float(world.view(lease_id)["cost_so_far_usd"])
    stopped = float(world.machine(lease_id).rates[-1].usd_per_hour)
    assert after - before == pytest.approx(10 * stopped, rel=0.01)
    assert stopped < 0.05
