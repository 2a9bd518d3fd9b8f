"""What the account refuses by itself: no room, quotas, keys, rates; and that messages may change while codes stay."""

from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from gpulease_sim.aws import Settings, connect

from tests.support.ec2_world import REGION, SPOT, Ec2World, client, code_of, steady


def error_of(call: Any, **params: Any) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as refused:
        call(**params)
    answer = refused.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def test_capacity_is_counted_per_zone_and_type_and_comes_back() -> None:
    world = Ec2World(steady(capacity={"us-east-1a/g6.xlarge": 1, "us-east-1b/*": 1}))
    first = world.running()
    assert error_of(world.ec2.run_instances, **world.request())[:2] == (500, "InsufficientInstanceCapacity")
    other_zone = {"AvailabilityZone": "us-east-1b"}
    world.launch(InstanceType="g5.xlarge")
    world.launch(InstanceType="g5.xlarge", Placement=other_zone)
    assert code_of(world.ec2.run_instances, **world.request(Placement=other_zone)) == "InsufficientInstanceCapacity"
    world.ec2.stop_instances(InstanceIds=[first])
    world.wait(60)

    assert world.launch()


def test_without_a_zone_ec2_picks_one_with_room() -> None:
    world = Ec2World(steady(capacity={"us-east-1/g6.xlarge": 2, **{f"us-east-1{z}/*": 0 for z in "abdef"}}))
    request = world.request()
    del request["Placement"]
    made = world.ec2.run_instances(**request)["Instances"][0]

    assert made["Placement"]["AvailabilityZone"] == "us-east-1c"


def test_a_type_that_a_zone_does_not_have_is_unsupported() -> None:
    world = Ec2World(steady(not_offered=frozenset({"us-east-1a/g6.xlarge"})))

    assert code_of(world.ec2.run_instances, **world.request()) == "Unsupported"
    assert world.launch(Placement={"AvailabilityZone": "us-east-1b"})


def test_a_subnet_stands_for_its_zone() -> None:
    world = Ec2World(steady(capacity={"us-east-1b/*": 0}))
    subnets = {each["AvailabilityZone"]: each["SubnetId"] for each in world.ec2.describe_subnets()["Subnets"]}
    request = world.request(SubnetId=subnets["us-east-1b"])
    del request["Placement"]
    assert code_of(world.ec2.run_instances, **request) == "InsufficientInstanceCapacity"
    request["SubnetId"] = subnets["us-east-1c"]

    assert world.ec2.run_instances(**request)["Instances"][0]["Placement"]["AvailabilityZone"] == "us-east-1c"


def test_vcpu_quotas_count_on_demand_and_spot_apart() -> None:
    world = Ec2World(steady(vcpu_limit=4, spot_vcpu_limit=4))
    made = world.running()
    assert code_of(world.ec2.run_instances, **world.request()) == "VcpuLimitExceeded"
    world.launch(InstanceMarketOptions=SPOT)
    spot = world.request(InstanceMarketOptions=SPOT)
    assert code_of(world.ec2.run_instances, **spot) == "MaxSpotInstanceCountExceeded"
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    other = world.running()

    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "VcpuLimitExceeded"
    assert world.state(other) == "running"


def test_some_launches_may_find_no_room_by_luck_and_the_luck_is_seeded() -> None:
    def story(seed: int) -> list[bool]:
        world = Ec2World(steady(no_capacity_probability=0.5), seed=seed)
        seen = []
        for _ in range(12):
            try:
                world.launch()
                seen.append(True)
            except ClientError:
                seen.append(False)
        return seen

    assert story(1) == story(1)
    assert len(set(story(1))) == 2
    assert story(1) != story(2)


def test_a_key_that_is_not_accepted_is_refused_everywhere() -> None:
    world = Ec2World()
    made = world.running()
    world.cloud.settings = replace(
        world.cloud.settings, access_keys=frozenset({"AKIAOTHER"}), refused_code="ExpiredToken"
    )
    assert code_of(world.ec2.describe_instances) == "ExpiredToken"
    assert code_of(world.ec2.terminate_instances, InstanceIds=[made]) == "ExpiredToken"
    for service, call in (("sts", "get_caller_identity"), ("ssm", "describe_parameters")):
        assert code_of(getattr(client(world.cloud, service), call)) == "ExpiredToken"
    world.cloud.settings = replace(world.cloud.settings, access_keys=None)

    assert world.state(made) == "running"


def test_a_region_that_is_not_opted_in_refuses_the_key() -> None:
    world = Ec2World()

    assert error_of(client(world.cloud, region="ap-east-1").describe_instances)[:2] == (401, "AuthFailure")


def test_c57_launches_above_two_per_second_are_refused_after_the_burst() -> None:
    world = Ec2World(replace(steady(), buckets=Settings().buckets))
    codes = []
    for _ in range(8):
        try:
            world.launch()
            codes.append("ok")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert codes == ["ok"] * 5 + ["RequestLimitExceeded"] * 3
    world.wait(1)
    world.launch()
    world.launch()
    assert error_of(world.ec2.run_instances, **world.request())[:2] == (503, "RequestLimitExceeded")

    assert len(world.ec2.describe_instances()["Reservations"]) == 7


def test_rates_are_counted_per_region_and_action() -> None:
    world = Ec2World(replace(steady(), buckets={"Describe": (1, 0), "": (1, 0)}))
    world.ec2.describe_instances()
    world.ec2.describe_volumes()
    client(world.cloud, region="eu-west-1").describe_instances()

    assert code_of(world.ec2.describe_instances) == "RequestLimitExceeded"


def test_reworded_messages_keep_their_codes() -> None:
    usual, other = Ec2World(), Ec2World(steady(reworded=True))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("terminate_instances", {"InstanceIds": ["i-00000000000000000"]}),
        ("delete_volume", {"VolumeId": "vol-00000000000000000"}),
        ("run_instances", usual.request(ImageId="ami-00000000000000000")),
    ]
    for name, params in calls:
        said = error_of(getattr(usual.ec2, name), **params)
        reworded = error_of(getattr(other.ec2, name), **params)
        assert said[:2] == reworded[:2]
        assert said[2] != reworded[2]


def test_the_real_client_repeats_a_capacity_error_with_a_500_unless_it_is_told_not_to() -> None:
    world = Ec2World(steady(capacity={"*/*": 0}))
    open_client: Any = boto3.client
    quick = Config(retries={"mode": "standard", "total_max_attempts": 2})
    eager = open_client("ec2", region_name=REGION, config=quick)
    connect(eager, world.cloud)

    def launches() -> int:
        return [each.action for each in world.cloud.calls].count("RunInstances")

    code_of(world.ec2.run_instances, **world.request())
    assert launches() == 1
    code_of(eager.run_instances, **world.request())

    assert launches() == 3


def test_who_am_i_and_which_image() -> None:
    world = Ec2World(steady(account_id="444455556666"))
    path = next(iter(world.settings.image_parameters))
    image = client(world.cloud, "ssm").get_parameter(Name=path)["Parameter"]["Value"]
    (shown,) = world.ec2.describe_images(ImageIds=[image])["Images"]

    assert client(world.cloud, "sts").get_caller_identity()["Account"] == "444455556666"
    assert image == world.cloud.image_id(REGION)
    assert (shown["State"], shown["RootDeviceName"], shown["OwnerId"]) == ("available", "/dev/sda1", "898082745236")
    assert code_of(client(world.cloud, "ssm").get_parameter, Name="/nothing/here") == "ParameterNotFound"


def test_malformed_ids_are_told_apart_from_unknown_ones() -> None:
    world = Ec2World()

    assert code_of(world.ec2.describe_instances, InstanceIds=["web-1"]) == "InvalidInstanceID.Malformed"
