"""Stopping and starting: delays, refusals, addresses, lack of room."""

import math
from dataclasses import replace

import pytest
from gpulease_sim.aws import no_capacity

from tests.support.ec2_world import SPOT, Ec2World, code_of, steady


def stopped(world: Ec2World, **change: object) -> str:
    made = world.running(**change)
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    return made


def test_a_stop_takes_a_while_and_says_so() -> None:
    world = Ec2World()
    made = world.running()
    (answer,) = world.ec2.stop_instances(InstanceIds=[made])["StoppingInstances"]
    states = [world.state(made)]
    world.wait(40)
    states.append(world.state(made))

    assert (answer["PreviousState"]["Name"], answer["CurrentState"]["Name"]) == ("running", "stopping")
    assert states == ["stopping", "stopped"]
    assert world.show(made)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


def test_stopping_twice_succeeds() -> None:
    world = Ec2World()
    made = stopped(world)

    (answer,) = world.ec2.stop_instances(InstanceIds=[made])["StoppingInstances"]

    assert answer["CurrentState"]["Name"] == "stopped"


def test_the_address_is_lost_at_stop_and_another_one_comes_at_start() -> None:
    world = Ec2World()
    made = world.running()
    before = world.show(made)["PublicIpAddress"]
    private = world.show(made)["PrivateIpAddress"]
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    assert "PublicIpAddress" not in world.show(made)
    world.ec2.start_instances(InstanceIds=[made])
    world.wait(60)
    after = world.show(made)

    assert after["PublicIpAddress"] != before
    assert after["PrivateIpAddress"] == private
    assert not world.cloud.ssh_open(before) and world.cloud.ssh_open(after["PublicIpAddress"])


def test_an_elastic_address_stays() -> None:
    world = Ec2World()
    made = world.running()
    address = world.ec2.allocate_address(Domain="vpc")
    world.ec2.associate_address(InstanceId=made, AllocationId=address["AllocationId"])
    assert world.show(made)["PublicIpAddress"] == address["PublicIp"]
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    world.ec2.start_instances(InstanceIds=[made])
    world.wait(60)

    assert world.show(made)["PublicIpAddress"] == address["PublicIp"]


def test_a_start_boots_again_with_another_launch_time() -> None:
    world = Ec2World()
    made = stopped(world)
    launched = world.show(made)["LaunchTime"]
    (answer,) = world.ec2.start_instances(InstanceIds=[made])["StartingInstances"]
    states = [world.state(made)]
    world.wait(20)
    states.append(world.state(made))

    assert (answer["PreviousState"]["Name"], answer["CurrentState"]["Name"]) == ("stopped", "pending")
    assert states == ["pending", "running"]
    assert world.show(made)["LaunchTime"] > launched
    assert "StateReason" not in world.show(made)


def test_a_start_is_refused_while_stopping_and_does_nothing_while_running() -> None:
    world = Ec2World()
    made = world.running()
    assert world.ec2.start_instances(InstanceIds=[made])["StartingInstances"][0]["CurrentState"]["Name"] == "running"
    world.ec2.stop_instances(InstanceIds=[made])

    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "IncorrectInstanceState"


def test_a_pending_instance_cannot_be_stopped() -> None:
    world = Ec2World()

    assert code_of(world.ec2.stop_instances, InstanceIds=[world.launch()]) == "IncorrectInstanceState"


def test_c54_what_is_terminated_can_be_neither_started_nor_stopped() -> None:
    world = Ec2World()
    made = world.running()
    world.ec2.terminate_instances(InstanceIds=[made])
    for seconds in (0, 60):
        world.wait(seconds)
        for call in (world.ec2.start_instances, world.ec2.stop_instances):
            assert code_of(call, InstanceIds=[made]) == "IncorrectInstanceState"


def test_a_one_time_spot_instance_cannot_be_stopped() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=SPOT)

    assert code_of(world.ec2.stop_instances, InstanceIds=[made]) == "UnsupportedOperation"
    assert world.state(made) == "running"


def test_a_stop_can_hang_and_force_ends_it() -> None:
    world = Ec2World(steady(instance={"stopped_seconds": math.inf}))
    made = world.running()
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(3600)
    assert world.state(made) == "stopping"
    world.ec2.stop_instances(InstanceIds=[made], Force=True)
    world.wait(5)

    assert world.state(made) == "stopped"


def test_c38_a_start_without_room_is_refused_and_the_instance_stays_stopped() -> None:
    world = Ec2World()
    made = stopped(world)
    other = stopped(world)
    world.cloud.faults.add(no_capacity(times=1))
    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "InsufficientInstanceCapacity"
    assert world.state(made) == "stopped"
    world.ec2.start_instances(InstanceIds=[other])
    world.wait(30)
    assert world.state(other) == "running"
    world.cloud.settings = replace(world.cloud.settings, capacity={"us-east-1a/*": 1})

    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "InsufficientInstanceCapacity"


def test_a_start_can_be_accepted_and_fall_back_to_stopped() -> None:
    reason = "Server.InsufficientInstanceCapacity"
    world = Ec2World(steady(instance={"start_failure": reason, "start_failures": 1}))
    made = stopped(world)
    world.ec2.start_instances(InstanceIds=[made])
    states = [world.state(made)]
    world.wait(20)
    states.append(world.state(made))
    assert states == ["pending", "stopped"]
    assert world.show(made)["StateReason"]["Code"] == reason
    world.ec2.start_instances(InstanceIds=[made])
    world.wait(20)

    assert world.state(made) == "running"


def test_a_reboot_keeps_the_instance_running() -> None:
    world = Ec2World()
    made = world.running()
    address = world.show(made)["PublicIpAddress"]
    world.ec2.reboot_instances(InstanceIds=[made])

    assert world.state(made) == "running"
    assert not world.cloud.ssh_open(address)
    world.wait(30)
    assert world.cloud.ssh_open(address)


@pytest.mark.parametrize(("behaviour", "end"), [("stop", "stopped"), ("terminate", "terminated")])
def test_a_shutdown_in_the_guest_does_what_the_attribute_says(behaviour: str, end: str) -> None:
    world = Ec2World()
    made = world.running(InstanceInitiatedShutdownBehavior=behaviour)
    world.cloud.guest_shutdown(made)
    world.wait(60)
    shown = world.show(made)

    assert shown["State"]["Name"] == end
    assert shown["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_the_shutdown_behaviour_can_be_changed_while_it_runs() -> None:
    world = Ec2World()
    made = world.running()
    change = {"InstanceInitiatedShutdownBehavior": {"Value": "terminate"}}
    world.ec2.modify_instance_attribute(InstanceId=made, **change)
    world.cloud.guest_shutdown(made)
    world.wait(60)

    assert world.state(made) == "terminated"
