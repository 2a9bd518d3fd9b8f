"""A workflow that stands still or runs in a circle costs nobody a machine."""

from typing import Any

from gpulease.domain.lease import LeaseState, Reason
from gpulease_local.asl import TaskReply, TransitionEvent
from gpulease_local.simulate.virtual import Invoke, VirtualStack

STILL_SECONDS = 900.0
"""Longer than a VM has to become ready, so a deadline counted from the choice would be past."""


def test_a_machine_asked_for_late_has_its_whole_time_to_boot() -> None:
    world = VirtualStack(seed=3).load()
    until = world.clock.time() + STILL_SECONDS

    def abort_before_create(event: TransitionEvent) -> None:
        if event.to_state == "CreateInstance" and event.time < until:
            world.engine.call_at(event.time, lambda: world.engine.stop(event.machine, event.execution))

    try:
        world.engine.on_transition = abort_before_create
        lease_id = world.up(name="late", gpu=["A40"])

        ended = world.run_until(
            lambda: world.lease(lease_id).state in (LeaseState.RUNNING, LeaseState.RELEASED), limit_seconds=3600
        )

        assert ended
        assert world.lease(lease_id).state is LeaseState.RUNNING
        machines = [each for each in world.cloud.book.objects() if each.kind != "vpc"]
        assert len(machines) == 1
        assert machines[0].created >= until
    finally:
        world.close()


def test_a_step_that_always_fails_does_not_keep_its_machine_for_ever() -> None:
    def broken_poll(invoke: Invoke) -> Invoke:
        def called(function: str, payload: Any) -> TaskReply:
            if function == "PollInstanceFunction":
                return TaskReply(error="NameError", cause="a fault in the step")
            return invoke(function, payload)

        return called

    world = VirtualStack(seed=4, wrap_invoke=broken_poll).load()
    try:
        lease_id = world.up(name="faulty", gpu=["A40"])

        world.run_for(3600)

        assert world.lease(lease_id).state is LeaseState.RELEASED
        assert world.lease(lease_id).reason is Reason.NOT_READY_IN_TIME
        machines = [each for each in world.cloud.book.objects() if each.kind != "vpc"]
        assert machines
        assert all(each.destroyed is not None for each in machines)
    finally:
        world.close()
