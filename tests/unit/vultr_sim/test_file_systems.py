"""Shared file systems of the simulated account: unwrapped objects, statuses of their own, VMs only."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.state_file import StateFile

from tests.support.vultr_world import VultrWorld, error_of, steady


def create(world: VultrWorld, **body: Any) -> dict[str, Any]:
    wanted = {"region": "ord", "label": "data", "storage_size": {"gb": 100}, "tags": ["k=v"], **body}
    response = world.call("POST", "/vfs", wanted)
    assert response.status == 201, response
    vfs: dict[str, Any] = response.json()
    return vfs


def active(world: VultrWorld, **body: Any) -> str:
    vfs_id = str(create(world, **body)["id"])
    world.wait(30)
    return vfs_id


def attach(world: VultrWorld, vfs_id: str, machine_id: str) -> Any:
    return world.call("PUT", f"/vfs/{vfs_id}/attachments/{machine_id}")


def test_a_file_system_is_made_read_and_listed_without_a_wrapper() -> None:
    world = VultrWorld()

    made = create(world)

    assert (made["status"], made["disk_type"], made["tags"]) == ("pending", "nvme", ["k=v"])
    assert made["storage_size"] == {"gb": 100, "bytes": 100 * 1024**3}
    world.wait(30)
    assert world.get(f"/vfs/{made['id']}")["status"] == "active"
    listed = world.get("/vfs")
    assert [each["id"] for each in listed["vfs"]] == [made["id"]]
    assert listed["meta"]["total"] == 1


def test_regions_tell_the_smallest_size_and_the_price() -> None:
    regions = {each["id"]: each for each in VultrWorld().get("/vfs/regions")["regions"]}

    assert regions["ord"]["min_size_gb"] == 10
    assert regions["ord"]["price_per_gb"] == 0.1
    assert "hnl" not in regions


@pytest.mark.parametrize(
    "body",
    [
        {"region": "hnl"},
        {"region": "nowhere"},
        {"storage_size": {"gb": 5}},
        {"storage_size": 100},
        {"label": ""},
        {"disk_type": "tape"},
    ],
)
def test_what_is_not_sold_is_422_and_costs_nothing(body: dict[str, Any]) -> None:
    world = VultrWorld()
    wanted = {"region": "ord", "label": "data", "storage_size": {"gb": 100}, **body}

    assert error_of(world.call("POST", "/vfs", wanted))[0] == 422
    assert not world.cloud.book.objects()


def test_many_machines_mount_one_file_system_and_each_has_a_tag_of_its_own() -> None:
    world = VultrWorld()
    vfs_id, first, second = active(world), world.running_vm(label="one"), world.running_vm()

    answers = [attach(world, vfs_id, each) for each in (first, second)]

    assert [each.status for each in answers] == [201, 201]
    tags = [each.json()["mount_tag"] for each in answers]
    assert all(isinstance(tag, int) for tag in tags) and tags[0] != tags[1]
    assert answers[0].json() == {
        "vfs_id": vfs_id,
        "target_id": first,
        "target_label": "one",
        "mount_tag": tags[0],
        "state": "attached",
    }
    path = f"/vfs/{vfs_id}/attachments"
    assert world.get(f"{path}/{second}")["mount_tag"] == tags[1]
    assert [each["target_id"] for each in world.get(path)["attachments"]] == [first, second]
    assert error_of(attach(world, vfs_id, first))[0] == 409
    assert world.call("DELETE", f"{path}/{first}").status == 204
    assert error_of(world.call("DELETE", f"{path}/{first}")) == (404, "Attachment Not Found")


def test_bare_metal_other_regions_and_what_is_not_ready_mount_nothing() -> None:
    world = VultrWorld()
    pending = str(create(world)["id"])
    world_vm, metal_id = world.running_vm(), str(world.create_metal()["id"])
    vfs_id, elsewhere = active(world), active(world, region="ewr")

    assert error_of(attach(world, vfs_id, metal_id))[0] == 422
    assert error_of(attach(world, elsewhere, world_vm))[0] == 422
    assert error_of(attach(world, vfs_id, "nobody"))[0] == 404
    assert error_of(attach(world, "nothing", world_vm)) == (404, "Subscription ID Not Found.")
    assert error_of(attach(world, vfs_id, str(world.create_vm()["id"])))[0] == 409
    assert attach(world, pending, world_vm).status == 201


def test_a_delete_is_refused_while_a_machine_has_it_and_a_second_one_says_so() -> None:
    world = VultrWorld()
    vfs_id, machine_id = active(world), world.running_vm()
    attach(world, vfs_id, machine_id)

    assert error_of(world.call("DELETE", f"/vfs/{vfs_id}")) == (
        409,
        "Can not delete this subscription until it is detatched from all machines",
    )
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10)
    assert world.call("DELETE", f"/vfs/{vfs_id}").status == 204
    assert error_of(world.call("DELETE", f"/vfs/{vfs_id}")) == (409, "Subscription Already Closed")
    assert error_of(world.call("GET", f"/vfs/{vfs_id}")) == (404, "Subscription ID Not Found.")
    assert world.get("/vfs")["vfs"] == []
    assert world.cloud.book.get(vfs_id).destroyed == world.now


def test_it_costs_its_size_whether_anybody_mounts_it_or_not_and_only_grows() -> None:
    world = VultrWorld()
    vfs_id = active(world)

    assert world.cloud.book.get(vfs_id).hourly_usd == Decimal(10) / 730
    assert world.cloud.book.get(vfs_id).tags == ("k=v",)
    assert error_of(world.call("PUT", f"/vfs/{vfs_id}", {"storage_size": {"gb": 50}}))[0] == 422
    grown = world.call("PUT", f"/vfs/{vfs_id}", {"storage_size": {"gb": 200}, "label": "more"})
    assert (grown.status, grown.json()["label"], grown.json()["billing"]["monthly"]) == (200, "more", 20.0)
    assert world.cloud.book.get(vfs_id).hourly_usd == Decimal(20) / 730


def test_it_survives_the_end_of_the_simulators_process(tmp_path: Path) -> None:
    world = VultrWorld(steady())
    world.cloud = VultrCloud(lambda: world.now, 1, world.settings, StateFile(tmp_path / "state.db"))
    vfs_id, machine_id = active(world), world.running_vm()
    attach(world, vfs_id, machine_id)

    before = world.get("/vfs"), world.get(f"/vfs/{vfs_id}/attachments"), world.cloud.book.objects()
    world.cloud = VultrCloud(lambda: world.now, 1, None, StateFile(tmp_path / "state.db"))

    assert (world.get("/vfs"), world.get(f"/vfs/{vfs_id}/attachments"), world.cloud.book.objects()) == before
