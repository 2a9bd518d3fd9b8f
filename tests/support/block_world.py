"""A simulated Vultr whose block storage leaves nothing to chance, and the calls that its tests make all the time."""

from dataclasses import replace
from typing import Any

from gpulease_sim.vultr import BlockBehaviour

from tests.support.vultr_world import VultrWorld, steady

STEADY_BLOCK = BlockBehaviour(
    active_seconds=(10, 10),
    list_lag_seconds=(0, 0),
    attach_seconds=(5, 5),
    detach_seconds=(5, 5),
    auto_detach_seconds=(20, 20),
    delete_seconds=(2, 2),
)


def block_world(**behaviour: Any) -> VultrWorld:
    return VultrWorld(steady(block=replace(STEADY_BLOCK, **behaviour)))


def create(world: VultrWorld, **body: Any) -> dict[str, Any]:
    response = world.call("POST", "/blocks", {"region": "ord", "size_gb": 100, "label": "a:b=c", **body})
    assert response.status == 202, response
    block: dict[str, Any] = response.json()["block"]
    return block


def active(world: VultrWorld, **body: Any) -> str:
    block_id = str(create(world, **body)["id"])
    world.wait(10)
    return block_id


def shown(world: VultrWorld, block_id: str) -> dict[str, Any]:
    block: dict[str, Any] = world.get(f"/blocks/{block_id}")["block"]
    return block


def holder(world: VultrWorld, block_id: str) -> str:
    return str(shown(world, block_id)["attached_to_instance"])


def attach(world: VultrWorld, block_id: str, machine_id: str, live: bool = True) -> Any:
    return world.call("POST", f"/blocks/{block_id}/attach", {"instance_id": machine_id, "live": live})


def detach(world: VultrWorld, block_id: str) -> Any:
    return world.call("POST", f"/blocks/{block_id}/detach", {"live": True})


def attached(world: VultrWorld, **machine: Any) -> tuple[str, str]:
    block_id, machine_id = active(world), world.running_vm(**machine)
    assert attach(world, block_id, machine_id).status == 204
    world.wait(5)
    return block_id, machine_id
