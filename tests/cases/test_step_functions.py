"""C69, C70, C71, C73: what the service that runs the workflows does to them."""

import json
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import ResourceState
from gpulease.providers.http import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from gpulease_local.asl import Status
from gpulease_sim.vultr import Fault

from tests.support.case_world import ONE_METAL, ONE_VM, R_SECONDS, SCOPES, CaseWorld

RELEASING, RELEASED, RUNNING = LeaseState.RELEASING, LeaseState.RELEASED, LeaseState.RUNNING
PROVISIONING = LeaseState.PROVISIONING
DAY = 86_400.0
MOST_EVENTS = 20_000


def _running_now(world: CaseWorld, machine: str) -> list[str]:
    return [each.name for each in world.stack.engine.executions(machine, Status.RUNNING)]


def test_c69_a_release_that_takes_two_days_hands_over(world: CaseWorld) -> None:
    world.machine(stuck="destruction")
    lease_id = world.up()
    asked = world.until(lease_id, RUNNING, within=200)
    world.down(lease_id)

    for day in (1, 2):
        world.at(asked + day * DAY + 3600)
        assert world.lease(lease_id).state is RELEASING
        assert len(_running_now(world, "release")) == 1
    assert 0 < world.longest_history() < MOST_EVENTS
    assert len(world.calls("DELETE")) <= 3 + 2.1 * DAY / 480
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)
    began = world.now
    released = world.until(lease_id, RELEASED, within=900)

    assert released - began <= 2 * R_SECONDS
    assert _running_now(world, "release") == []
    world.assert_right_at_the_end()


@pytest.mark.parametrize("fault", [{"status": 502, "html": True}, {"cut": True, "delay_seconds": 60}])
def test_c69_provisioning_waits_out_an_outage_and_hands_over(world: CaseWorld, fault: dict[str, Any]) -> None:
    outage = 7 * 3600.0
    ends = world.stack.clock.time() + outage
    world.cloud.faults.add(Fault(until_seconds=ends, execute=False, **fault))

    lease_id = world.up()
    world.at(outage)
    assert world.lease(lease_id).state in (LeaseState.REQUESTED, PROVISIONING)
    assert len(_running_now(world, "provision")) == 1
    assert len(list(world.stack.engine.executions("provision"))) == 2, "a new one takes over after six hours"
    world.until(lease_id, RUNNING, within=2 * R_SECONDS)

    assert 0 < world.longest_history() < MOST_EVENTS
    world.assert_right_at_the_end()


@pytest.mark.parametrize("status", [Status.ABORTED, Status.TIMED_OUT], ids=["aborted", "history-full"])
def test_c69_an_execution_ended_by_the_service_is_taken_over(world: CaseWorld, status: Status) -> None:
    world.machine(not_active_until_seconds=7200)
    lease_id = world.up()
    asked = world.until(lease_id, RUNNING, within=200)
    world.down(lease_id)
    world.at(asked + 3600)
    [name] = _running_now(world, "release")

    world.stack.engine.stop("release", name, error=status.value)
    world.run_for(2 * R_SECONDS)

    assert len(_running_now(world, "release")) == 1
    world.until(lease_id, RELEASED, within=7200)
    world.assert_right_at_the_end()


def test_c70_states_carry_ids_and_no_records(world: CaseWorld) -> None:
    sizes: list[int] = []
    labels = {f"note-{n}": "x" * 128 for n in range(20)}
    lease_ids = [
        world.up(**{**ONE_VM, "name": f"box-{n}"}, start_script="#" * 32_000, labels=labels, private_network="required")
        for n in range(3)
    ]
    world.stack.engine.on_transition = lambda event: sizes.append(
        len(json.dumps(world.stack.engine.describe(event.machine, event.execution).data))
    )
    for lease_id in lease_ids:
        world.until(lease_id, RUNNING, within=600)
        world.down(lease_id)
    for lease_id in lease_ids:
        world.until(lease_id, RELEASED, within=600)

    assert len(sizes) > 200
    assert max(sizes) < 4_000
    assert max(size for _, size, _ in world.tasks) < 200
    world.assert_right_at_the_end()


@pytest.mark.parametrize("request_", [ONE_VM, ONE_METAL], ids=["vm", "bare-metal"])
def test_c71_the_provider_answers_the_create_after_75_seconds(world: CaseWorld, request_: dict[str, Any]) -> None:
    world.cloud.faults.add(Fault(method="POST", path="/(instances|bare-metals)", times=1, delay_seconds=75))

    lease_id = world.up(**request_)
    world.until(lease_id, RUNNING, within=3600)

    assert len(world.calls("POST", "/(instances|bare-metals)")) == 1
    assert max(seconds for name, _, seconds in world.tasks if name == "CreateInstanceFunction") < 62
    world.assert_right_at_the_end()


@pytest.mark.parametrize("accepted", [True, False])
def test_c71_the_function_is_cut_off_although_the_provider_accepted(world: CaseWorld, accepted: bool) -> None:
    function = next(each for each in world.stack.stack.template.functions if each.name == "CreateInstanceFunction")
    cut = world.kill(method="POST", path="/instances", sent=accepted, after_seconds=function.timeout_seconds)
    again = world.kill(function="PollInstanceFunction", method="GET", path="/instances", times=2, after_seconds=50)

    lease_id = world.up()
    world.until(lease_id, RUNNING, within=1200)

    assert (cut.times, again.times) == (0, 0)
    assert len(world.ours("instance")) == 1
    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


def test_c71_the_client_gives_up_before_the_function_is_cut_off_and_that_before_the_task(world: CaseWorld) -> None:
    template = world.stack.stack.template
    timeouts = {each.name: each.timeout_seconds for each in template.functions}

    assert timeouts["CreateInstanceFunction"] > CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS
    assert timeouts["CreateNetworkFunction"] > CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS
    for machine in template.machines:
        for state in json.loads(machine.definition.read_text(encoding="utf-8"))["States"].values():
            if state["Type"] == "Task":
                name = machine.substitutions[state["Parameters"]["FunctionName"].strip("${}")]
                limits = [limit for function, limit in timeouts.items() if str(name).endswith(function)]
                assert limits
                assert limits[0] < state["TimeoutSeconds"]


@SCOPES
@pytest.mark.parametrize("stopped_at", [0, 15, 61, 65, 75, 90])
@pytest.mark.parametrize("request_", [ONE_VM, ONE_METAL], ids=["vm", "bare-metal"])
def test_c73_provisioning_is_stopped_from_outside(
    world: CaseWorld, request_: dict[str, Any], stopped_at: float, scope: str
) -> None:
    if request_ is ONE_METAL:
        world.machine(active_seconds=30)
    lease_id = world.up(**request_, private_network="required", network_scope=scope)
    world.at(stopped_at)
    was = world.lease(lease_id).state
    for name in _running_now(world, "provision"):
        world.stack.engine.stop("provision", name)

    world.at(stopped_at + 2 * R_SECONDS)

    assert was in (LeaseState.REQUESTED, PROVISIONING)
    assert world.lease(lease_id).state is RUNNING
    assert world.events(lease_id, "workflow_restarted")
    assert [r.state for r in world.stack.ledger.open_resources()] == [ResourceState.HELD, ResourceState.HELD]
    world.assert_right_at_the_end()


def test_c73_stopped_again_and_again(world: CaseWorld) -> None:
    lease_id = world.up(**ONE_VM, private_network="required")
    for _ in range(5):
        world.run_for(12)
        for name in _running_now(world, "provision"):
            world.stack.engine.stop("provision", name)
        world.run_for(200)
    world.until(lease_id, RUNNING, within=2 * R_SECONDS)

    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


@pytest.mark.parametrize("after_seconds", [1, 7, 13])
def test_c73_release_is_stopped_from_outside(world: CaseWorld, after_seconds: float) -> None:
    lease_id = world.up(**ONE_VM, private_network="required")
    world.until(lease_id, RUNNING, within=300)
    world.down(lease_id)
    world.run_for(after_seconds)
    for name in _running_now(world, "release"):
        world.stack.engine.stop("release", name)

    world.run_for(2 * R_SECONDS)

    assert world.lease(lease_id).state is RELEASED
    world.assert_right_at_the_end()
