"""apache-libcloud's Vultr driver, written by others against the real API, works against the simulator unchanged."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from gpulease_sim.vultr import Fault, VultrCloud
from gpulease_sim.vultr.catalog import PLANS, REGIONS, SYSTEMS
from gpulease_sim.vultr.server import serve
from libcloud.common.vultr import VultrException
from libcloud.compute.drivers.vultr import VultrNodeDriverV2
from libcloud.compute.types import NodeState, StorageVolumeState

from tests.support.vultr_world import GPU_METAL, GPU_VM, START, steady

KEY = "sim-key"
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"
"""Of the right form, and nobody has its other half."""


@dataclass
class Setup:
    """The driver, and the cloud behind it with a clock that tests move."""

    driver: Any
    cloud: VultrCloud
    wait: Callable[[float], None]

    def size(self, plan: str) -> Any:
        return next(size for size in self.driver.list_sizes() if size.id == plan)

    def location(self, region: str) -> Any:
        return next(place for place in self.driver.list_locations() if place.id == region)

    def image(self, os_id: int) -> Any:
        return next(image for image in self.driver.list_images() if image.id == str(os_id))

    def create(self, plan: str, region: str, **extra: Any) -> Any:
        return self.driver.create_node("node-1", self.size(plan), self.location(region), self.image(1743), **extra)

    def node(self, node_id: str) -> Any:
        return next(node for node in self.driver.list_nodes() if node.id == node_id)


@pytest.fixture
def setup() -> Iterator[Setup]:
    now = [START]

    def wait(seconds: float) -> None:
        now[0] += seconds

    cloud = VultrCloud(lambda: now[0], seed=1, settings=steady(api_keys=frozenset({KEY})))
    with serve(cloud) as server:
        origin = urlsplit(server.url)
        open_driver: Any = VultrNodeDriverV2
        driver = open_driver(KEY, secure=False, host=origin.hostname, port=origin.port)
        yield Setup(driver, cloud, wait)


def test_sizes_are_all_plans_of_both_lists_with_their_prices(setup: Setup) -> None:
    sizes = {size.id: size for size in setup.driver.list_sizes()}

    assert set(sizes) == set(PLANS)
    assert {plan_id: size.price for plan_id, size in sizes.items()} == {
        plan.id: float(plan.monthly_usd) for plan in PLANS.values()
    }
    assert {size.id for size in sizes.values() if size.extra["is_bare_metal"]} == {
        plan.id for plan in PLANS.values() if plan.metal
    }


def test_locations_and_images_are_the_whole_catalogue(setup: Setup) -> None:
    assert {place.id for place in setup.driver.list_locations()} == set(REGIONS)
    assert {image.id for image in setup.driver.list_images()} == {str(os_id) for os_id in SYSTEMS}
    assert GPU_VM in setup.driver.ex_list_available_sizes_for_location(setup.location("ord"))
    assert GPU_VM not in setup.driver.ex_list_available_sizes_for_location(setup.location("hnl"))


def test_a_vm_is_created_booted_rebooted_and_destroyed(setup: Setup) -> None:
    node = setup.create(GPU_VM, "ord", ex_tag="owner=me", ex_userdata="#!/bin/sh\necho ü\n")
    assert node.state == NodeState.PENDING

    setup.wait(22)
    assert setup.node(node.id).state == NodeState.STOPPED  # active, but locked and not running yet
    setup.wait(60)
    running = setup.node(node.id)
    assert running.state == NodeState.RUNNING
    assert running.public_ips == [setup.cloud.machine(node.id).address]
    assert running.extra["tag"] == "owner=me"
    assert setup.cloud.book.get(node.id).user_data_bytes == "#!/bin/sh\necho ü\n".encode()

    assert setup.driver.reboot_node(running)
    setup.wait(11)
    assert setup.node(node.id).state == NodeState.STOPPED
    setup.wait(10)
    assert setup.node(node.id).state == NodeState.RUNNING

    assert setup.driver.destroy_node(running)
    setup.wait(11)
    assert setup.driver.list_nodes() == []
    assert setup.cloud.book.billed() == []


def test_a_vm_is_stopped_and_started(setup: Setup) -> None:
    node = setup.create(GPU_VM, "ord")
    setup.wait(100)

    assert setup.driver.stop_node(node)
    setup.wait(11)
    assert setup.driver.ex_get_node(node.id).state == NodeState.STOPPED
    assert setup.driver.start_node(node)
    setup.wait(11)
    assert setup.driver.ex_get_node(node.id).state == NodeState.RUNNING
    assert setup.cloud.book.get(node.id).destroyed is None


def test_a_destroy_is_refused_while_the_vm_is_pending(setup: Setup) -> None:
    node = setup.create(GPU_VM, "ord")

    with pytest.raises(VultrException, match="not currently active") as refusal:
        setup.driver.destroy_node(node)

    assert refusal.value.code == 500


def test_bare_metal_goes_through_the_same_life(setup: Setup) -> None:
    node = setup.create(GPU_METAL, "sea")
    assert node.state == NodeState.PENDING

    setup.wait(1801)
    running = setup.node(node.id)
    assert (running.state, running.public_ips) == (NodeState.RUNNING, [setup.cloud.machine(node.id).address])

    assert setup.driver.reboot_node(running)
    assert setup.driver.destroy_node(running)
    setup.wait(11)
    assert setup.driver.list_nodes() == []


def test_key_pairs_are_imported_and_used(setup: Setup) -> None:
    key = setup.driver.import_key_pair_from_string("laptop", f"{SSH_KEY} me@laptop")
    assert [each.name for each in setup.driver.list_key_pairs()] == ["laptop"]

    node = setup.create(GPU_VM, "ord", ex_ssh_key_ids=[key.extra["id"]])
    assert setup.cloud.machine(node.id).ssh_key_ids == (key.extra["id"],)

    assert setup.driver.delete_key_pair(key)
    assert setup.driver.list_key_pairs() == []


def test_private_networks_are_made_and_removed(setup: Setup) -> None:
    network = setup.driver.ex_create_network("10.64.0.0/20", setup.location("ord"), "lab")
    assert [each.cidr_block for each in setup.driver.ex_list_networks()] == ["10.64.0.0/20"]

    assert setup.driver.ex_destroy_network(network)
    assert setup.driver.ex_list_networks() == []


def test_snapshots_of_a_vm_outlive_it_and_go_on_costing(setup: Setup) -> None:
    node = setup.create(GPU_VM, "ord")
    setup.wait(100)

    snapshot = setup.driver.ex_create_snapshot(node, description="before")
    setup.driver.destroy_node(node)
    setup.wait(4000)

    assert [each.id for each in setup.driver.ex_list_snapshots()] == [snapshot.id]
    assert [each.kind for each in setup.cloud.book.billed()] == ["snapshot"]
    assert setup.driver.ex_delete_snapshot(snapshot)
    assert setup.cloud.book.billed() == []


def test_a_volume_is_created_attached_detached_and_destroyed(setup: Setup) -> None:
    volume = setup.driver.create_volume(50, "cache-1", setup.location("ord"))
    node = setup.create(GPU_VM, "ord")
    assert (volume.name, volume.size, volume.state) == ("cache-1", 50, StorageVolumeState.CREATING)
    setup.wait(100)
    assert setup.driver.ex_get_volume(volume.id).state == StorageVolumeState.AVAILABLE

    assert setup.driver.attach_volume(node, volume)
    setup.wait(15)
    [seen] = setup.driver.list_volumes()
    assert (seen.id, seen.extra["attached_to_instance"], seen.extra["cost"]) == (volume.id, node.id, 5.0)
    assert seen.extra["mount_id"].startswith("ord-")
    with pytest.raises(VultrException):
        setup.driver.destroy_volume(volume)

    assert setup.driver.detach_volume(volume)
    setup.wait(15)
    assert setup.driver.ex_resize_volume(volume, 80)
    [seen] = setup.driver.list_volumes()
    assert (seen.size, seen.extra["attached_to_instance"]) == (80, "")
    assert setup.driver.destroy_volume(volume)
    setup.wait(10)
    assert setup.driver.list_volumes() == []
    assert [each.kind for each in setup.cloud.book.billed()] == ["instance"]


def test_a_volume_outlives_its_node(setup: Setup) -> None:
    volume = setup.driver.create_volume(50, "cache-1", "ord")
    node = setup.create(GPU_VM, "ord")
    setup.wait(100)
    assert setup.driver.attach_volume(node, volume, ex_live=False)
    setup.wait(60)

    assert setup.driver.destroy_node(setup.node(node.id))
    setup.wait(60)

    [seen] = setup.driver.list_volumes()
    assert (seen.id, seen.extra["attached_to_instance"]) == (volume.id, "")
    assert [each.kind for each in setup.cloud.book.billed()] == ["block"]


def test_a_volume_is_refused_by_a_node_that_still_boots_and_by_one_elsewhere(setup: Setup) -> None:
    here, elsewhere = (setup.driver.create_volume(50, "c", region) for region in ("ord", "ewr"))
    node = setup.create(GPU_VM, "ord")
    setup.wait(22)

    with pytest.raises(VultrException, match="Server is currently locked"):
        setup.driver.attach_volume(node, here)
    setup.wait(100)
    with pytest.raises(VultrException, match="same location"):
        setup.driver.attach_volume(node, elsewhere)
    with pytest.raises(VultrException, match="not currently attached"):
        setup.driver.detach_volume(here)


def test_the_driver_reads_every_page(setup: Setup) -> None:
    for number in range(6):
        setup.driver.import_key_pair_from_string(f"key-{number}", f"{SSH_KEY} k")
    for _ in range(502):
        setup.cloud.handle(
            "POST",
            "/ssh-keys",
            headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
            body=json.dumps({"name": "more", "ssh_key": f"{SSH_KEY} k"}).encode(),
        )

    keys = setup.driver.list_key_pairs()

    assert len({key.extra["id"] for key in keys}) == len(keys) == 508


def test_a_scripted_fault_reaches_the_driver_as_the_providers_error(setup: Setup) -> None:
    setup.cloud.faults.add(Fault(method="GET", path="/os", status=503, error="down for a while", times=1))

    with pytest.raises(VultrException, match="down for a while"):
        setup.driver.list_images()

    assert setup.driver.list_images()


def test_a_wrong_key_is_refused(setup: Setup) -> None:
    setup.cloud.settings = steady(api_keys=frozenset({"another"}))

    with pytest.raises(VultrException, match="Invalid API token"):
        setup.driver.list_nodes()
