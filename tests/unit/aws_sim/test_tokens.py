"""Idempotency tokens: one call's worth of objects, however often it is sent."""

from dataclasses import replace

import pytest

from tests.support.ec2_world import Ec2World, code_of, steady


def test_the_same_launch_sent_again_gives_the_same_instance() -> None:
    world = Ec2World()
    first = world.launch(ClientToken="t", UserData="x")
    world.wait(30)
    again = world.ec2.run_instances(**world.request(ClientToken="t", UserData="x"))["Instances"][0]

    assert (again["InstanceId"], again["State"]["Name"]) == (first, "running")
    assert len(world.listed()) == 1


@pytest.mark.parametrize("change", [{"InstanceType": "g5.xlarge"}, {"UserData": "other"}, {"EbsOptimized": True}])
def test_c07_the_same_token_with_other_parameters_is_refused_and_makes_nothing(change: dict[str, object]) -> None:
    world = Ec2World()
    world.launch(ClientToken="t")

    assert code_of(world.ec2.run_instances, **world.request(ClientToken="t", **change)) == "IdempotentParameterMismatch"
    assert len(world.listed()) == 1


def test_c08_a_token_is_used_up_by_a_launch_that_found_no_room() -> None:
    world = Ec2World(steady(capacity={"us-east-1a/g6.xlarge": 0}))
    request = world.request(ClientToken="t")
    assert code_of(world.ec2.run_instances, **request) == "InsufficientInstanceCapacity"
    other = {**request, "InstanceType": "g5.xlarge"}
    assert code_of(world.ec2.run_instances, **other) == "IdempotentParameterMismatch"
    world.cloud.settings = replace(world.cloud.settings, capacity={})

    assert world.ec2.run_instances(**request)["Instances"]


def test_the_token_of_an_instance_that_ended_is_refused() -> None:
    world = Ec2World()
    launched = world.running(ClientToken="t")
    world.ec2.terminate_instances(InstanceIds=[launched])
    codes = []
    for seconds in (0, 60, 4000):
        world.wait(seconds)
        codes.append(code_of(world.ec2.run_instances, **world.request(ClientToken="t")))

    assert codes == ["IdempotentInstanceTerminated"] * 3


def test_without_a_token_each_call_makes_one() -> None:
    world = Ec2World()

    assert world.launch() != world.launch()


def test_a_token_counts_per_zone_where_the_call_names_one() -> None:
    world = Ec2World()
    first = world.launch(ClientToken="t")

    assert world.launch(ClientToken="t", Placement={"AvailabilityZone": "us-east-1b"}) != first


def test_the_same_volume_create_sent_again_gives_the_same_volume() -> None:
    world = Ec2World()
    first = world.volume(ClientToken="t")

    assert world.volume(ClientToken="t") == first
    other = {"AvailabilityZone": "us-east-1a", "Size": 201, "VolumeType": "gp3", "ClientToken": "t"}
    assert code_of(world.ec2.create_volume, **other) == "IdempotentParameterMismatch"
    assert len(world.ec2.describe_volumes()["Volumes"]) == 1
