"""Scripted faults of the API: each does what it says, to the calls that it is meant for, as often as it is told."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError
from gpulease_sim.aws import (
    MUTATING,
    Fault,
    auth_lost,
    error_after,
    lost_answer,
    no_capacity,
    outage,
    throttling_storm,
)

from tests.support.ec2_world import START, Ec2World, client, code_of, steady, tags

Act = Callable[[Ec2World], Any]
Prepare = Callable[[Ec2World], dict[str, Any]]

CALLS: dict[str, tuple[str, Prepare]] = {
    "RunInstances": ("run_instances", lambda w: w.request(ClientToken="t")),
    "StopInstances": ("stop_instances", lambda w: {"InstanceIds": [w.running()]}),
    "TerminateInstances": ("terminate_instances", lambda w: {"InstanceIds": [w.running()]}),
    "CreateVolume": (
        "create_volume",
        lambda w: {"AvailabilityZone": "us-east-1a", "Size": 1, "VolumeType": "gp3", "ClientToken": "t"},
    ),
    "AttachVolume": (
        "attach_volume",
        lambda w: {"InstanceId": w.running(), "VolumeId": w.free_volume(), "Device": "/dev/sdf"},
    ),
    "DeleteVolume": ("delete_volume", lambda w: {"VolumeId": w.free_volume()}),
    "AllocateAddress": ("allocate_address", lambda w: {"Domain": "vpc"}),
}


def traces(world: Ec2World) -> list[Any]:
    """What the account looks like, for before and after."""
    world.cloud.advance()
    account = world.cloud.account
    machines = [(each.id, each.state) for each in account.machines.values()]
    disks = [(each.id, each.state) for each in account.disks.values()]
    return [machines, disks, len(world.cloud.book.objects())]


@pytest.mark.parametrize("action", CALLS)
def test_a_lost_answer_is_carried_out(action: str) -> None:
    world = Ec2World()
    name, prepare = CALLS[action]
    params = prepare(world)
    before = traces(world)
    world.cloud.faults.add(lost_answer(action))
    with pytest.raises(ConnectionClosedError):
        getattr(world.ec2, name)(**params)

    assert traces(world) != before


@pytest.mark.parametrize("action", CALLS)
def test_an_error_may_come_after_the_call_was_carried_out(action: str) -> None:
    world = Ec2World()
    name, prepare = CALLS[action]
    params = prepare(world)
    before = traces(world)
    world.cloud.faults.add(error_after(action, code="Unavailable"))

    assert code_of(getattr(world.ec2, name), **params) == "Unavailable"
    assert traces(world) != before


@pytest.mark.parametrize("action", CALLS)
def test_an_error_alone_changes_nothing(action: str) -> None:
    world = Ec2World()
    name, prepare = CALLS[action]
    params = prepare(world)
    before = traces(world)
    world.cloud.faults.add(Fault(action=action, code="InternalError", times=1))

    assert code_of(getattr(world.ec2, name), **params) == "InternalError"
    assert traces(world) == before


@pytest.mark.parametrize(("action", "made"), [("RunInstances", "instance"), ("CreateVolume", "volume")])
def test_c02_a_client_that_repeats_a_lost_create_with_its_token_gets_the_same_object(action: str, made: str) -> None:
    world = Ec2World()
    name, prepare = CALLS[action]
    params = prepare(world)
    world.cloud.faults.add(lost_answer(action, times=2))
    for _ in range(2):
        with pytest.raises(ConnectionClosedError):
            getattr(world.ec2, name)(**params)
    getattr(world.ec2, name)(**params)

    assert [each.kind for each in world.cloud.book.objects()].count(made) == 1


def test_a_client_that_repeats_a_lost_create_without_its_token_makes_two() -> None:
    world = Ec2World()
    world.cloud.faults.add(lost_answer("RunInstances"))
    with pytest.raises(ConnectionClosedError):
        world.launch()
    world.launch()

    assert len(world.listed()) == 2


def test_c09_the_provider_may_carry_a_create_out_twice() -> None:
    world = Ec2World()
    world.cloud.faults.add(Fault(action="RunInstances", twice=True, times=1))
    made = world.launch(ClientToken="t", TagSpecifications=tags(owner="me"))

    assert len(world.listed(("tag:owner", "me"))) == 2
    assert made in world.listed()


def test_a_cut_later_than_the_clients_patience_is_a_timeout_and_takes_that_long() -> None:
    spent: list[float] = []
    world = Ec2World()
    ec2 = client(world.cloud, passed=spent.append)
    world.cloud.faults.add(lost_answer("DescribeInstances", delay_seconds=90), Fault(delay_seconds=61, times=1))
    for _ in range(2):
        with pytest.raises(ReadTimeoutError):
            ec2.describe_instances()
    ec2.describe_instances()

    assert spent == [60, 60, 0]


def test_a_dark_region_answers_nothing_and_others_do() -> None:
    world = Ec2World()
    other = client(world.cloud, region="eu-west-1")
    world.cloud.faults.add(outage(START + 10, START + 100, region="us-east-1"))
    world.ec2.describe_instances()
    world.wait(10)
    before = traces(world)
    for call in (world.ec2.describe_instances, lambda: world.launch()):
        with pytest.raises(ReadTimeoutError):
            call()
    assert traces(world) == before
    other.describe_instances()
    world.wait(90)

    assert world.launch()


def test_c64_auth_is_lost_for_a_while_and_nothing_happens_to_machines() -> None:
    world = Ec2World()
    made = world.running()
    world.cloud.faults.add(auth_lost(world.now, world.now + 100))
    assert code_of(world.ec2.describe_instances) == "ExpiredToken"
    assert code_of(world.ec2.terminate_instances, InstanceIds=[made]) == "ExpiredToken"
    assert code_of(client(world.cloud, "sts").get_caller_identity) == "ExpiredToken"
    world.wait(100)

    assert world.state(made) == "running"


def test_a_throttling_storm_refuses_most_and_not_all() -> None:
    world = Ec2World()
    world.cloud.faults.add(throttling_storm(probability=0.8))
    seen = []
    for _ in range(40):
        try:
            world.ec2.describe_instances()
            seen.append("ok")
        except ClientError as error:
            seen.append(error.response["Error"]["Code"])

    assert set(seen) == {"ok", "RequestLimitExceeded"}
    assert seen.count("RequestLimitExceeded") > 20


@pytest.mark.parametrize(
    ("where", "hit", "missed"),
    [
        ({"zone": "us-east-1a"}, {}, {"Placement": {"AvailabilityZone": "us-east-1b"}}),
        ({"type": "g6.*"}, {}, {"InstanceType": "g5.xlarge"}),
        ({"region": "us-east-1"}, {}, None),
    ],
)
def test_lack_of_room_can_be_told_by_region_zone_and_type(
    where: dict[str, str], hit: dict[str, Any], missed: dict[str, Any] | None
) -> None:
    world = Ec2World()
    world.cloud.faults.add(no_capacity(**where))  # type: ignore[arg-type]
    assert code_of(world.ec2.run_instances, **world.request(**hit)) == "InsufficientInstanceCapacity"
    if missed is not None:
        assert world.launch(**missed)


def test_a_fault_meets_starts_by_the_zone_and_type_of_the_instance() -> None:
    world = Ec2World()
    made = world.running()
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    world.cloud.faults.add(no_capacity(zone="us-east-1b"), no_capacity(type="g5.*"))
    world.ec2.start_instances(InstanceIds=[made])
    world.wait(60)
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    world.cloud.faults.add(no_capacity(zone="us-east-1a", type="g6.xlarge"))

    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "InsufficientInstanceCapacity"


def test_a_fault_can_skip_count_and_look_at_parameters() -> None:
    world = Ec2World()
    first, second = world.running(), world.running()
    world.cloud.faults.add(
        Fault(action="StopInstances", params=f"InstanceId.*={second}", skip=1, times=1, code="InternalError")
    )
    stop = world.ec2.stop_instances
    stop(InstanceIds=[first])
    stop(InstanceIds=[second])
    assert code_of(stop, InstanceIds=[second]) == "InternalError"
    stop(InstanceIds=[second])

    assert world.cloud.faults.acted() == [1]


def test_all_that_changes_something_can_be_named_at_once() -> None:
    world = Ec2World()
    made = world.running()
    world.cloud.faults.add(Fault(action=MUTATING, code="Unavailable"))
    world.ec2.describe_instances()
    for call in (world.ec2.stop_instances, world.ec2.terminate_instances):
        assert code_of(call, InstanceIds=[made]) == "Unavailable"
    assert code_of(world.ec2.run_instances, **world.request()) == "Unavailable"


def test_a_list_can_be_answered_empty() -> None:
    world = Ec2World()
    world.launch()
    world.cloud.faults.add(Fault(action="DescribeInstances", empty=True, times=1))

    assert [len(world.listed()) for _ in range(2)] == [0, 1]


def test_a_gateways_page_is_an_error_without_a_code_of_ec2() -> None:
    world = Ec2World()
    world.cloud.faults.add(Fault(action="DescribeInstances", html=True, status=502, times=1))
    with pytest.raises(Exception) as seen:
        world.ec2.describe_instances()

    assert "502" in str(seen.value) or "parse" in str(seen.value).lower()


def test_faults_keep_their_luck_with_the_seed() -> None:
    def story(seed: int) -> list[bool]:
        world = Ec2World(seed=seed)
        world.cloud.faults.add(Fault(probability=0.5, code="InternalError"))
        seen = []
        for _ in range(16):
            try:
                world.ec2.describe_instances()
                seen.append(True)
            except ClientError:
                seen.append(False)
        return seen

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_a_faults_bad_pattern_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        Fault(action="(")


def test_reset_leaves_an_empty_account_without_faults() -> None:
    world = Ec2World(steady(vcpu_limit=64))
    world.launch()
    world.cloud.faults.add(Fault(code="InternalError"))
    world.cloud.reset()

    assert world.listed() == []
    assert world.cloud.book.objects() == []
    assert world.cloud.settings.vcpu_limit == 64
