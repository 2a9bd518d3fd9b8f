"""SSH keys, startup scripts, addresses and snapshots of the simulated account."""

import base64
from decimal import Decimal

from tests.support.vultr_world import VultrWorld, error_of

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me"


def test_ssh_key_names_are_cut_and_equal_keys_are_accepted() -> None:
    world = VultrWorld()
    body = {"name": "n" * 200, "ssh_key": KEY}

    first, second = (world.call("POST", "/ssh-keys", body).json()["ssh_key"] for _ in range(2))

    assert first["id"] != second["id"]
    assert first["name"] == "n" * 128
    assert world.call("PATCH", f"/ssh-keys/{first['id']}", {"name": "laptop"}).status == 204
    assert world.get(f"/ssh-keys/{first['id']}")["ssh_key"] == {**first, "name": "laptop"}
    assert world.call("DELETE", f"/ssh-keys/{first['id']}").status == 204
    assert [each["id"] for each in world.get("/ssh-keys")["ssh_keys"]] == [second["id"]]


def test_startup_scripts_must_be_base64() -> None:
    world = VultrWorld()
    script = base64.b64encode(b"#!/bin/sh\n").decode()

    refusal = error_of(world.call("POST", "/startup-scripts", {"name": "s", "script": "#!/bin/sh"}))
    created = world.call("POST", "/startup-scripts", {"name": "s", "script": script}).json()["startup_script"]

    assert refusal == (400, "Script must be base64 encoded")
    path = f"/startup-scripts/{created['id']}"
    assert world.get(path)["startup_script"]["script"] == script
    assert world.call("PATCH", path, {"name": "t"}).status == 204
    assert [each["name"] for each in world.get("/startup-scripts")["startup_scripts"]] == ["t"]
    assert world.create_vm(script_id=created["id"])
    assert world.call("DELETE", path).status == 204
    assert error_of(world.call("GET", path))[0] == 404


def test_a_script_of_more_than_64_kilobytes_is_refused() -> None:
    script = base64.b64encode(b"x" * (64 * 1024 + 1)).decode()

    assert VultrWorld().call("POST", "/startup-scripts", {"name": "s", "script": script}).status == 400


def test_a_reserved_address_costs_while_it_exists_and_is_attached_later() -> None:
    world = VultrWorld()
    created = world.call("POST", "/reserved-ips", {"region": "ord", "ip_type": "v4"}).json()["reserved_ip"]
    path, machine_id = f"/reserved-ips/{created['id']}", world.running_vm()

    assert world.call("POST", f"{path}/attach", {"instance_id": machine_id}).status == 204
    assert world.get(path)["reserved_ip"]["instance_id"] == machine_id
    assert error_of(world.call("POST", f"{path}/attach", {"instance_id": machine_id}))[0] == 400
    assert world.call("POST", f"{path}/detach").status == 204
    assert world.get("/reserved-ips")["reserved_ips"][0]["instance_id"] == ""
    world.wait(672 * 3600)
    assert world.cloud.book.get(created["id"]).cost_usd <= Decimal("6.01")
    assert world.call("DELETE", path).status == 204
    assert world.cloud.book.get(created["id"]).destroyed is not None
    assert world.call("POST", "/reserved-ips", {"region": "ord", "ip_type": "v5"}).status == 400
    assert world.call("POST", "/reserved-ips", {"region": "ord", "ip_type": "v6"}).status == 201


def test_a_snapshot_is_pending_then_complete_and_boots_machines() -> None:
    world = VultrWorld()
    machine_id = world.running_vm()

    created = world.call("POST", "/snapshots", {"instance_id": machine_id, "description": "d"}).json()["snapshot"]

    path = f"/snapshots/{created['id']}"
    assert (created["status"], created["size"]) == ("pending", 0)
    world.wait(1800)
    assert world.get(path)["snapshot"]["status"] == "complete"
    assert world.create_vm(os_id=None, snapshot_id=created["id"])["snapshot_id"] == created["id"]
    assert world.call("PUT", path, {"description": "e"}).status == 204
    assert world.get("/snapshots")["snapshots"][0]["description"] == "e"
    assert world.call("DELETE", path).status == 204
    assert [each.kind for each in world.cloud.book.billed()] == ["instance", "instance"]


def test_a_snapshot_of_a_machine_that_is_busy_is_refused() -> None:
    world = VultrWorld()
    machine_id = world.create_vm()["id"]

    assert world.call("POST", "/snapshots", {"instance_id": machine_id}).status == 500
    world.wait(21)
    assert world.call("POST", "/snapshots", {"instance_id": machine_id}).status == 500
