"""What the simulated provider accepts and refuses when a machine is asked for."""

import base64
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from gpulease_sim.vultr import Behaviour, Settings

from tests.support.vultr_world import GPU_METAL, GPU_VM, STEADY, VultrWorld, error_of, steady

NO_CAPACITY = "does not have any more capacity."
VALID = {"region": "ord", "plan": GPU_VM, "os_id": 1743}


def refused(world: VultrWorld, **change: Any) -> tuple[int, str]:
    return error_of(world.call("POST", "/instances", {**VALID, **change}))


def test_the_same_create_sent_twice_makes_two_machines() -> None:
    world = VultrWorld()
    first, second = world.create_vm(label="x", tags=["one"]), world.create_vm(label="x", tags=["one"])

    assert first["id"] != second["id"]
    assert len(world.cloud.book.billed()) == 2


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"region": "xxx"}, 400, "Invalid region."),
        ({"plan": "vcg-none"}, 400, "Invalid plan chosen."),
        ({"plan": GPU_METAL}, 400, "Invalid plan chosen."),
        ({"sshkey_id": ["nope"]}, 400, "Invalid ssh key"),
        ({"script_id": "nope"}, 400, "Invalid startup script ID"),
        ({"attach_vpc": ["nope"]}, 400, "Invalid VPC ID."),
        ({"user_data": "not base64!"}, 400, "Invalid user_data: must be base64 encoded"),
        ({"tags": ["t"] * 100}, 400, "Too many tags."),
        ({"os_id": 1}, 400, "Invalid OS, snapshot, app or image chosen."),
        ({"os_id": None}, 400, "Invalid OS, snapshot, app or image chosen."),
        ({"label": 5}, 400, "Invalid label"),
    ],
)
def test_a_bad_request_makes_nothing(change: dict[str, Any], status: int, text: str) -> None:
    world = VultrWorld()

    assert refused(world, **change) == (status, text)
    assert world.cloud.book.objects() == []


def test_bare_metal_routes_do_not_sell_vm_plans() -> None:
    world = VultrWorld()

    answer = world.call("POST", "/bare-metals", VALID)

    assert error_of(answer) == (400, "Invalid plan chosen.")


def test_a_plan_that_is_not_stocked_in_a_region_has_no_capacity_there() -> None:
    world = VultrWorld()

    status, text = refused(world, region="hnl")

    assert (status, text.endswith(NO_CAPACITY)) == (400, True)


def test_plans_not_sold_on_demand_have_no_capacity() -> None:
    assert refused(VultrWorld(), plan="vcg-b200-248c-2826g-1536vram")[1].endswith(NO_CAPACITY)


def test_capacity_counts_living_machines() -> None:
    world = VultrWorld(steady(capacity={f"ord/{GPU_VM}": 1}))
    machine_id = world.running_vm()

    assert refused(world)[1].endswith(NO_CAPACITY)
    assert GPU_VM not in world.get("/regions/ord/availability")["available_plans"]
    world.create_vm(region="fra")
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10)
    assert GPU_VM in world.get("/regions/ord/availability")["available_plans"]
    world.create_vm()


def test_capacity_can_vanish_between_the_look_and_the_create() -> None:
    world = VultrWorld(steady(vanishing=frozenset({f"ord/{GPU_VM}"})))

    assert GPU_VM in world.get("/regions/ord/availability")["available_plans"]
    assert refused(world)[1].endswith(NO_CAPACITY)


def test_capacity_can_be_a_matter_of_luck() -> None:
    world = VultrWorld(steady(no_capacity_probability=0.5))

    answers = [world.call("POST", "/instances", VALID).status for _ in range(200)]

    assert set(answers) == {202, 400}
    assert 60 < answers.count(400) < 140


def test_the_instance_limit_counts_machines_for_a_while_after_they_are_gone() -> None:
    world = VultrWorld(steady(instance_limit=1))
    machine_id = world.running_vm()
    limit = (400, "Server add failed: You have reached the maximum number of active instances for this account.")

    assert refused(world) == limit
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(69)
    assert world.call("GET", f"/instances/{machine_id}").status == 404
    assert refused(world) == limit
    world.wait(1)
    world.create_vm()


def test_the_monthly_fee_limit_refuses_even_small_machines() -> None:
    world = VultrWorld(steady(monthly_fee_limit_usd=Decimal(1222)))
    world.create_vm()

    status, text = refused(world, plan="vc2-1c-1gb")

    assert status == 400
    assert text.startswith("Server add failed: You have reached the maximum monthly fee limit for this account")


def test_no_capacity_and_limits_keep_their_status_when_reworded() -> None:
    plain = VultrWorld(steady(capacity={"*/*": 0}))
    reworded = VultrWorld(steady(capacity={"*/*": 0}, reworded=True))

    (status, text), (other_status, other_text) = refused(plain), refused(reworded)

    assert status == other_status == 400
    assert text != other_text and "capacity" not in other_text


def test_user_data_is_kept_byte_for_byte() -> None:
    script = b"\n#!/bin/sh\r\necho 'it''s' \"$HOME\" `id` \\ \xc3\xbc \x00\n"
    world = VultrWorld()
    sent = base64.b64encode(script).decode()

    machine_id = world.create_vm(user_data=sent)["id"]

    assert world.cloud.book.get(machine_id).user_data_bytes == script
    assert world.get(f"/instances/{machine_id}/user-data") == {"user_data": {"data": sent}}
    metal_id = world.create_metal(user_data=sent)["id"]
    assert world.get(f"/bare-metals/{metal_id}/user-data") == {"user_data": {"data": sent}}


def test_tags_are_kept_verbatim_and_labels_are_not_unique() -> None:
    tags = ["gpulease:d-1:r/2=x.y", " two words ", "Grün", "x" * 512]
    world = VultrWorld()

    instance = world.create_vm(tags=tags, label="same")
    world.create_vm(label="same")

    assert world.vm(instance["id"])["tags"] == tags
    assert world.cloud.book.get(instance["id"]).markers == ("gpulease:d-1:r/2=x.y",)


def test_marketplace_and_one_click_images_boot_too() -> None:
    world = VultrWorld()

    assert world.create_vm(os_id=None, image_id="docker")["image_id"] == "docker"
    assert world.create_vm(os_id=None, app_id=17)["app_id"] == 17
    assert error_of(world.call("POST", "/instances", {**VALID, "image_id": "nope"}))[0] == 400


def test_a_vpc_for_a_plan_without_vpcs_is_refused_at_create() -> None:
    world = VultrWorld()
    vpc = world.create_vpc("atl")
    body = {"region": "atl", "plan": "vbm-72c-480gb-gh200-gpu", "os_id": 1743, "attach_vpc": [vpc]}

    status, text = error_of(world.call("POST", "/bare-metals", body))

    assert (status, "does not support VPC" in text) == (500, True)
    assert [each.kind for each in world.cloud.book.billed()] == ["vpc"]


def test_a_reserved_address_becomes_the_machines_and_survives_it() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, vpc_hold_seconds=(30, 30))))
    created = world.call("POST", "/reserved-ips", {"region": "ord", "ip_type": "v4", "label": "front"})
    address = created.json()["reserved_ip"]
    machine_id = world.running_vm(reserved_ipv4=address["id"])
    assert world.vm(machine_id)["main_ip"] == address["subnet"]
    assert world.get(f"/reserved-ips/{address['id']}")["reserved_ip"]["instance_id"] == machine_id

    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10)
    assert world.get(f"/reserved-ips/{address['id']}")["reserved_ip"]["instance_id"] == ""
    assert refused(world, reserved_ipv4=address["id"])[1].startswith("Floating IPv4 address is already attached")
    world.wait(30)
    world.create_vm(reserved_ipv4=address["id"])
    assert [each.kind for each in world.cloud.book.billed()] == ["reserved_ip", "instance"]


def test_an_update_replaces_tags_keeps_them_for_null_and_clears_them_for_an_empty_list() -> None:
    world = VultrWorld()
    path = f"/instances/{world.running_vm(tags=['a', 'b'])}"

    def updated(body: dict[str, Any]) -> list[str]:
        answer = world.call("PATCH", path, body)
        assert answer.status == 202 and answer.json()["job_ids"]
        tags: list[str] = world.get(path)["instance"]["tags"]
        return tags

    assert updated({"tags": ["c"]}) == ["c"]
    assert updated({"tags": None, "label": "new"}) == ["c"]
    assert updated({"tags": []}) == []
    assert world.get(path)["instance"]["label"] == "new"


def test_an_update_starts_a_job_that_ends() -> None:
    world = VultrWorld()
    path = f"/instances/{world.running_vm()}"
    job = world.call("PATCH", path, {"label": "new"}).json()["job_ids"][0]

    assert world.get(f"/instances/jobs/{job}")["state"] == "processing"
    world.wait(10)
    assert world.get(f"/instances/jobs/{job}")["state"] == "success"
    assert world.call("GET", "/instances/jobs/nope").status == 404


def test_a_plan_changes_only_to_a_larger_one_of_its_line_and_later() -> None:
    world = VultrWorld()
    machine_id = world.running_vm()
    path, larger = f"/instances/{machine_id}", "vcg-l40s-32c-360g-96vram"
    assert world.get(f"{path}/upgrades", type="plans") == {"upgrades": {"plans": [larger]}}

    assert world.call("PATCH", path, {"plan": "vc2-2c-4gb"}).status == 400
    assert world.call("PATCH", path, {"plan": larger}).status == 202
    assert world.vm(machine_id)["status"] == "resizing"
    assert world.vm(machine_id)["plan"] == GPU_VM
    world.wait(60)
    assert world.vm(machine_id)["plan"] == larger
    assert world.cloud.book.get(machine_id).hourly_usd == Decimal("3.342")


def test_bare_metal_updates_have_no_jobs_and_no_plan() -> None:
    world = VultrWorld()
    machine_id = world.create_metal(tags=["a"])["id"]

    answer = world.call("PATCH", f"/bare-metals/{machine_id}", {"tags": ["b"]})

    assert (answer.status, answer.json()["bare_metal"]["tags"]) == (202, ["b"])
    assert "job_ids" not in answer.json()
    assert world.cloud.book.get(machine_id).tags == ("b",)


def test_equal_seeds_make_equal_worlds_whatever_is_read_in_between() -> None:
    def life(seed: int, curious: bool) -> list[tuple[float, float, str]]:
        world = VultrWorld(Settings(requests_per_second=None, vm=Behaviour()), seed)
        for number in range(20):
            instance = world.create_vm(label=str(number))
            if curious:
                for _ in range(number):
                    world.call("GET", f"/instances/{instance['id']}")
                    world.call("GET", "/instances")
            world.wait(5)
        machines = world.cloud.account.machines.values()
        return [(machine.active_at(), machine.ssh_at, machine.id) for machine in machines]

    assert life(7, curious=False) == life(7, curious=True)
    assert life(7, curious=False) != life(8, curious=False)
