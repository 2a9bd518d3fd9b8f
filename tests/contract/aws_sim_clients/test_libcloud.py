"""apache-libcloud's EC2 driver, written by others against the real API, works against the simulator unchanged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from gpulease_sim.aws import AwsCloud, Fault
from gpulease_sim.aws.server import serve
from libcloud.common.exceptions import BaseHTTPError
from libcloud.compute.drivers.ec2 import EC2NodeDriver
from libcloud.compute.types import NodeState, StorageVolumeState

from tests.support.ec2_world import REGION, START, steady


@dataclass
class Setup:
    """The driver, and the cloud behind it with a clock that tests move."""

    driver: Any
    cloud: AwsCloud
    wait: Callable[[float], None]

    def create(self, **extra: Any) -> Any:
        size = next(each for each in self.driver.list_sizes() if each.id == "g5.xlarge")
        image = self.driver.get_image(self.cloud.image_id(REGION))
        zone = next(each for each in self.driver.list_locations() if each.name == "us-east-1a")
        return self.driver.create_node(name="node-1", size=size, image=image, location=zone, **extra)

    def node(self, node_id: str) -> Any:
        return next(node for node in self.driver.list_nodes() if node.id == node_id)

    def volume(self, volume_id: str) -> Any:
        return next(each for each in self.driver.list_volumes() if each.id == volume_id)


@pytest.fixture
def setup() -> Iterator[Setup]:
    now = [START]

    def wait(seconds: float) -> None:
        now[0] += seconds

    cloud = AwsCloud(lambda: now[0], seed=1, settings=steady())
    with serve(cloud) as server:
        origin = urlsplit(server.url)
        open_driver: Any = EC2NodeDriver
        driver = open_driver(
            "AKIASIM", "any", region=REGION, secure=False, host=origin.hostname, port=origin.port, signature_version="4"
        )
        yield Setup(driver, cloud, wait)


def test_a_machine_lives_its_life(setup: Setup) -> None:
    created = setup.create(ex_clienttoken="t", ex_userdata="#!/bin/sh\n")
    assert setup.node(created.id).state == NodeState.PENDING
    setup.wait(20)
    running = setup.node(created.id)
    assert running.state == NodeState.RUNNING
    assert running.public_ips and running.name == "node-1"
    assert setup.driver.ex_stop_node(running)
    assert setup.node(created.id).extra["status"] == "stopping"
    setup.wait(40)
    assert setup.node(created.id).state == NodeState.STOPPED
    assert setup.node(created.id).public_ips == []
    assert setup.driver.ex_start_node(running)
    setup.wait(20)
    assert setup.node(created.id).public_ips != running.public_ips
    assert setup.driver.destroy_node(running)
    setup.wait(30)

    assert setup.node(created.id).state == NodeState.TERMINATED
    assert setup.cloud.book.billed() == []


def test_a_token_makes_one_machine(setup: Setup) -> None:
    assert setup.create(ex_clienttoken="t").id == setup.create(ex_clienttoken="t").id


def test_a_volume_lives_its_life(setup: Setup) -> None:
    node = setup.create()
    zone = next(each for each in setup.driver.list_locations() if each.name == "us-east-1a")
    made = setup.driver.create_volume(size=10, name="cache", location=zone)
    assert setup.volume(made.id).state == StorageVolumeState.CREATING
    setup.wait(20)
    assert setup.volume(made.id).state == StorageVolumeState.AVAILABLE
    assert setup.driver.attach_volume(node, made, "/dev/sdf")
    setup.wait(5)
    assert setup.volume(made.id).state == StorageVolumeState.INUSE
    assert setup.driver.detach_volume(made)
    setup.wait(10)
    assert setup.driver.destroy_volume(made)
    setup.wait(5)

    assert made.id not in [each.id for each in setup.driver.list_volumes()]


def test_refusals_arrive_as_the_drivers_errors(setup: Setup) -> None:
    setup.cloud.faults.add(Fault(action="RunInstances", code="InsufficientInstanceCapacity", times=1))
    with pytest.raises(BaseHTTPError, match="InsufficientInstanceCapacity"):
        setup.create()

    assert setup.driver.list_nodes() == []


def test_tags_can_be_written_and_read(setup: Setup) -> None:
    node = setup.create(ex_metadata={"owner": "me"})
    setup.driver.ex_create_tags(node, {"more": "x"})

    assert setup.node(node.id).extra["tags"] == {"Name": "node-1", "owner": "me", "more": "x"}
