"""C01, C02, C04, C06, C09: creates of which nobody knows for a while what became of them."""

import json
import math

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.errors import LedgerUnavailable
from gpulease_sim.vultr import Fault

from tests.cases.conftest import NewWorld
from tests.support.case_world import ONE_VM, R_SECONDS, V_SECONDS, CaseWorld
from tests.support.kills import Killed

RELEASING, RELEASED, RUNNING = LeaseState.RELEASING, LeaseState.RELEASED, LeaseState.RUNNING
POST_LIMIT = R_SECONDS * 2


def _first_sight_of_id(change: Change) -> bool:
    """The write that stores the machine's id."""
    return any(r.kind is ResourceKind.INSTANCE and r.provider_id and r.status == "created" for r in change.resources)


@pytest.mark.parametrize("answer", [{"status": 504, "html": True}, {"cut": True}, {"body": "{}"}])
def test_c01_create_answered_504_and_the_machine_shows_up_later(world: CaseWorld, answer: dict[str, object]) -> None:
    world.machine(list_lag_seconds=40, get_lag_seconds=40, active_seconds=95)
    world.cloud.faults.add(Fault(method="POST", path="/instances", times=1, delay_seconds=30, **answer))  # type: ignore[arg-type]

    lease_id = world.up()
    running = world.until(lease_id, RUNNING, within=300)

    # Active at T+95, ok at T+135, SSH at T+165.
    assert running <= 175
    assert len(world.calls("POST", "/instances")) == 1
    [machine] = world.ours("instance")
    assert world.machine_of(lease_id).provider_id == machine.id
    assert world.states_of(lease_id) == [LeaseState.PROVISIONING, RUNNING]
    world.assert_right_at_the_end()


def test_c01_no_second_create_before_the_window_has_passed_and_a_lookup_came_back_empty(world: CaseWorld) -> None:
    lost = Fault(method="POST", path="/instances", times=1, delay_seconds=30, execute=False, status=504, html=True)
    world.cloud.faults.add(lost)

    lease_id = world.up()
    world.until(lease_id, RUNNING, within=600)

    first, second = world.calls("POST", "/instances")
    assert second.at - (first.at + 30) >= V_SECONDS
    lookups = [call for call in world.calls("GET", "/instances") if first.at < call.at <= second.at]
    assert lookups[-1].at >= first.at + 30 + V_SECONDS
    assert [a.reason for a in world.lease(lease_id).attempts] == [Reason.NEVER_APPEARED, None]
    world.assert_right_at_the_end()


@pytest.mark.parametrize("cancelled_at", [5, 35, 60])
def test_c01_a_machine_that_shows_up_after_the_request_was_given_up_is_destroyed(
    world: CaseWorld, cancelled_at: float
) -> None:
    world.machine(list_lag_seconds=40, get_lag_seconds=40, active_seconds=95)
    world.cloud.faults.add(Fault(method="POST", path="/instances", times=1, delay_seconds=30, status=504, html=True))

    lease_id = world.up()
    world.at(cancelled_at)
    world.down(lease_id)
    world.until(lease_id, RELEASED, within=900)

    [machine] = world.ours("instance")
    assert world.gone_at(machine.id) <= 40 + 2 * R_SECONDS
    assert world.states_of(lease_id)[-2:] == [RELEASING, RELEASED]
    world.assert_right_at_the_end()


@pytest.mark.parametrize("max_attempts", [1, 3], ids=["given-up", "tried-again"])
def test_c01_a_machine_that_shows_up_long_after_the_window_is_destroyed_within_two_sweeps(
    world: CaseWorld, max_attempts: int
) -> None:
    world.machine(1, list_lag_seconds=400, get_lag_seconds=400)
    world.cloud.faults.add(Fault(method="POST", path="/instances", times=1, delay_seconds=30, status=504, html=True))

    lease_id = world.up(**ONE_VM, max_attempts=max_attempts)
    world.until(lease_id, RELEASED if max_attempts == 1 else RUNNING, within=900)
    world.at(400 + 2 * R_SECONDS)

    late = world.ours("instance")[0]
    assert world.gone_at(late.id) <= 400 + 2 * R_SECONDS
    assert len(world.billed("instance")) == (0 if max_attempts == 1 else 1)
    world.assert_right_at_the_end()


def test_c02_worker_dies_three_times_between_create_and_writing_the_id(world: CaseWorld) -> None:
    killed = world.fail_commits(_first_sight_of_id, lambda: Killed("Sandbox.Timedout"), carried_out=False, times=3)
    intents: list[bool] = []
    world.before("POST", "/instances", lambda: intents.append(bool(world.stack.record(lease_id).resources)), times=9)

    lease_id = world.up()
    world.until(lease_id, RUNNING, within=POST_LIMIT)

    assert killed.times == 0
    assert intents == [True], "the intent is stored before the one create call"
    assert len(world.calls("POST", "/instances")) == 1
    assert [r.state for r in world.record(lease_id).resources] == [ResourceState.HELD]
    world.assert_right_at_the_end()


@pytest.mark.parametrize("sent", [True, False], ids=["carried-out", "not-sent"])
@pytest.mark.parametrize("error", ["Sandbox.Timedout", "Runtime.ExitError", "Lambda.Unknown", "States.Timeout"])
def test_c02_worker_dies_in_the_create_call_and_in_the_lookups_after_it(
    world: CaseWorld, sent: bool, error: str
) -> None:
    create = world.kill(method="POST", path="/instances", sent=sent, error=error)
    lookup = world.kill(method="GET", path="/instances", error=error, times=2)

    lease_id = world.up()
    world.until(lease_id, RUNNING, within=POST_LIMIT)

    assert (create.times, lookup.times) == (0, 0)
    assert len(world.ours("instance")) == 1
    assert [r.provider_id for r in world.record(lease_id).resources if r.state is not ResourceState.RELEASED] == [
        world.billed("instance")[0].id
    ]
    world.assert_right_at_the_end()


def test_c04_get_by_id_is_404_for_the_first_minute(world: CaseWorld) -> None:
    world.machine(get_lag_seconds=60, active_seconds=100, locked_seconds=0, ok_seconds=0, ssh_seconds=0)

    lease_id = world.up()
    running = world.until(lease_id, RUNNING, within=200)

    assert 100 <= running <= 110
    assert len(world.calls("POST", "/instances")) == 1
    assert world.states_of(lease_id) == [LeaseState.PROVISIONING, RUNNING]
    assert not [each for each in world.events(lease_id) if each.level != "info"]
    world.assert_right_at_the_end()


def test_c04_a_machine_that_stays_invisible_fails_after_one_more_lookup_by_marker(world: CaseWorld) -> None:
    world.machine(get_lag_seconds=math.inf, list_lag_seconds=math.inf, vanish_after_seconds=100)

    lease_id = world.up()
    world.until(lease_id, RELEASED, within=600)

    [failed] = world.events(lease_id, "attempt_failed")
    assert "never became visible" in failed.text
    failed_at = failed.at.timestamp() - world.t0
    assert failed_at >= V_SECONDS
    assert [call for call in world.calls("GET", "/instances", since=V_SECONDS) if call.at <= failed_at]
    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


@pytest.mark.parametrize("cancelled_at", [1, 30, 55])
def test_c04_cancelled_while_the_machine_cannot_be_seen_yet(world: CaseWorld, cancelled_at: float) -> None:
    world.machine(get_lag_seconds=60, list_lag_seconds=60, active_seconds=65)

    lease_id = world.up()
    world.at(cancelled_at)
    world.down(lease_id)
    world.until(lease_id, RELEASED, within=600)

    [machine] = world.ours("instance")
    assert world.gone_at(machine.id) <= 70 + 60
    world.assert_right_at_the_end()


def test_c04_a_machine_that_becomes_visible_after_it_was_given_up_is_destroyed(world: CaseWorld) -> None:
    world.machine(get_lag_seconds=600, list_lag_seconds=600)

    lease_id = world.up()
    world.at(590)
    assert world.lease(lease_id).reason is Reason.LOST
    world.at(600 + 2 * R_SECONDS)

    [machine] = world.ours("instance")
    assert world.gone_at(machine.id) <= 600 + 2 * R_SECONDS
    world.assert_right_at_the_end()


@pytest.mark.parametrize("network", ["none", "required"])
def test_c06_cancelled_while_the_machine_is_pending(world: CaseWorld, network: str) -> None:
    world.machine(active_seconds=90, destruction_seconds=30)

    lease_id = world.up(**ONE_VM, private_network=network)
    world.at(5)
    written = len(world.states)
    world.down(lease_id)
    assert world.lease(lease_id).state is RELEASING
    released = world.until(lease_id, RELEASED, within=600)

    # Active at T+90 and locked until T+95: the first moment at which a destroy is accepted.
    [machine] = world.ours("instance")
    assert world.gone_at(machine.id) <= 95 + 60
    assert released <= 95 + 60 + 30
    assert {state for _, _, state in world.states[written:]} == {RELEASING, RELEASED}
    assert world.lease(lease_id).running_at is None
    world.assert_right_at_the_end()


@pytest.mark.parametrize("lag", [0, 3])
def test_c09_two_workflows_of_one_lease_make_one_create_call(world: CaseWorld, lag: float) -> None:
    world.machine(list_lag_seconds=lag, get_lag_seconds=lag)

    lease_id = world.up()
    world.stack.engine.start("provision", f"{lease_id}-provision-1-twin", {"lease_id": lease_id, "epoch": 1})
    world.until(lease_id, RUNNING, within=200)

    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


@pytest.mark.parametrize("twin_comes", ["before the claim is written", "before the create is sent"])
def test_c09_a_twin_in_the_middle_of_the_step_makes_no_second_create_call(world: CaseWorld, twin_comes: str) -> None:
    twins: list[object] = []

    def twin() -> None:
        twins.append(world.invoke("CreateInstanceFunction", lease_id).value)

    if twin_comes == "before the create is sent":
        world.before("POST", "/instances", twin, times=1)
    else:
        world.before_commit(lambda change: any(r.state is ResourceState.INTENDED for r in change.resources), twin)

    lease_id = world.up()
    world.until(lease_id, RUNNING, within=200)

    assert len(twins) == 1
    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()


@pytest.mark.parametrize("heard", [True, False], ids=["answer-heard", "answer-lost"])
def test_c09_a_second_machine_made_by_the_provider_is_destroyed_and_never_handed_out(
    world: CaseWorld, heard: bool
) -> None:
    if not heard:
        world.cloud.faults.add(Fault(method="POST", path="/instances", times=1, cut=True, delay_seconds=5))

    lease_id = world.up()
    world.run_for(1)
    _repeat_create(world, lease_id)
    world.until(lease_id, RUNNING, within=300)
    if heard:
        # Without an inventory nothing shows the second one before the lease ends.
        world.down(lease_id)
        world.until(lease_id, RELEASED, within=300)

    machines = world.ours("instance")
    assert len(machines) == 2
    first, second = machines
    assert world.machine_of(lease_id).provider_id == first.id
    asked = world.calls("DELETE", "/instances/.*")[0].at if heard else 0.0
    assert world.gone_at(second.id) <= asked + 2 * R_SECONDS
    world.assert_right_at_the_end(twins_made_by_the_provider=1)


def _repeat_create(world: CaseWorld, lease_id: str) -> None:
    machine = world.record(lease_id).of_kind(ResourceKind.INSTANCE)[0]
    body = {"region": machine.region, "plan": machine.plan, "os_id": 1743, "tags": [machine.marker]}
    headers = {"Authorization": "Bearer k", "Content-Type": "application/json"}
    answer = world.cloud.handle("POST", "/instances", {}, headers, json.dumps(body).encode(), "203.0.113.7")
    assert answer.status == 202, answer


def test_c02_the_ledger_does_not_answer_when_the_id_is_to_be_written(new_world: NewWorld) -> None:
    world = new_world()
    world.fail_commits(_first_sight_of_id, lambda: LedgerUnavailable("no answer"), carried_out=False, times=5)

    lease_id = world.up()
    world.until(lease_id, RUNNING, within=POST_LIMIT)

    assert len(world.calls("POST", "/instances")) == 1
    world.assert_right_at_the_end()
