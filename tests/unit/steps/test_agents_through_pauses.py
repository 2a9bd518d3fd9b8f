"""A machine that comes back is measured as before, whoever started it and whatever was tried meanwhile."""

from collections.abc import Iterator

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.steps.base import ref_of
from gpulease_local.simulate.workloads import Workload

from tests.support.pause_world import ONE_AWS, R_SECONDS, PauseWorld

S = LeaseState
MINUTE = 60.0
NO_CAPACITY = "InsufficientInstanceCapacity"
IDLE = {"idle": {"after_seconds": 1800}}


@pytest.fixture
def world() -> Iterator[PauseWorld]:
    made = PauseWorld(workload_of=lambda name: Workload("nobody", ()))
    yield made
    made.close()


def test_a_machine_that_somebody_started_is_ready_by_what_its_agent_tells_then(world: PauseWorld) -> None:
    lease_id = world.up(**ONE_AWS, policy=IDLE)
    world.paused(lease_id)
    world.run_for(10 * MINUTE)

    world.stack.stack.deps.providers.get("aws").start(ref_of(world.machine(lease_id)))
    world.until(lease_id, S.RUNNING, within=2 * R_SECONDS + 8 * MINUTE)

    assert S.PAUSING not in world.states_of(lease_id)[-2:], "who starts it wants it"
    world.until(lease_id, S.PAUSED, within=45 * MINUTE)
    pause = world.lease(lease_id).pause
    assert pause is not None and pause.reason is Reason.IDLE
    world.assert_right()


@pytest.mark.parametrize("started_after", [10 * MINUTE, 3 * 60 * MINUTE])
def test_the_old_machine_is_ready_when_somebody_starts_it_after_new_ones_were_tried_in_vain(
    world: PauseWorld, started_after: float
) -> None:
    lease_id = world.up(**ONE_AWS, policy=IDLE)
    kept = world.machine(lease_id)
    world.paused(lease_id)
    world.fault(action="(Start|Run)Instances", code=NO_CAPACITY)
    world.resume(lease_id, on_no_capacity="replace")
    world.until(lease_id, S.PAUSED, within=3600)
    world.no_faults()
    world.run_for(started_after)

    world.stack.stack.deps.providers.get("aws").start(ref_of(kept))
    world.until(lease_id, S.RUNNING, within=2 * R_SECONDS + 8 * MINUTE)

    world.until(lease_id, S.PAUSED, within=45 * MINUTE)
    pause = world.lease(lease_id).pause
    assert pause is not None and pause.reason is Reason.IDLE
    world.assert_right()


def test_the_old_machine_is_measured_again_after_new_ones_were_tried_in_vain(world: PauseWorld) -> None:
    lease_id = world.up(**ONE_AWS, policy=IDLE)
    world.paused(lease_id)
    world.fault(action="(Start|Run)Instances", code=NO_CAPACITY)
    world.resume(lease_id, on_no_capacity="replace")
    world.until(lease_id, S.PAUSED, within=3600)
    world.no_faults()

    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=600)
    world.until(lease_id, S.PAUSED, within=45 * MINUTE)

    pause = world.lease(lease_id).pause
    assert pause is not None and pause.reason is Reason.IDLE, "else it would run for ever"
    world.assert_right()
