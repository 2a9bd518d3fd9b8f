"""EBS volumes: what may be attached where, and what hangs."""

import math

import pytest

from tests.support.ec2_world import Ec2World, code_of, steady, tags


def test_a_volume_is_creating_and_then_available() -> None:
    world = Ec2World()
    made = world.volume(Encrypted=True, TagSpecifications=tags(("volume",), owner="me"))
    states = [world.show_volume(made)["State"]]
    world.wait(3)
    shown = world.show_volume(made)
    states.append(shown["State"])

    assert states == ["creating", "available"]
    assert (shown["Size"], shown["VolumeType"], shown["Encrypted"]) == (200, "gp3", True)
    assert shown["Tags"] == [{"Key": "owner", "Value": "me"}]


def test_it_attaches_after_a_while_and_is_in_use() -> None:
    world = Ec2World()
    machine, made = world.running(), world.free_volume()
    states = [world.attach(made, machine)]
    world.wait(5)
    shown = world.show_volume(made)
    states.append(shown["Attachments"][0]["State"])

    assert states == ["attaching", "attached"]
    assert shown["State"] == "in-use"
    assert (shown["Attachments"][0]["InstanceId"], shown["Attachments"][0]["DeleteOnTermination"]) == (machine, False)


def test_c34_a_pending_instance_takes_no_volume() -> None:
    world = Ec2World()
    made, machine = world.free_volume(), world.launch()
    call = {"VolumeId": made, "InstanceId": machine, "Device": "/dev/sdf"}
    assert code_of(world.ec2.attach_volume, **call) == "IncorrectState"
    assert world.show_volume(made)["State"] == "available"
    world.wait(20)

    assert world.attach(made, machine) == "attaching"


def test_a_stopped_instance_takes_one_and_keeps_it() -> None:
    world = Ec2World()
    machine, made, second = world.running(), world.free_volume(), world.free_volume()
    world.attach(made, machine)
    world.ec2.stop_instances(InstanceIds=[machine])
    world.wait(60)
    world.attach(second, machine, "/dev/sdg")
    world.wait(10)

    assert [world.show_volume(each)["State"] for each in (made, second)] == ["in-use", "in-use"]
    assert code_of(world.ec2.delete_volume, VolumeId=made) == "VolumeInUse"


def test_c37_zones_must_be_the_same() -> None:
    world = Ec2World()
    machine, made = world.running(), world.free_volume("us-east-1b")
    call = {"VolumeId": made, "InstanceId": machine, "Device": "/dev/sdf"}

    assert code_of(world.ec2.attach_volume, **call) == "InvalidVolume.ZoneMismatch"


def test_a_volume_in_use_is_not_attached_elsewhere() -> None:
    world = Ec2World()
    first, second, made = world.running(), world.running(), world.free_volume()
    world.attach(made, first)
    call = {"VolumeId": made, "InstanceId": second, "Device": "/dev/sdf"}

    assert code_of(world.ec2.attach_volume, **call) == "VolumeInUse"
    assert world.show_volume(made)["Attachments"][0]["InstanceId"] == first


def test_a_device_name_that_is_taken_is_refused_by_name() -> None:
    world = Ec2World()
    machine, first, second = world.running(), world.free_volume(), world.free_volume()
    world.attach(first, machine)
    call = {"VolumeId": second, "InstanceId": machine, "Device": "/dev/sdf"}
    with pytest.raises(world.ec2.exceptions.ClientError, match="unixDevice"):
        world.ec2.attach_volume(**call)

    assert world.attach(second, machine, "/dev/sdg") == "attaching"


def test_a_volume_that_is_still_creating_is_not_attached() -> None:
    world = Ec2World()
    machine, made = world.running(), world.volume()

    assert code_of(world.ec2.attach_volume, VolumeId=made, InstanceId=machine, Device="/dev/sdf") == "IncorrectState"


def test_a_detach_takes_a_while() -> None:
    world = Ec2World()
    machine, made = world.running(), world.free_volume()
    world.attach(made, machine)
    world.wait(5)
    answer = world.ec2.detach_volume(VolumeId=made, InstanceId=machine)
    states = [answer["State"], world.show_volume(made)["State"]]
    assert code_of(world.ec2.delete_volume, VolumeId=made) == "VolumeInUse"
    world.wait(8)
    states.append(world.show_volume(made)["State"])

    assert states == ["detaching", "in-use", "available"]
    assert world.show_volume(made)["Attachments"] == []


def test_a_detach_of_a_free_one_or_from_another_instance_is_refused() -> None:
    world = Ec2World()
    first, second, made = world.running(), world.running(), world.free_volume()
    assert code_of(world.ec2.detach_volume, VolumeId=made) == "IncorrectState"
    world.attach(made, first)
    world.wait(5)

    assert code_of(world.ec2.detach_volume, VolumeId=made, InstanceId=second) == "InvalidAttachment.NotFound"


def test_a_detach_without_an_instance_works() -> None:
    world = Ec2World()
    machine, made = world.running(), world.free_volume()
    world.attach(made, machine)
    world.wait(5)
    world.ec2.detach_volume(VolumeId=made)
    world.wait(10)

    assert world.show_volume(made)["State"] == "available"


def test_a_mounted_volume_stays_busy_until_the_guest_lets_go() -> None:
    world = Ec2World()
    machine, made = world.running(), world.free_volume()
    world.attach(made, machine)
    world.wait(5)
    world.cloud.mount(made)
    world.ec2.detach_volume(VolumeId=made, InstanceId=machine)
    world.wait(3600)
    assert world.show_volume(made)["Attachments"][0]["State"] == "busy"
    world.cloud.unmount(made)
    world.wait(8)

    assert world.show_volume(made)["State"] == "available"


@pytest.mark.parametrize("how", ["force", "stop", "terminate"])
def test_c36_a_detach_that_hangs_ends_by_force_or_with_the_instance(how: str) -> None:
    world = Ec2World(steady(volume={"detached_seconds": math.inf}))
    machine, made = world.running(), world.free_volume()
    world.attach(made, machine)
    world.wait(5)
    world.ec2.detach_volume(VolumeId=made, InstanceId=machine)
    world.wait(1200)
    assert world.show_volume(made)["Attachments"][0]["State"] == "detaching"
    if how == "force":
        world.ec2.detach_volume(VolumeId=made, InstanceId=machine, Force=True)
    elif how == "stop":
        world.ec2.stop_instances(InstanceIds=[machine])
    else:
        world.ec2.terminate_instances(InstanceIds=[machine])
    world.wait(60)

    assert world.show_volume(made)["State"] == "available"


def test_an_attach_can_hang() -> None:
    world = Ec2World(steady(volume={"attached_seconds": math.inf}))
    machine, made = world.running(), world.free_volume()
    world.attach(made, machine)
    world.wait(7200)
    assert world.show_volume(made)["Attachments"][0]["State"] == "attaching"
    world.ec2.detach_volume(VolumeId=made, InstanceId=machine, Force=True)
    world.wait(5)

    assert world.show_volume(made)["State"] == "available"


def test_a_delete_takes_a_while_and_then_it_is_unknown() -> None:
    world = Ec2World()
    made = world.free_volume()
    world.ec2.delete_volume(VolumeId=made)
    assert world.show_volume(made)["State"] == "deleting"
    world.wait(2)

    assert code_of(world.ec2.describe_volumes, VolumeIds=[made]) == "InvalidVolume.NotFound"
    assert code_of(world.ec2.delete_volume, VolumeId=made) == "InvalidVolume.NotFound"


def test_a_volume_can_end_in_error_and_be_deleted() -> None:
    world = Ec2World(steady(volume={"fails": True}))
    made = world.free_volume()
    assert world.show_volume(made)["State"] == "error"
    world.ec2.delete_volume(VolumeId=made)
    world.wait(5)

    assert world.cloud.book.billed() == []


def test_a_fresh_volume_is_not_found_for_a_while() -> None:
    world = Ec2World(steady(volume={"get_lag_seconds": 30, "list_lag_seconds": 40}))
    made = world.volume()
    assert code_of(world.ec2.describe_volumes, VolumeIds=[made]) == "InvalidVolume.NotFound"
    world.wait(35)
    assert world.show_volume(made)["State"] == "available"
    assert world.ec2.describe_volumes()["Volumes"] == []
    world.wait(5)

    assert len(world.ec2.describe_volumes()["Volumes"]) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag:owner", "me"),
        ("status", "in-use"),
        ("attachment.instance-id", "i-*"),
        ("attachment.delete-on-termination", "false"),
        ("size", "7"),
    ],
)
def test_filters_find_the_one_and_not_the_other(name: str, value: str) -> None:
    world = Ec2World()
    one = world.free_volume(Size=7, TagSpecifications=tags(("volume",), owner="me"))
    world.free_volume()
    machine = world.running()
    world.attach(one, machine)
    filters = [{"Name": name, "Values": [value]}]
    found = {each["VolumeId"] for each in world.ec2.describe_volumes(Filters=filters)["Volumes"]}
    root = world.show(machine)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]

    assert found - {root} == {one}


def test_quotas_hold_for_volumes_and_attachments() -> None:
    world = Ec2World(steady(volume_limit=3, attach_limit=1))
    machine, first, second = world.running(), world.free_volume(), world.free_volume()
    assert code_of(world.ec2.create_volume, AvailabilityZone="us-east-1a", Size=1) == "VolumeLimitExceeded"
    world.attach(first, machine)
    call = {"VolumeId": second, "InstanceId": machine, "Device": "/dev/sdg"}

    assert code_of(world.ec2.attach_volume, **call) == "AttachmentLimitExceeded"


def test_the_root_volume_is_not_detached_while_the_instance_runs() -> None:
    world = Ec2World()
    root = world.show(world.running())["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]

    assert code_of(world.ec2.detach_volume, VolumeId=root) == "OperationNotPermitted"
