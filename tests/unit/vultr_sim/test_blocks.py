"""Block storage of the simulated account: late in every direction, and billed whether anybody uses it or not."""

from decimal import Decimal
from typing import Any

import pytest
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.state_file import StateFile

from tests.support.block_world import active, attach, attached, block_world, create, detach, holder, shown
from tests.support.vultr_world import error_of


def test_a_block_is_pending_for_a_while_and_says_what_it_is() -> None:
    world = block_world()

    made = create(world)

    assert (made["status"], made["size_gb"], made["label"], made["region"]) == ("pending", 100, "a:b=c", "ord")
    assert made["mount_id"] == f"ord-{made['id'].replace('-', '')[:14]}"
    assert (made["cost"], made["block_type"], made["attached_to_instance"]) == (10.0, "high_perf", "")
    world.wait(10)
    assert shown(world, made["id"])["status"] == "active"
    assert [each["id"] for each in world.get("/blocks")["blocks"]] == [made["id"]]


def test_the_sort_of_a_block_depends_on_what_the_region_sells() -> None:
    world = block_world()

    assert create(world, region="dfw")["block_type"] == "storage_opt"
    assert (
        error_of(world.call("POST", "/blocks", {"region": "dfw", "size_gb": 50, "block_type": "high_perf"}))[0] == 400
    )
    assert error_of(world.call("POST", "/blocks", {"region": "syd", "size_gb": 50, "block_type": "storage_opt"})) == (
        400,
        "Block storage is not available in this location.",
    )


@pytest.mark.parametrize(
    "body",
    [
        {"region": "ord", "size_gb": 9},
        {"region": "ord", "size_gb": 10_001},
        {"region": "ord", "size_gb": 39, "block_type": "storage_opt"},
        {"region": "ord", "size_gb": 40_001, "block_type": "storage_opt"},
        {"region": "ord"},
        {"region": "xxx", "size_gb": 50},
        {"region": "ord", "size_gb": 50, "block_type": "tape"},
        {"region": "ord", "size_gb": 50, "snapshot_id": "none"},
    ],
)
def test_what_is_not_sold_is_refused_and_costs_nothing(body: dict[str, Any]) -> None:
    world = block_world()

    assert error_of(world.call("POST", "/blocks", body))[0] in (400, 404)
    assert not world.cloud.book.objects()


def test_a_repeated_create_makes_a_second_block() -> None:
    world = block_world()

    assert create(world)["id"] != create(world)["id"]


def test_a_block_costs_attached_or_not_by_the_started_hour_and_never_more_than_a_month() -> None:
    world = block_world()
    block_id, machine_id = attached(world)
    detach(world, block_id)
    world.call("DELETE", f"/instances/{machine_id}")

    assert world.cloud.book.get(block_id).cost_usd == Decimal(10) / 730
    world.wait(3600)
    assert world.cloud.book.get(block_id).cost_usd == Decimal(10) / 730 * 2
    world.wait(40 * 24 * 3600)
    assert world.cloud.book.get(block_id).cost_usd <= 20
    world.call("DELETE", f"/blocks/{block_id}")
    world.wait(2)
    cost = world.cloud.book.get(block_id).cost_usd
    world.wait(99 * 3600)
    assert world.cloud.book.get(block_id).cost_usd == cost
    assert not world.cloud.book.billed(free=False)


def test_a_block_grows_and_never_shrinks() -> None:
    world = block_world()
    block_id = active(world)
    path = f"/blocks/{block_id}"

    assert error_of(world.call("PATCH", path, {"size_gb": 100})) == (400, "Nothing to change")
    assert error_of(world.call("PATCH", path, {"size_gb": 50}))[0] == 400
    assert world.call("PATCH", path, {"size_gb": 200, "label": "new"}).status == 204
    assert (shown(world, block_id)["size_gb"], shown(world, block_id)["label"]) == (200, "new")
    assert world.cloud.book.get(block_id).hourly_usd == Decimal(20) / 730
    assert world.cloud.book.get(block_id).label == "new"


def test_attach_and_detach_show_late() -> None:
    world = block_world()
    block_id, machine_id = active(world), world.running_vm(label="box")

    assert attach(world, block_id, machine_id).status == 204
    world.wait(4)
    assert holder(world, block_id) == ""
    world.wait(1)
    assert holder(world, block_id) == machine_id
    assert shown(world, block_id)["attached_to_instance_label"] == "box"
    assert world.state(machine_id) == ("active", "running", "ok")
    assert detach(world, block_id).status == 204
    assert detach(world, block_id).status == 204
    world.wait(4)
    assert holder(world, block_id) == machine_id
    world.wait(1)
    assert holder(world, block_id) == ""


def test_an_attach_that_is_not_live_restarts_the_machine() -> None:
    world = block_world()
    block_id, machine_id = active(world), world.running_vm()

    assert attach(world, block_id, machine_id, live=False).status == 204
    world.wait(11)
    assert world.state(machine_id) == ("active", "stopped", "ok")
    world.wait(10)
    assert world.state(machine_id) == ("active", "running", "ok")


def test_a_block_has_one_machine_at_a_time() -> None:
    world = block_world()
    block_id, machine_id = attached(world)
    other = world.running_vm()

    assert error_of(attach(world, block_id, other)) == (400, "Block storage is already attached to another server")
    assert error_of(attach(world, block_id, machine_id)) == (400, "Block storage is already attached to this server")


def test_a_machine_that_starts_is_locked_or_goes_takes_no_block() -> None:
    world = block_world()
    block_id, machine_id = active(world), str(world.create_vm()["id"])

    assert error_of(attach(world, block_id, machine_id)) == (500, "Server is not currently active")
    world.wait(22)
    assert error_of(attach(world, block_id, machine_id)) == (500, "Server is currently locked")
    world.wait(100)
    world.call("DELETE", f"/instances/{machine_id}")
    assert error_of(attach(world, block_id, machine_id)) == (500, "Server is pending destruction")
    world.wait(20)
    assert error_of(attach(world, block_id, machine_id))[0] == 404


def test_a_pending_block_another_region_and_bare_metal_are_refused() -> None:
    world = block_world()
    machine_id, metal_id = world.running_vm(), str(world.create_metal()["id"])
    elsewhere, here = active(world, region="ewr"), str(create(world)["id"])

    assert error_of(attach(world, here, machine_id))[0] == 400
    assert error_of(attach(world, elsewhere, machine_id))[0] == 400
    assert error_of(attach(world, here, metal_id))[0] == 400
    assert error_of(attach(world, "nothing", machine_id)) == (400, "Invalid block storage ID")
    assert error_of(world.call("GET", "/blocks/nothing")) == (400, "Invalid block storage ID")


def test_a_machine_takes_sixteen_blocks() -> None:
    world = block_world()
    machine_id = world.running_vm()

    for _ in range(16):
        assert attach(world, active(world, size_gb=10), machine_id).status == 204

    assert error_of(attach(world, active(world, size_gb=10), machine_id))[0] == 400


def test_detaching_what_is_free_is_refused_with_its_text() -> None:
    world = block_world()

    assert error_of(detach(world, active(world))) == (
        400,
        "Block storage volume is not currently attached to a server",
    )


def test_a_block_outlives_its_machine_and_is_free_some_seconds_later() -> None:
    world = block_world()
    block_id, machine_id = attached(world)

    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(29)
    assert world.call("GET", f"/instances/{machine_id}").status == 404
    assert holder(world, block_id) == machine_id
    world.wait(1)
    assert holder(world, block_id) == ""


def test_a_delete_is_refused_while_attached_and_takes_seconds_when_free() -> None:
    world = block_world()
    block_id, _ = attached(world)

    assert error_of(world.call("DELETE", f"/blocks/{block_id}"))[0] == 400
    detach(world, block_id)
    world.wait(5)
    assert world.call("DELETE", f"/blocks/{block_id}").status == 204
    assert shown(world, block_id)["id"] == block_id
    world.wait(2)
    assert world.call("GET", f"/blocks/{block_id}").status == 400
    assert world.get("/blocks")["blocks"] == []


def test_snapshots_of_a_block_outlive_it_and_go_on_costing() -> None:
    world = block_world()
    block_id = active(world)
    made = world.call("POST", "/blocks/snapshots", {"block_id": block_id, "description": "d"}).json()["snapshot"]

    world.call("DELETE", f"/blocks/{block_id}")
    world.wait(600)

    [seen] = world.get("/blocks/snapshots")["snapshots"]
    assert (seen["id"], seen["state"], seen["block_id"], len(seen["added_at"])) == (
        made["id"],
        "COMPLETE",
        block_id,
        19,
    )
    assert [each.kind for each in world.cloud.book.billed()] == ["block_snapshot"]
    assert create(world, snapshot_id=made["id"])["snapshot_id"] == made["id"]
    assert (
        error_of(world.call("POST", "/blocks", {"region": "ord", "size_gb": 99, "snapshot_id": made["id"]}))[0] == 400
    )
    path = f"/blocks/snapshots/{made['id']}"
    assert world.call("PUT", path, {"description": "e"}).status == 204
    assert world.get(path)["snapshot"]["description"] == "e"
    assert world.call("DELETE", path).status == 204
    assert world.call("GET", path).status == 400


def test_a_block_survives_the_end_of_the_simulators_process(tmp_path: Any) -> None:
    world = block_world()
    world.cloud = VultrCloud(lambda: world.now, 1, world.settings, StateFile(tmp_path / "state.db"))
    block_id, machine_id = attached(world)
    create(world)
    detach(world, block_id)

    before = world.get("/blocks"), world.cloud.book.objects()
    world.cloud = VultrCloud(lambda: world.now, 1, None, StateFile(tmp_path / "state.db"))

    assert (world.get("/blocks"), world.cloud.book.objects()) == before
    assert holder(world, block_id) == machine_id
    world.wait(5)
    assert holder(world, block_id) == ""


def test_removed_by_hand_a_block_is_gone_at_once() -> None:
    world = block_world()
    block_id, _ = attached(world)

    world.cloud.remove_by_hand(block_id)

    assert world.call("GET", f"/blocks/{block_id}").status == 400
    assert world.cloud.book.get(block_id).destroyed == world.now
