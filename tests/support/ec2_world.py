"""A simulated AWS account on a clock that tests move, and boto3 clients that end in it without sockets."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from gpulease_sim.aws import AwsCloud, Behaviour, Settings, VolumeBehaviour, connect
from gpulease_sim.aws.settings import changed

START = 1_767_600_000.0
REGION = "us-east-1"
TYPE = "g6.xlarge"
ONE_TRY = Config(retries={"total_max_attempts": 1})

STEADY = Behaviour(
    running_seconds=(20, 20),
    ok_seconds=(120, 120),
    guest_boot_seconds=(30, 30),
    get_lag_seconds=(0, 0),
    list_lag_seconds=(0, 0),
    stopped_seconds=(40, 40),
    terminated_seconds=(30, 30),
    interface_linger_seconds=(0, 0),
)
STEADY_VOLUME = VolumeBehaviour(
    available_seconds=(3, 3),
    get_lag_seconds=(0, 0),
    list_lag_seconds=(0, 0),
    attached_seconds=(5, 5),
    detached_seconds=(8, 8),
    deleted_seconds=(2, 2),
)


def steady(instance: Mapping[str, Any] | None = None, volume: Mapping[str, Any] | None = None, **more: Any) -> Settings:
    """Settings without luck: every delay is a known number; the mappings change single fields."""
    base = Settings(
        instance=changed(STEADY, instance or {}),
        volume=changed(STEADY_VOLUME, volume or {}),
        buckets={},
        spot_relaunch_seconds=(60, 60),
        spot_disabled_seconds=(10, 10),
        spot_restart_seconds=(300, 300),
        cancel_lag_seconds=(15, 15),
    )
    return replace(base, **more)


def client(cloud: AwsCloud, service: str = "ec2", region: str = REGION, **more: Any) -> Any:
    """A boto3 client whose calls end in the cloud."""
    open_client: Any = boto3.client
    made = open_client(service, region_name=region, config=ONE_TRY)
    connect(made, cloud, **more)
    return made


def tags(types: tuple[str, ...] = ("instance", "volume"), **values: str) -> list[dict[str, Any]]:
    """TagSpecifications that give the same tags to all of these."""
    given = [{"Key": key, "Value": value} for key, value in values.items()]
    return [{"ResourceType": each, "Tags": given} for each in types]


SPOT = {"MarketType": "spot"}
PERSISTENT = {
    "MarketType": "spot",
    "SpotOptions": {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"},
}


@dataclass
class Ec2World:
    """The account, its clock and a client."""

    settings: Settings = field(default_factory=steady)
    seed: int = 1

    def __post_init__(self) -> None:
        self.now = START
        self.cloud = AwsCloud(lambda: self.now, self.seed, self.settings)
        self.ec2 = client(self.cloud)

    def wait(self, seconds: float) -> None:
        """Let simulated time pass."""
        self.now += seconds

    def request(self, **change: Any) -> dict[str, Any]:
        """Parameters of a launch."""
        base: dict[str, Any] = {"ImageId": self.cloud.image_id(REGION), "InstanceType": TYPE}
        base |= {"MinCount": 1, "MaxCount": 1, "Placement": {"AvailabilityZone": "us-east-1a"}}
        return {**base, **change}

    def launch(self, **change: Any) -> str:
        """A new instance; its id."""
        return str(self.ec2.run_instances(**self.request(**change))["Instances"][0]["InstanceId"])

    def running(self, **change: Any) -> str:
        """A new instance whose guest has booted."""
        made = self.launch(**change)
        self.wait(60)
        return made

    def show(self, instance_id: str) -> dict[str, Any]:
        """The instance as DescribeInstances shows it."""
        found = self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        return dict(found[0]["Instances"][0])

    def state(self, instance_id: str) -> str:
        """Its state."""
        return str(self.show(instance_id)["State"]["Name"])

    def listed(self, *filters: tuple[str, str]) -> list[str]:
        """Ids that DescribeInstances lists."""
        given = [{"Name": name, "Values": [value]} for name, value in filters]
        pages = self.ec2.get_paginator("describe_instances").paginate(Filters=given)
        return [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]

    def volume(self, zone: str = "us-east-1a", **change: Any) -> str:
        """A new volume; its id."""
        made = self.ec2.create_volume(**{"AvailabilityZone": zone, "Size": 200, "VolumeType": "gp3", **change})
        return str(made["VolumeId"])

    def free_volume(self, zone: str = "us-east-1a", **change: Any) -> str:
        """A new volume that is available."""
        made = self.volume(zone, **change)
        self.wait(5)
        return made

    def show_volume(self, volume_id: str) -> dict[str, Any]:
        """The volume as DescribeVolumes shows it."""
        return dict(self.ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0])

    def attach(self, volume_id: str, instance_id: str, device: str = "/dev/sdf") -> str:
        """Attach; the attachment's state in the answer."""
        answer = self.ec2.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device=device)
        return str(answer["State"])

    def spot_request(self, instance_id: str = "") -> dict[str, Any]:
        """The spot request of an instance, or the only one."""
        given = [{"Name": "instance-id", "Values": [instance_id]}] if instance_id else []
        (found,) = self.ec2.describe_spot_instance_requests(Filters=given)["SpotInstanceRequests"]
        return dict(found)


def code_of(call: Any, **params: Any) -> str:
    """The error code with which a call is refused."""
    with pytest.raises(ClientError) as refused:
        call(**params)
    return str(refused.value.response["Error"]["Code"])
