"""What RunInstances accepts, and how an instance comes up."""

import base64
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.ec2_world import PERSISTENT, REGION, START, TYPE, Ec2World, client, code_of, steady, tags


def test_an_instance_goes_from_pending_to_running_to_ok() -> None:
    world = Ec2World()
    launched = world.launch()
    seen = []

    def look() -> tuple[str, str]:
        answer = world.ec2.describe_instance_status(InstanceIds=[launched], IncludeAllInstances=True)
        return world.state(launched), answer["InstanceStatuses"][0]["SystemStatus"]["Status"]

    for seconds in (0, 20, 119, 1):
        world.wait(seconds)
        seen.append(look())

    assert seen == [
        ("pending", "not-applicable"),
        ("running", "initializing"),
        ("running", "initializing"),
        ("running", "ok"),
    ]


def test_status_lists_running_instances_alone_unless_all_are_asked_for() -> None:
    world = Ec2World()
    world.launch()

    assert world.ec2.describe_instance_status()["InstanceStatuses"] == []
    assert len(world.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]) == 1


def test_times_come_from_the_simulators_clock() -> None:
    world = Ec2World()
    launched = world.launch()

    assert world.show(launched)["LaunchTime"] == datetime.fromtimestamp(START, UTC)


def test_the_public_address_shows_once_it_runs() -> None:
    world = Ec2World()
    launched = world.launch()
    before = world.show(launched)
    world.wait(20)

    assert "PublicIpAddress" not in before
    assert world.show(launched)["PublicIpAddress"]


def test_tags_of_the_call_are_on_the_instance_its_volume_its_interface_and_its_request() -> None:
    world = Ec2World()
    everything = tags(("instance", "volume", "network-interface", "spot-instances-request"), owner="me")
    launched = world.running(InstanceMarketOptions={"MarketType": "spot"}, TagSpecifications=everything)
    shown = world.show(launched)
    expected = [{"Key": "owner", "Value": "me"}]

    assert shown["Tags"] == expected
    assert world.show_volume(shown["BlockDeviceMappings"][0]["Ebs"]["VolumeId"])["Tags"] == expected
    interfaces = world.ec2.describe_network_interfaces(Filters=[{"Name": "tag:owner", "Values": ["me"]}])
    assert len(interfaces["NetworkInterfaces"]) == 1
    assert world.spot_request()["Tags"] == expected


def test_user_data_arrives_byte_for_byte() -> None:
    world = Ec2World()
    script = '#!/bin/sh\r\necho "it\'s ü $HOME" `id` \\\n\n'
    launched = world.launch(UserData=script)

    read = world.ec2.describe_instance_attribute(InstanceId=launched, Attribute="userData")["UserData"]["Value"]

    assert base64.b64decode(read) == script.encode()
    assert world.cloud.book.get(launched).user_data_bytes == script.encode()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g99.xlarge"}, "InvalidParameterValue"),
        ({"MinCount": 2}, "InvalidParameterValue"),
        ({"UserData": "x" * 16_385}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-00000000000000000"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-00000000000000000"]}, "InvalidGroup.NotFound"),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-00000000000000000"]}]},
            "InvalidGroup.NotFound",
        ),
        ({"Placement": {"AvailabilityZone": "eu-west-1a"}}, "InvalidParameterValue"),
        ({"TagSpecifications": tags(("instance",), **{"aws:x": "y"})}, "InvalidParameterValue"),
        ({"TagSpecifications": tags(("instance",), **{f"k{i}": "v" for i in range(51)})}, "TagLimitExceeded"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
    ],
)
def test_a_bad_request_makes_nothing(change: dict[str, Any], code: str) -> None:
    world = Ec2World()

    assert code_of(world.ec2.run_instances, **world.request(**change)) == code
    assert world.cloud.book.objects() == []


def test_persistent_spot_goes_with_stop_and_one_time_with_terminate() -> None:
    world = Ec2World()
    for kind, behaviour in (("persistent", "terminate"), ("one-time", "stop")):
        options = {"SpotInstanceType": kind, "InstanceInterruptionBehavior": behaviour}
        market = {"MarketType": "spot", "SpotOptions": options}
        assert code_of(world.ec2.run_instances, **world.request(InstanceMarketOptions=market)) == (
            "InvalidParameterCombination"
        )

    assert world.launch(InstanceMarketOptions=PERSISTENT)


def test_a_dry_run_tells_and_makes_nothing() -> None:
    world = Ec2World()

    assert code_of(world.ec2.run_instances, **world.request(DryRun=True)) == "DryRunOperation"
    assert world.cloud.book.objects() == []


def test_the_root_volume_is_the_images_and_goes_with_the_instance_unless_told_otherwise() -> None:
    world = Ec2World()
    data = {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 10, "VolumeType": "gp3"}}
    shown = world.show(world.running(BlockDeviceMappings=[data]))
    mappings = {each["DeviceName"]: each["Ebs"] for each in shown["BlockDeviceMappings"]}

    assert set(mappings) == {"/dev/sda1", "/dev/sdf"}
    assert mappings["/dev/sda1"]["DeleteOnTermination"] is True
    assert world.show_volume(mappings["/dev/sda1"]["VolumeId"])["VolumeType"] == "gp3"


def test_a_fresh_id_is_not_found_for_a_while_and_lists_lag_too() -> None:
    world = Ec2World(steady(instance={"get_lag_seconds": 60, "list_lag_seconds": 45}))
    launched = world.launch(TagSpecifications=tags(owner="me"))
    world.wait(44)
    for call in (world.ec2.stop_instances, world.ec2.terminate_instances, world.ec2.describe_instances):
        assert code_of(call, InstanceIds=[launched]) == "InvalidInstanceID.NotFound"
    tag = {"Resources": [launched], "Tags": [{"Key": "a", "Value": "b"}]}
    assert code_of(world.ec2.create_tags, **tag) == "InvalidInstanceID.NotFound"
    assert world.listed(("tag:owner", "me")) == []
    world.wait(1)
    assert world.listed(("tag:owner", "me")) == [launched]
    world.wait(15)

    assert world.state(launched) == "running"


def test_a_launch_can_fail_after_it_was_accepted() -> None:
    world = Ec2World(steady(instance={"launch_failure": "Server.InternalError"}))
    launched = world.launch()
    world.wait(20)
    shown = world.show(launched)

    assert shown["State"]["Name"] == "terminated"
    assert shown["StateReason"]["Code"] == "Server.InternalError"
    assert world.cloud.book.cost() < 1 and world.cloud.book.billed() == []


def test_checks_may_never_become_ok_or_be_impaired() -> None:
    never = Ec2World(steady(instance={"ok_seconds": math.inf}))
    bad = Ec2World(steady(instance={"impaired": True}))
    for world, expected in ((never, "initializing"), (bad, "impaired")):
        launched = world.running()
        world.wait(10_000)
        (status,) = world.ec2.describe_instance_status(InstanceIds=[launched])["InstanceStatuses"]
        assert status["InstanceStatus"]["Status"] == expected


def test_a_running_instance_can_become_impaired_and_recover() -> None:
    world = Ec2World()
    launched = world.running()
    world.wait(120)
    seen = []
    for impaired in (True, False):
        world.cloud.impair(launched, impaired)
        (status,) = world.ec2.describe_instance_status(InstanceIds=[launched])["InstanceStatuses"]
        seen.append(status["SystemStatus"]["Status"])

    assert seen == ["impaired", "ok"]


def test_lists_come_in_pages_and_miss_nothing() -> None:
    world = Ec2World()
    made = [world.launch() for _ in range(12)]
    pages = world.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    shown = [[i["InstanceId"] for r in page["Reservations"] for i in r["Instances"]] for page in pages]

    assert [len(page) for page in shown] == [5, 5, 2]
    assert [each for page in shown for each in page] == made


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instance-id", "ID"),
        ("client-token", "tok"),
        ("instance-lifecycle", "spot"),
        ("instance-state-name", "running"),
        ("instance-type", "g6.*"),
        ("availability-zone", "us-east-1b"),
        ("tag:owner", "m?"),
        ("tag-key", "owner"),
    ],
)
def test_filters_find_the_one_and_not_the_other(name: str, value: str) -> None:
    world = Ec2World()
    one = world.launch(
        ClientToken="tok",
        InstanceMarketOptions={"MarketType": "spot"},
        Placement={"AvailabilityZone": "us-east-1b"},
        TagSpecifications=tags(owner="me"),
    )
    world.wait(30)
    world.launch(InstanceType="t3.micro", ClientToken="other")

    assert world.listed((name, value.replace("ID", one))) == [one]


def test_an_unknown_filter_is_refused() -> None:
    world = Ec2World()
    given = [{"Name": "colour", "Values": ["red"]}]

    assert code_of(world.ec2.describe_instances, Filters=given) == "InvalidParameterValue"


def test_regions_do_not_see_each_other() -> None:
    world = Ec2World()
    launched = world.launch()
    other = client(world.cloud, region="eu-west-1")

    assert other.describe_instances()["Reservations"] == []
    assert code_of(other.terminate_instances, InstanceIds=[launched]) == "InvalidInstanceID.NotFound"
    assert world.cloud.image_id(REGION) != world.cloud.image_id("eu-west-1")


def test_the_same_seed_gives_the_same_ids_and_times_and_another_seed_others() -> None:
    def story(seed: int) -> list[Any]:
        world = Ec2World(seed=seed)
        launched = world.running()
        return [launched, world.show(launched)["PublicIpAddress"]]

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_several_instances_may_be_launched_at_once() -> None:
    world = Ec2World()
    answer = world.ec2.run_instances(**world.request(MinCount=3, MaxCount=3, InstanceType=TYPE))

    assert len(answer["Instances"]) == 3
    assert len(world.listed()) == 3


def test_reads_and_other_accounts_in_the_process_change_no_ids() -> None:
    def story(*, busy: bool) -> list[Any]:
        world = Ec2World()
        if busy:
            other = Ec2World(seed=7)
            other.launch()
            world.ec2.describe_subnets()
            client(world.cloud, region="eu-west-1").describe_subnets()
        made = [world.running() for _ in range(3)]
        world.cloud.remove_by_hand(made[0])
        world.wait(5000)
        made.append(world.running())
        return [(each, world.show(each)["PrivateIpAddress"], world.show(each)["PublicIpAddress"]) for each in made[1:]]

    assert story(busy=False) == story(busy=True)


def test_private_addresses_of_the_gone_are_used_again() -> None:
    world = Ec2World()
    first = world.show(world.launch())["PrivateIpAddress"]
    world.cloud.remove_by_hand(world.listed()[0])
    world.wait(100)

    assert world.show(world.launch())["PrivateIpAddress"] == first


def test_regions_have_networks_of_their_own() -> None:
    world = Ec2World()
    there = client(world.cloud, region="eu-west-1").describe_subnets()["Subnets"]
    here = world.ec2.describe_subnets()["Subnets"]

    assert not {each["SubnetId"] for each in here} & {each["SubnetId"] for each in there}
