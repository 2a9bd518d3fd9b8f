"""The end of an instance: how long it shows, and what goes with it."""

from tests.support.ec2_world import Ec2World, code_of, steady


def test_an_instance_shuts_down_shows_as_terminated_for_an_hour_and_is_then_unknown() -> None:
    world = Ec2World()
    made = world.running()
    (answer,) = world.ec2.terminate_instances(InstanceIds=[made])["TerminatingInstances"]
    states = [world.state(made)]
    for seconds in (30, 3599):
        world.wait(seconds)
        states.append(world.state(made))
    world.wait(1)

    assert answer["CurrentState"]["Name"] == "shutting-down"
    assert states == ["shutting-down", "terminated", "terminated"]
    assert code_of(world.ec2.describe_instances, InstanceIds=[made]) == "InvalidInstanceID.NotFound"
    assert code_of(world.ec2.terminate_instances, InstanceIds=[made]) == "InvalidInstanceID.NotFound"
    assert world.listed() == []


def test_terminating_again_succeeds_while_it_still_shows() -> None:
    world = Ec2World()
    made = world.running()
    for seconds in (0, 10, 60):
        world.wait(seconds)
        world.ec2.terminate_instances(InstanceIds=[made])

    assert world.state(made) == "terminated"


def test_c06_a_pending_instance_can_be_terminated_and_never_runs() -> None:
    world = Ec2World()
    made = world.launch()
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(60)

    assert world.state(made) == "terminated"
    assert world.cloud.book.get(made).cost_usd == 0


def test_c13_one_unknown_id_fails_the_whole_batch() -> None:
    world = Ec2World()
    made = [world.running() for _ in range(3)]
    unknown = "i-00000000000000000"
    for call in (world.ec2.terminate_instances, world.ec2.stop_instances):
        assert code_of(call, InstanceIds=[*made, unknown]) == "InvalidInstanceID.NotFound"

    assert [world.state(each) for each in made] == ["running"] * 3


def test_c24_volumes_go_or_stay_as_their_flag_says() -> None:
    world = Ec2World()
    scratch = {"DeviceName": "/dev/sdg", "Ebs": {"VolumeSize": 5, "VolumeType": "gp3", "DeleteOnTermination": False}}
    made = world.running(BlockDeviceMappings=[scratch])
    root, kept = (each["Ebs"]["VolumeId"] for each in reversed(world.show(made)["BlockDeviceMappings"]))
    goes, stays = world.free_volume(), world.free_volume()
    world.attach(goes, made, "/dev/sdh")
    world.attach(stays, made, "/dev/sdi")
    change = {"DeviceName": "/dev/sdh", "Ebs": {"DeleteOnTermination": True}}
    world.ec2.modify_instance_attribute(InstanceId=made, BlockDeviceMappings=[change])
    world.wait(10)
    world.ec2.terminate_instances(InstanceIds=[made])
    assert len(world.ec2.describe_volumes()["Volumes"]) == 4
    world.wait(30)
    left = {each["VolumeId"]: each["State"] for each in world.ec2.describe_volumes()["Volumes"]}

    assert left == {kept: "available", stays: "available"}
    assert {each.id for each in world.cloud.book.billed() if each.kind == "volume"} == set(left)
    assert root not in left


def test_a_protected_instance_is_not_terminated() -> None:
    world = Ec2World()
    made = world.running()
    world.ec2.modify_instance_attribute(InstanceId=made, DisableApiTermination={"Value": True})

    assert code_of(world.ec2.terminate_instances, InstanceIds=[made]) == "OperationNotPermitted"
    assert world.state(made) == "running"


def test_a_terminate_can_answer_and_do_nothing() -> None:
    world = Ec2World(steady(instance={"terminates_ignored": 1}))
    made = world.running()
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(600)
    assert world.state(made) == "running"
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(60)

    assert world.state(made) == "terminated"


def test_c22_the_security_group_is_in_use_for_minutes_after_the_end() -> None:
    world = Ec2World(steady(instance={"interface_linger_seconds": 360}))
    group = world.ec2.create_security_group(GroupName="ours", Description="x")["GroupId"]
    made = world.running(SecurityGroupIds=[group])
    world.ec2.terminate_instances(InstanceIds=[made])
    for seconds in (0, 30, 359):
        world.wait(seconds)
        assert code_of(world.ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    world.wait(1)
    world.ec2.delete_security_group(GroupId=group)

    assert code_of(world.ec2.describe_security_groups, GroupIds=[group]) == "InvalidGroup.NotFound"
    assert world.ec2.create_security_group(GroupName="ours", Description="x")["GroupId"]


def test_an_interface_in_use_is_not_deleted_and_is_gone_with_the_instance() -> None:
    world = Ec2World()
    made = world.running()
    nic = world.show(made)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    assert code_of(world.ec2.delete_network_interface, NetworkInterfaceId=nic) == "InvalidParameterValue"
    world.cloud.remove_by_hand(made)
    world.wait(30)

    assert world.ec2.describe_network_interfaces()["NetworkInterfaces"] == []


def test_what_is_gone_for_good_leaves_nothing_in_memory_but_the_book() -> None:
    world = Ec2World()
    for _ in range(5):
        world.cloud.remove_by_hand(world.running())
    world.wait(5000)
    world.cloud.advance()
    backend = world.cloud.account.moto.backend("us-east-1")

    assert (world.cloud.account.machines, world.cloud.account.disks) == ({}, {})
    assert (len(backend.reservations), len(backend.enis)) == (0, 0)
    assert len(world.cloud.book.objects()) == 10
