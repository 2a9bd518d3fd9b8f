"""C02, C03, C05, C06, C07, C08, C09 on AWS: creates of which nobody knows for a while what became of them, and the
token that makes one launch of many calls."""

from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.providers.aws.views import MARKER_TAG
from gpulease_sim.aws.settings import DLAMI_PATH

from tests.cases.conftest import NewCloud
from tests.support.cloud_world import ONE_AWS, R_SECONDS, CloudWorld, Sent
from tests.support.kills import Killed

RELEASING, RELEASED, RUNNING = LeaseState.RELEASING, LeaseState.RELEASED, LeaseState.RUNNING
PROVISIONING = LeaseState.PROVISIONING
A, B = "g6.xlarge", "g5.xlarge"


def _first_sight_of_id(change: Change) -> bool:
    """The write that stores the machine's id."""
    return any(r.kind is ResourceKind.INSTANCE and r.provider_id and r.status == "created" for r in change.resources)


def _launches(world: CloudWorld) -> list[Sent]:
    return world.calls("RunInstances")


@pytest.mark.parametrize("lag", [0, 8])
def test_c02_on_aws_a_worker_that_dies_three_times_leaves_one_instance_under_one_token(
    cloud: CloudWorld, lag: float
) -> None:
    cloud.machine(list_lag_seconds=lag, get_lag_seconds=lag)
    killed = cloud.fail_commits(_first_sight_of_id, lambda: Killed("Sandbox.Timedout"), times=3)
    intents: list[bool] = []
    cloud.before("RunInstances", lambda: intents.append(bool(cloud.record(lease_id).resources)), times=9)

    lease_id = cloud.up()
    cloud.until(lease_id, RUNNING, within=2 * R_SECONDS)

    assert killed.times == 0
    assert intents == [True], "the intent is stored before the one launch"
    [launch] = _launches(cloud)
    assert launch.params["ClientToken"]
    [machine] = cloud.ours()
    assert cloud.machine_of(lease_id).provider_id == machine.id
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("sent", [True, False], ids=["carried-out", "not-sent"])
@pytest.mark.parametrize("error", ["Sandbox.Timedout", "States.Timeout"])
def test_c02_on_aws_a_worker_that_dies_in_the_launch_and_in_the_lookups_after_it(
    cloud: CloudWorld, sent: bool, error: str
) -> None:
    launch = cloud.kill("RunInstances", sent=sent, error=error)
    lookup = cloud.kill("DescribeInstances", error=error, times=2)

    lease_id = cloud.up()
    cloud.until(lease_id, RUNNING, within=4 * R_SECONDS)

    assert (launch.times, lookup.times) == (0, 0)
    assert len(cloud.ours()) == 1
    tokens = [each.params["ClientToken"] for each in _launches(cloud)]
    # One that was not sent has left an intent, which is closed when its machine can no longer appear.
    assert len(tokens) == len(set(tokens)) == 1
    cloud.assert_right_at_the_end()


def test_c03_a_sweep_while_the_new_instance_is_invisible_closes_nothing(cloud: CloudWorld) -> None:
    cloud.machine(list_lag_seconds=45, get_lag_seconds=45)
    cloud.kill("RunInstances", after_seconds=0.2)

    lease_id = cloud.up()
    cloud.at(0.5)
    for function in ("SweepFunction", "CheckLeasesFunction"):
        cloud.stack.stack.functions.invoke(function, {})
    for seconds in (1, 20, 44):
        cloud.at(seconds)
        cloud.stack.stack.functions.invoke("SweepFunction", {})
        assert cloud.lease(lease_id).state is PROVISIONING
        assert cloud.machine_of(lease_id).state is not ResourceState.RELEASED
    cloud.until(lease_id, RUNNING, within=300)

    [machine] = cloud.ours()
    assert cloud.machine_of(lease_id).provider_id == machine.id
    assert len(_launches(cloud)) == 1
    assert cloud.states_of(lease_id) == [PROVISIONING, RUNNING]
    cloud.assert_right_at_the_end()


def test_c05_what_marks_a_machine_as_ours_is_part_of_its_launch(cloud: CloudWorld) -> None:
    cloud.fault(action="CreateTags", code="InvalidInstanceID.NotFound")
    cloud.kill("RunInstances")

    lease_id = cloud.up()
    cloud.run_for(1)
    [machine] = cloud.ours()
    marked = dict(cloud.aws.book.get(machine.id).tags)
    cloud.until(lease_id, RUNNING, within=2 * R_SECONDS)

    assert marked[MARKER_TAG] == cloud.machine_of(lease_id).marker, "from the first moment on"
    assert cloud.calls("CreateTags") == [], "nothing is tagged afterwards"
    cloud.assert_right_at_the_end()


def test_c05_a_launch_whose_lease_is_gone_is_found_by_its_tags_and_ended(cloud: CloudWorld) -> None:
    """Given up while nobody knows its id: the tags alone tell of it."""
    cloud.kill("RunInstances")
    cloud.machine(list_lag_seconds=400, get_lag_seconds=400)

    lease_id = cloud.up(**ONE_AWS, max_attempts=1)
    cloud.until(lease_id, RELEASED, within=1200)
    cloud.at(400 + 2 * R_SECONDS)

    [machine] = cloud.ours()
    assert cloud.gone_at(machine.id) <= 400 + 2 * R_SECONDS
    # Hidden for longer than EC2 is said to hide anything: nobody could know of it.
    cloud.wrong_claims.clear()
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("refused_until", [0, 90], ids=["taken-at-once", "not-before-it-runs"])
@pytest.mark.parametrize("network", ["none", "required"])
def test_c06_on_aws_cancelled_while_the_instance_is_pending(
    cloud: CloudWorld, refused_until: float, network: str
) -> None:
    cloud.machine(running_seconds=90)

    lease_id = cloud.up(**ONE_AWS, private_network=network)
    cloud.fault(action="TerminateInstances", code="IncorrectInstanceState", until_seconds=refused_until)
    cloud.at(5)
    written = len(cloud.states)
    cloud.stack.down(lease_id)
    assert cloud.lease(lease_id).state is RELEASING
    cloud.until(lease_id, RELEASED, within=600)

    for machine in cloud.ours():
        assert cloud.gone_at(machine.id) <= max(5, refused_until) + 60
    assert {state for _, whose, state in cloud.states[written:] if whose == lease_id} == {RELEASING, RELEASED}
    assert cloud.lease(lease_id).running_at is None
    cloud.assert_right_at_the_end()


def test_c07_the_same_request_twice_while_the_image_alias_moves_is_one_instance(cloud: CloudWorld) -> None:
    first = cloud.up(**ONE_AWS, idempotency_key="the-same")
    cloud.at(2)
    cloud.set(image_parameters={DLAMI_PATH: "dlami-newer"})

    second = cloud.up(**ONE_AWS, idempotency_key="the-same")
    cloud.until(first, RUNNING, within=300)

    assert first == second
    assert len(cloud.ours()) == len(_launches(cloud)) == 1
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("lag", [0, 3, 20])
@pytest.mark.parametrize("code", ["IdempotentParameterMismatch", "IdempotentInstanceTerminated"])
def test_c07_launched_already_under_this_token_is_bound_to_the_same_machine(
    cloud: CloudWorld, lag: float, code: str
) -> None:
    cloud.machine(list_lag_seconds=lag, get_lag_seconds=lag)
    cloud.fault(action="RunInstances", code=code, execute=True, times=1)

    lease_id = cloud.up()
    cloud.until(lease_id, RUNNING, within=300)

    [machine] = cloud.ours()
    assert cloud.machine_of(lease_id).provider_id == machine.id
    assert len(_launches(cloud)) == 1
    assert [each.reason for each in cloud.lease(lease_id).attempts] == [None]
    assert [each for each in cloud.events(lease_id) if each.level != "info"] == [], "nothing of it is shown to the user"
    cloud.assert_right_at_the_end()


def test_c08_another_type_has_a_token_of_its_own(cloud: CloudWorld) -> None:
    cloud.fault(action="RunInstances", type=A, code="InsufficientInstanceCapacity")

    lease_id = cloud.up(providers=["aws"], regions=["us-east-1"], plans=[A, B])
    cloud.until(lease_id, RUNNING, within=600)

    launches = _launches(cloud)
    assert len({each.params["ClientToken"] for each in launches}) == len(launches)
    assert [each.params["InstanceType"] for each in launches].count(B) == 1, "launched at its first try"
    assert launches[-1].params["InstanceType"] == B
    assert "IdempotentParameterMismatch" not in {each.code for each in cloud.sent}
    [machine] = cloud.ours()
    assert machine.plan == B
    assert {each.reason for each in cloud.lease(lease_id).attempts} == {Reason.NO_CAPACITY, None}
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("lag", [0, 3])
def test_c09_on_aws_two_workflows_of_one_lease_make_one_launch(cloud: CloudWorld, lag: float) -> None:
    cloud.machine(list_lag_seconds=lag, get_lag_seconds=lag)

    lease_id = cloud.up()
    cloud.stack.engine.start("provision", f"{lease_id}-provision-1-twin", {"lease_id": lease_id, "epoch": 1})
    cloud.until(lease_id, RUNNING, within=300)

    assert len(_launches(cloud)) == 1
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("twin_comes", ["before the claim is written", "before the launch is sent"])
def test_c09_on_aws_a_twin_in_the_middle_of_the_step_makes_no_second_launch(cloud: CloudWorld, twin_comes: str) -> None:
    twins: list[object] = []

    def twin() -> None:
        twins.append(cloud.invoke("CreateInstanceFunction", lease_id).value)

    if twin_comes == "before the launch is sent":
        cloud.before("RunInstances", twin)
    else:
        cloud.before_commit(lambda change: any(r.state is ResourceState.INTENDED for r in change.resources), twin)

    lease_id = cloud.up()
    cloud.until(lease_id, RUNNING, within=300)

    assert len(twins) == 1
    assert len(_launches(cloud)) == 1
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("answer", [{}, {"cut": True, "delay_seconds": 5}], ids=["heard", "lost"])
def test_c09_on_aws_a_second_instance_made_by_the_provider_is_destroyed_and_never_handed_out(
    new_cloud: NewCloud, answer: dict[str, Any]
) -> None:
    cloud = new_cloud()
    cloud.fault(action="RunInstances", twice=True, times=1, **answer)

    lease_id = cloud.up()
    cloud.until(lease_id, RUNNING, within=300)
    cloud.at(2 * R_SECONDS + 60)

    machines = cloud.ours()
    assert len(machines) == 2
    held = {r.provider_id for r in cloud.record(lease_id).resources if r.state is ResourceState.HELD}
    [extra] = [each for each in machines if each.id not in held]
    assert cloud.gone_at(extra.id) <= 2 * R_SECONDS + 60
    assert cloud.view(lease_id)["address"] == cloud.aws.machine(held.pop()).public_ip
    cloud.assert_right_at_the_end(twins=1)


def test_c02_nothing_of_a_token_is_used_again_after_a_lost_launch(cloud: CloudWorld) -> None:
    """A second attempt at the same offer is another launch: the first one's token would give the first one back."""
    cloud.fault(action="RunInstances", cut=True, execute=False, delay_seconds=5, times=1)

    lease_id = cloud.up()
    cloud.until(lease_id, RUNNING, within=1500)

    first, second = _launches(cloud)
    assert first.params["ClientToken"] != second.params["ClientToken"]
    assert [a.reason for a in cloud.lease(lease_id).attempts] == [Reason.NEVER_APPEARED, None]
    assert len(cloud.ours()) == 1
    cloud.assert_right_at_the_end()
