"""Where nothing is set to be slow, lost or refused, the account answers as moto does: same calls, same answers.

moto is asked twice: through its own interception (`mock_aws`), and for what stands behind the account itself.
"""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from gpulease_sim.aws import operations, plain
from gpulease_sim.aws.wire import Call, Params
from moto import mock_aws

from tests.support.ec2_world import REGION, Ec2World, tags

IDS = (
    "i-",
    "vol-",
    "eni-",
    "sg-",
    "subnet-",
    "vpc-",
    "r-",
    "ami-",
    "snap-",
    "eipalloc-",
    "rtb-",
    "igw-",
    "acl-",
    "dopt-",
)


@pytest.fixture(scope="module")
def moto_ec2() -> Iterator[Any]:
    """Made once: it takes moto seconds."""
    with mock_aws():
        open_client: Any = boto3.client
        yield open_client("ec2", region_name=REGION)


def shape(value: Any) -> Any:
    """The answer without what must differ: ids, addresses, times."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items() if key != "ResponseMetadata"}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__ if isinstance(value, str) and value.startswith(IDS) else value


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("describe_regions", {}),
        ("describe_availability_zones", {}),
        ("describe_instance_types", {"InstanceTypes": ["g6.xlarge", "p5.48xlarge"]}),
        ("describe_key_pairs", {}),
        ("describe_addresses", {}),
        ("describe_network_interfaces", {}),
        ("describe_instances", {}),
        ("describe_volumes", {}),
        ("describe_instance_status", {}),
        ("describe_spot_instance_requests", {}),
        ("create_security_group", {"GroupName": "g", "Description": "d"}),
        ("create_key_pair", {"KeyName": "k", "DryRun": False}),
    ],
)
def test_calls_on_an_empty_account_are_answered_alike(moto_ec2: Any, name: str, params: dict[str, Any]) -> None:
    ours = getattr(Ec2World(plain()).ec2, name)(**params)
    theirs = getattr(moto_ec2, name)(**params)
    different = {"KeyFingerprint", "KeyMaterial", "KeyPairId", "SecurityGroupArn"}

    assert shape({k: v for k, v in ours.items() if k not in different}) == shape(
        {k: v for k, v in theirs.items() if k not in different}
    )


def test_default_subnets_are_the_same(moto_ec2: Any) -> None:
    def zones(ec2: Any) -> set[tuple[str, str, bool]]:
        subnets = ec2.describe_subnets()["Subnets"]
        return {(each["AvailabilityZone"], each["CidrBlock"], each["DefaultForAz"]) for each in subnets}

    assert zones(Ec2World(plain()).ec2) == zones(moto_ec2)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("terminate_instances", {"InstanceIds": ["i-0123456789abcdef0"]}),
        ("start_instances", {"InstanceIds": ["i-0123456789abcdef0"]}),
        ("describe_instances", {"InstanceIds": ["i-0123456789abcdef0"]}),
        ("delete_volume", {"VolumeId": "vol-0123456789abcdef0"}),
        ("delete_security_group", {"GroupId": "sg-0123456789abcdef0"}),
        ("delete_network_interface", {"NetworkInterfaceId": "eni-0123456789abcdef0"}),
        ("release_address", {"AllocationId": "eipalloc-0123456789abcdef0"}),
        ("describe_subnets", {"SubnetIds": ["subnet-0123456789abcdef0"]}),
    ],
)
def test_unknown_ids_are_refused_alike(moto_ec2: Any, name: str, params: dict[str, Any]) -> None:
    codes = []
    for ec2 in (Ec2World(plain()).ec2, moto_ec2):
        with pytest.raises(ec2.exceptions.ClientError) as refused:
            getattr(ec2, name)(**params)
        answer = refused.value.response
        codes.append((answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]))

    assert codes[0] == codes[1]


class Both:
    """One account, asked through our quick answers and through moto's own, for the same objects."""

    def __init__(self) -> None:
        self.world = Ec2World(plain())
        self.ours = self.world.ec2

    def asked(self, action: str, name: str, **params: Any) -> tuple[Any, Any]:
        """Our parsed answer and moto's."""
        self.world.cloud.advance()
        ours = getattr(self.ours, name)(**params)
        kept = operations.OWN.pop(action)
        try:
            theirs = getattr(self.ours, name)(**params)
        finally:
            operations.OWN[action] = kept
        return ours, theirs


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Fields that both show and that are not the same; fields of moto that we leave out."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, value in theirs.items():
            if key not in ours:
                yield f"{path}.{key} missing"
            else:
                yield from differences(ours[key], value, f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} != {theirs!r}"


MOTO_DIFFERS = (
    "AttachTime",  # moto reads the computer's clock
    "Attachment.DeleteOnTermination",  # moto does not take the primary interface away with its instance
    "SriovNetSupport",
    "StateReason",  # moto shows an empty one
    "ProductCodes",
    "HibernationOptions",
    "Association.PublicDnsName",
    "NetworkInterfaces[0].PrivateDnsName",
    "CreateTime",
    "ResponseMetadata",
)


def test_instances_are_shown_as_moto_shows_them() -> None:
    both = Both()
    made = both.world.launch(TagSpecifications=tags(a="b"), ClientToken="t", KeyName="k", EbsOptimized=True)
    both.world.wait(1)
    ours, theirs = both.asked("DescribeInstances", "describe_instances", InstanceIds=[made])
    found = [each for each in differences(ours, theirs) if not any(known in each for known in MOTO_DIFFERS)]

    assert found == []
    assert ours["Reservations"][0]["Instances"][0]["PublicIpAddress"]


def test_volumes_are_shown_as_moto_shows_them() -> None:
    both = Both()
    machine, volume = both.world.launch(), both.world.volume(TagSpecifications=tags(("volume",), a="b"))
    both.world.wait(1)
    both.world.attach(volume, machine)
    both.world.wait(1)
    ours, theirs = both.asked("DescribeVolumes", "describe_volumes", VolumeIds=[volume])
    found = [each for each in differences(ours, theirs) if not any(known in each for known in MOTO_DIFFERS)]

    assert found == []


def test_status_is_shown_as_moto_shows_it() -> None:
    both = Both()
    made = both.world.launch()
    both.world.wait(1)
    ours, theirs = both.asked("DescribeInstanceStatus", "describe_instance_status", InstanceIds=[made])

    assert list(differences(ours["InstanceStatuses"], theirs["InstanceStatuses"])) == []


def test_motos_objects_follow_ours_through_a_whole_life() -> None:
    both = Both()
    made = both.world.launch()
    states = []
    for step in ("", "stop_instances", "start_instances", "terminate_instances"):
        if step:
            getattr(both.ours, step)(InstanceIds=[made])
        both.world.wait(1)
        ours, theirs = both.asked("DescribeInstances", "describe_instances")
        states.append([_state(answer) for answer in (ours, theirs)])

    assert states == [[state, state] for state in ("running", "stopped", "running", "terminated")]


def _state(answer: Any) -> str:
    return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])


def test_parameters_are_read_as_botocore_writes_them() -> None:
    given = {"Filter.1.Name": "a", "Filter.1.Value.1": "x", "Filter.1.Value.2": "y", "Filter.2.Name": "b"}
    call = Call("ec2", REGION, "X", Params(given), b"", {}, 0)

    assert [(each["Name"], each.listed("Value")) for each in call.params.groups("Filter")] == [
        ("a", ["x", "y"]),
        ("b", []),
    ]
