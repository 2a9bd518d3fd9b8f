"""C76 to C78 for the messages that this control plane lives with: a workflow failed, was aborted or timed out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY
from gpulease.errors import LeaseConflict, LedgerUnavailable
from gpulease.ports import Deps, Workflows
from gpulease.runtime import deps as runtime_deps
from gpulease.steps import check_leases
from gpulease_local.asl import Status
from gpulease_local.failed_executions import LocalFailedExecutions

from tests.support.case_world import ONE_METAL, R_SECONDS, CaseWorld

RELEASED, RUNNING = LeaseState.RELEASED, LeaseState.RUNNING
MINUTE = 60.0
CHECK = "CheckLeasesFunction"


@dataclass
class StaleWorkflows:
    """Says of an execution that it is running, although it has ended, so many times."""

    inner: Workflows
    times: int

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        """Passed on."""
        self.inner.start(machine, name, lease_id, epoch)

    def is_running(self, machine: str, name: str) -> bool:
        """Out of date at first."""
        if self.times > 0:
            self.times -= 1
            return True
        return self.inner.is_running(machine, name)


def _queue(world: CaseWorld) -> LocalFailedExecutions:
    return world.stack.stack.failed_executions


def _use(world: CaseWorld, **parts: Any) -> None:
    deps = replace(world.stack.stack.deps, **parts)
    world.stack.stack.deps = deps
    runtime_deps.use(deps)


def _deps(world: CaseWorld) -> Deps:
    return world.stack.stack.deps


def _names(world: CaseWorld, machine: str) -> list[str]:
    return [each.name for each in world.stack.engine.executions(machine)]


def _stop_running(world: CaseWorld, machine: str) -> str:
    [execution] = world.stack.engine.executions(machine, Status.RUNNING)
    world.stack.engine.stop(machine, execution.name)
    return execution.name


def _just_after_a_check(world: CaseWorld) -> None:
    world.run_for(MINUTE - world.stack.clock.time() % MINUTE + 1)


def _provisioning(world: CaseWorld, active_seconds: float = 400, **request: Any) -> str:
    """A lease whose machine takes its time, right after the schedule had its turn."""
    world.machine(active_seconds=active_seconds)
    lease_id = world.up(**request)
    world.run_for(20)
    _just_after_a_check(world)
    return lease_id


def test_c76_a_failed_workflow_goes_on_within_a_minute_of_its_message(world: CaseWorld) -> None:
    lease_id = _provisioning(world)
    _stop_running(world, "provision")

    world.run_for(MINUTE)

    assert CHECK_WORKFLOW_EVERY.total_seconds() > MINUTE, "without a message it would take longer"
    assert len(world.events(lease_id, "workflow_restarted")) == 1
    assert world.events(lease_id, "workflow_restarted")[0].facts["told"] is True
    world.until(lease_id, RUNNING, within=900)
    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


def test_c76_a_message_that_comes_again_and_again_starts_one_execution(world: CaseWorld) -> None:
    lease_id = _provisioning(world)
    stopped = _stop_running(world, "provision")
    for _ in range(3):
        _queue(world).send(stopped, lease_id)

    for _ in range(3):
        world.run_for(MINUTE)
        _queue(world).send(stopped, lease_id)

    assert len(_names(world, "provision")) == 2
    assert len(world.events(lease_id, "workflow_restarted")) == 1
    world.until(lease_id, RUNNING, within=900)
    assert world.states_of(lease_id).count(RUNNING) == 1
    world.assert_right_at_the_end()


def test_c76_a_read_that_is_older_than_the_message_is_read_again_within_a_minute(world: CaseWorld) -> None:
    lease_id = _provisioning(world)
    _use(world, workflows=StaleWorkflows(_deps(world).workflows, times=1))
    _stop_running(world, "provision")

    world.run_for(MINUTE)
    after_the_message = len(_names(world, "provision"))
    world.run_for(MINUTE)

    assert after_the_message == 1
    assert len(_names(world, "provision")) == 2
    world.until(lease_id, RUNNING, within=900)
    world.assert_right_at_the_end()


def test_c76_a_message_about_an_earlier_decision_changes_nothing(world: CaseWorld) -> None:
    lease_id = world.up()
    world.until(lease_id, RUNNING, within=300)
    [provision] = _names(world, "provision")
    _queue(world).send(provision, lease_id)
    world.run_for(MINUTE)
    was = world.lease(lease_id)
    world.down(lease_id)
    _queue(world).send(provision, lease_id)
    world.until(lease_id, RELEASED, within=300)
    _queue(world).send(_names(world, "release")[0], lease_id)
    world.run_for(2 * MINUTE)

    assert was.state is RUNNING
    assert len(_names(world, "provision")) == 1
    assert len(_names(world, "release")) == 1
    assert world.events(lease_id, "workflow_restarted") == []
    world.assert_right_at_the_end()


@pytest.mark.parametrize("machine", ["provision", "release"])
@pytest.mark.parametrize("how", ["before-it-wrote", "after-it-wrote"])
def test_c77_a_message_that_is_handed_out_again_while_it_is_worked_on(world: CaseWorld, machine: str, how: str) -> None:
    lease_id = _provisioning(world)
    if machine == "release":
        world.until(lease_id, RUNNING, within=900)
        world.machine(not_active_until_seconds=7200)
        world.down(lease_id)
        world.run_for(1)
    stopped = _stop_running(world, machine)
    second: list[dict[str, int]] = []

    def work_on_it_too() -> None:
        _queue(world).send(stopped, lease_id)
        second.append(check_leases.run(_deps(world)))

    def is_the_restart(change: Any) -> bool:
        return any(event.kind == "workflow_restarted" for event in change.events)

    if how == "before-it-wrote":
        world.before_commit(is_the_restart, work_on_it_too)
    else:
        _after_start(world, work_on_it_too)
    world.run_for(MINUTE)
    world.run_for(MINUTE)

    assert len(second) == 1
    assert len(_names(world, machine)) == 2, "the one that was stopped and one that goes on"
    assert len(world.events(lease_id, "workflow_restarted")) == 1
    world.until(lease_id, RELEASED if machine == "release" else RUNNING, within=900)
    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


def _after_start(world: CaseWorld, action: Callable[[], None]) -> None:
    """Do something once, when the next execution has been started and the message is still in the queue."""
    inner = _deps(world).workflows
    left = [action]

    class Watched:
        def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
            inner.start(machine, name, lease_id, epoch)
            if left:
                left.pop()()

        def is_running(self, machine: str, name: str) -> bool:
            return inner.is_running(machine, name)

    _use(world, workflows=Watched())


def test_c77_the_step_of_the_workflow_that_ended_still_writes(world: CaseWorld) -> None:
    lease_id = _provisioning(world)
    fault = world.fail_commits(
        lambda change: any(event.kind == "workflow_restarted" for event in change.events),
        lambda: LeaseConflict("somebody else wrote"),
        carried_out=False,
    )
    _stop_running(world, "provision")

    world.run_for(MINUTE)

    assert fault.times == 0
    assert len(_names(world, "provision")) == 2
    world.until(lease_id, RUNNING, within=900)
    world.assert_right_at_the_end()


def test_c77_a_message_stays_until_it_was_dealt_with(world: CaseWorld) -> None:
    lease_id = _provisioning(world)
    fault = world.fail_commits(
        lambda change: any(event.kind == "workflow_restarted" for event in change.events),
        lambda: ConnectionError("the ledger is away"),
        carried_out=False,
    )
    _stop_running(world, "provision")

    world.run_for(MINUTE)
    unfinished = len(_names(world, "provision"))
    world.run_for(330 + MINUTE)

    assert fault.times == 0
    assert unfinished == 1
    assert len(_names(world, "provision")) == 2
    assert list(_queue(world).receive()) == []
    world.until(lease_id, RUNNING, within=900)
    world.assert_right_at_the_end()


def test_c77_a_workflow_that_fails_at_once_every_time_is_not_started_every_minute(world: CaseWorld) -> None:
    lease_id = _provisioning(world, 2400, **ONE_METAL)
    for _ in range(30):
        for execution in list(world.stack.engine.executions("provision", Status.RUNNING)):
            world.stack.engine.stop("provision", execution.name)
        world.run_for(MINUTE)

    restarts = world.lease(lease_id).restarts

    assert check_leases.QUICK_RESTARTS < restarts <= check_leases.QUICK_RESTARTS + 30 * MINUTE / 150 + 1
    world.until(lease_id, RUNNING, within=3000)
    world.assert_right_at_the_end()


def test_c78_without_any_message_stopped_workflows_are_noticed_and_it_is_said(world: CaseWorld) -> None:
    world.stack.engine.on_failed = None
    first = world.up()
    second = world.up(name="other", regions=["ewr"], plan_kinds=["vm"])
    world.until(second, RUNNING, within=900)
    world.down(second)
    third = world.up(name="third", regions=["ewr"], plan_kinds=["vm"])
    world.run_for(3)
    stopped = world.now
    for machine in ("provision", "release"):
        for execution in list(world.stack.engine.executions(machine, Status.RUNNING)):
            world.stack.engine.stop(machine, execution.name)

    world.at(stopped + 2 * R_SECONDS)

    assert world.lease(first).state is RUNNING
    restarted = {lease: world.events(lease, "workflow_restarted") for lease in (second, third)}
    assert all(events and events[0].facts["told"] is False for events in restarted.values())
    world.until(second, RELEASED, within=900)
    world.until(third, RUNNING, within=900)
    assert {r.state for r in world.stack.ledger.open_resources()} == {ResourceState.HELD}
    world.assert_right_at_the_end()


def test_c78_messages_of_nobody_and_a_queue_that_cannot_be_read_stop_nothing(world: CaseWorld) -> None:
    class Broken:
        def receive(self) -> Any:
            raise LedgerUnavailable("the queue does not answer")

        def done(self, message: Any) -> None:
            raise AssertionError("there was no message")

    lease_id = _provisioning(world)
    _queue(world).send("by-hand", "l-notthere2222")
    world.run_for(MINUTE)
    left = list(_queue(world).receive())
    kept = _queue(world)
    _use(world, failed_executions=Broken())
    _stop_running(world, "provision")
    world.run_for(2 * R_SECONDS)

    assert left == []
    assert len(_names(world, "provision")) == 2
    _use(world, failed_executions=kept)
    world.until(lease_id, RUNNING, within=900)
    world.assert_right_at_the_end(may_log=("queue_not_read",))
