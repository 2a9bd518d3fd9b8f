"""VPCs of the simulated provider: attaching, detaching, and how hard they are to delete; firewall groups."""

import math
from dataclasses import replace

from gpulease_sim.vultr import Settings

from tests.support.vultr_world import START, STEADY, STEADY_METAL, VultrWorld, error_of, steady

UNABLE = (500, "Unable to attach VPC")
NO_SUPPORT = "Unable to attach VPC: Failed to attach VPC network: Plan does not support VPC networking"


def attached(world: VultrWorld, machine_id: str, collection: str = "instances") -> list[str]:
    return [each["id"] for each in world.get(f"/{collection}/{machine_id}/vpcs")["vpcs"]]


def test_a_vpc_given_at_create_is_listed_before_the_vm_is_active() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()
    instance = world.create_vm(attach_vpc=[vpc])
    assert instance["internal_ip"].endswith(".3")
    assert attached(world, instance["id"]) == []

    world.wait(7)

    assert attached(world, instance["id"]) == [vpc]
    assert world.vm(instance["id"])["vpcs"][0]["subnet"] == instance["internal_ip"]
    assert world.state(instance["id"])[0] == "pending"


def test_a_membership_may_be_listed_before_it_has_an_address() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, vpc_address_seconds=(3, 3))))
    instance = world.create_vm(attach_vpc=[world.create_vpc()])
    path = f"/instances/{instance['id']}/vpcs"

    world.wait(7)
    assert [each["ip_address"] for each in world.get(path)["vpcs"]] == ["0.0.0.0"]  # noqa: S104
    assert world.vm(instance["id"])["internal_ip"] == ""
    world.wait(3)
    assert [each["ip_address"] for each in world.get(path)["vpcs"]] == [instance["internal_ip"]]


def test_addresses_are_handed_out_in_order_from_the_third_host() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()

    addresses = [world.create_vm(attach_vpc=[vpc])["internal_ip"] for _ in range(3)]

    assert [each.rsplit(".", 1)[1] for each in addresses] == ["3", "4", "5"]


def test_attach_fails_so_many_times_and_then_shows_later_and_reboots_the_vm() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, attach_failures=(3, 3))))
    machine_id, vpc = world.running_vm(), world.create_vpc()
    path, body = f"/instances/{machine_id}/vpcs/attach", {"vpc_id": vpc}

    assert [error_of(world.call("POST", path, body)) for _ in range(3)] == [UNABLE] * 3
    assert world.call("POST", path, body).status == 204
    assert attached(world, machine_id) == []
    world.wait(5)
    assert attached(world, machine_id) == [vpc]
    world.wait(5)
    assert world.state(machine_id)[1] == "stopped"
    world.wait(10)
    assert world.state(machine_id)[1] == "running"


def test_attach_can_fail_for_ever_and_is_refused_while_pending_or_locked() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, attach_failures=(math.inf, math.inf))))
    machine_id, vpc = world.create_vm()["id"], world.create_vpc()

    for _ in range(40):
        assert error_of(world.call("POST", f"/instances/{machine_id}/vpcs/attach", {"vpc_id": vpc})) == UNABLE
        world.wait(10)


def test_bare_metal_takes_one_vpc_and_only_once_it_is_active() -> None:
    world = VultrWorld()
    machine_id = world.create_metal()["id"]
    first, second = world.create_vpc("sea"), world.create_vpc("sea")
    path = f"/bare-metals/{machine_id}/vpcs/attach"

    assert error_of(world.call("POST", path, {"vpc_id": first})) == UNABLE
    world.wait(1800)
    assert world.call("POST", path, {"vpc_id": first}).status == 204
    world.wait(5)
    assert attached(world, machine_id, "bare-metals") == [first]
    assert "meta" not in world.get(f"/bare-metals/{machine_id}/vpcs")
    assert error_of(world.call("POST", path, {"vpc_id": second}))[0] == 500


def test_a_plan_without_vpc_support_says_so_for_good() -> None:
    world = VultrWorld(steady(metal=STEADY_METAL))
    machine = world.create_metal(plan="vbm-72c-480gb-gh200-gpu", region="atl")
    vpc = world.create_vpc("atl")
    world.wait(1800)

    for _ in range(3):
        answer = world.call("POST", f"/bare-metals/{machine['id']}/vpcs/attach", {"vpc_id": vpc})
        assert error_of(answer) == (500, NO_SUPPORT)
    world.cloud.settings = replace(world.cloud.settings, no_vpc_status=400)
    answer = world.call("POST", f"/bare-metals/{machine['id']}/vpcs/attach", {"vpc_id": vpc})
    assert error_of(answer) == (400, NO_SUPPORT)


def test_a_vpc_of_another_region_does_not_exist_for_a_machine() -> None:
    world = VultrWorld()
    machine_id, vpc = world.running_vm(), world.create_vpc("fra")

    answer = world.call("POST", f"/instances/{machine_id}/vpcs/attach", {"vpc_id": vpc})

    assert error_of(answer) == (404, "Invalid VPC ID.")


def test_detach_says_ok_and_shows_later_or_never() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()
    machine_id = world.running_vm(attach_vpc=[vpc])
    assert world.call("POST", f"/instances/{machine_id}/vpcs/detach", {"vpc_id": vpc}).status == 204
    assert attached(world, machine_id) == [vpc]
    world.wait(20)
    assert attached(world, machine_id) == []
    assert world.call("DELETE", f"/vpcs/{vpc}").status == 204

    stubborn = VultrWorld(steady(vm=replace(STEADY, detach_seconds=(math.inf, math.inf))))
    vpc = stubborn.create_vpc()
    machine_id = stubborn.running_vm(attach_vpc=[vpc])
    assert stubborn.call("POST", f"/instances/{machine_id}/vpcs/detach", {"vpc_id": vpc}).status == 204
    stubborn.wait(86_400)
    assert attached(stubborn, machine_id) == [vpc]
    assert stubborn.call("DELETE", f"/vpcs/{vpc}").status == 400


def test_a_vpc_cannot_be_deleted_for_a_while_after_its_machine_is_gone() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()
    machine_id = world.running_vm(attach_vpc=[vpc])
    address = world.vm(machine_id)["main_ip"]
    in_use = (400, f"The following servers are attached to this VPC network: {address}")

    assert error_of(world.call("DELETE", f"/vpcs/{vpc}")) == in_use
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10)
    assert world.call("GET", f"/instances/{machine_id}").status == 404
    assert error_of(world.call("DELETE", f"/vpcs/{vpc}")) == in_use
    world.wait(15)
    assert world.call("DELETE", f"/vpcs/{vpc}").status == 204
    assert error_of(world.call("DELETE", f"/vpcs/{vpc}")) == (404, "Invalid VPC ID.")
    assert world.cloud.book.get(vpc).destroyed == START + 125


def test_a_vpc_is_held_by_each_of_its_machines() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()
    first, second = world.create_vm(attach_vpc=[vpc])["id"], world.create_vm(attach_vpc=[vpc])["id"]
    world.wait(100)

    for number, gone in enumerate((first, second), start=1):
        assert world.call("DELETE", f"/vpcs/{vpc}").json()["error"].count("198.18.") == 3 - number
        world.call("DELETE", f"/instances/{gone}")
        world.wait(30)

    assert world.call("DELETE", f"/vpcs/{vpc}").status == 204


def test_the_window_after_the_machine_can_be_minutes_long() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, vpc_hold_seconds=(240, 240))))
    vpc = world.create_vpc()
    machine_id = world.running_vm(attach_vpc=[vpc])
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10 + 239)

    assert world.call("DELETE", f"/vpcs/{vpc}").status == 400
    world.wait(1)
    assert world.call("DELETE", f"/vpcs/{vpc}").status == 204


def test_a_window_longer_than_usual_memory_still_holds() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, vpc_hold_seconds=(5000, 5000))))
    vpc = world.create_vpc()
    machine_id = world.running_vm(attach_vpc=[vpc])
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(10 + 4999)

    assert world.call("DELETE", f"/vpcs/{vpc}").status == 400


def test_a_region_has_room_for_five_vpcs() -> None:
    world = VultrWorld()
    for _ in range(5):
        world.create_vpc()

    assert world.call("POST", "/vpcs", {"region": "ord"}).status == 400
    world.create_vpc("fra")
    assert len([each for each in world.cloud.book.billed() if each.kind == "vpc"]) == 6


def test_enable_vpc_takes_the_regions_network_or_makes_one_that_survives_a_failed_create() -> None:
    world = VultrWorld(steady(capacity={"ord/*": 0}))
    body = {"region": "ord", "plan": "vcg-l40s-16c-180g-48vram", "os_id": 1743, "enable_vpc": True}

    assert world.call("POST", "/instances", body).status == 400
    assert world.call("POST", "/instances", body).status == 400

    assert [each.kind for each in world.cloud.book.billed()] == ["vpc"]
    world.cloud.settings = steady()
    assert world.call("POST", "/instances", body).status == 202
    assert world.get("/vpcs")["meta"]["total"] == 1


def test_a_vpc_is_changed_by_put_not_patch_and_long_descriptions_are_cut() -> None:
    world = VultrWorld()
    vpc = world.create_vpc(description="a:b=c;d=e" + "x" * 300)

    refusal = error_of(world.call("PATCH", f"/vpcs/{vpc}", {"description": "new"}))
    assert refusal == (405, "Method not allowed. Must be one of: DELETE, GET, PUT")
    assert len(world.get(f"/vpcs/{vpc}")["vpc"]["description"]) == 255
    assert world.call("PUT", f"/vpcs/{vpc}", {"description": "gpulease:d:9"}).status == 204
    assert world.get(f"/vpcs/{vpc}")["vpc"]["description"] == "gpulease:d:9"
    assert world.cloud.book.get(vpc).markers == ("gpulease:d:9",)


def test_attachments_of_a_vpc_name_its_machines() -> None:
    world = VultrWorld()
    vpc = world.create_vpc()
    machine_id = world.running_vm(attach_vpc=[vpc])

    rows = world.get(f"/vpcs/{vpc}/attachments")["attachments"]

    assert [(row["linked_subscription"]["id"], row["type"]) for row in rows] == [(machine_id, "instance")]


def test_deleting_a_firewall_group_in_use_takes_it_from_the_machines() -> None:
    world = VultrWorld()
    group = world.call("POST", "/firewalls", {"description": "lab"}).json()["firewall_group"]["id"]
    machine_id = world.running_vm(firewall_group_id=group)
    assert world.get(f"/firewalls/{group}")["firewall_group"]["instance_count"] == 1

    assert world.call("DELETE", f"/firewalls/{group}").status == 204

    assert world.vm(machine_id)["firewall_group_id"] == ""


def test_an_equal_firewall_rule_is_refused() -> None:
    world = VultrWorld()
    group = world.call("POST", "/firewalls", {"description": "lab"}).json()["firewall_group"]["id"]
    rule = {"ip_type": "v4", "protocol": "tcp", "subnet": "0.0.0.0", "subnet_size": 0, "port": "22"}  # noqa: S104

    created = world.call("POST", f"/firewalls/{group}/rules", rule)
    again = error_of(world.call("POST", f"/firewalls/{group}/rules", rule))

    assert created.status == 201
    assert again == (400, "This rule is already defined ")
    rule_id = created.json()["firewall_rule"]["id"]
    assert world.call("DELETE", f"/firewalls/{group}/rules/{rule_id}").status == 204
    assert world.get(f"/firewalls/{group}/rules")["firewall_rules"] == []
    refusal = error_of(world.call("DELETE", f"/firewalls/{group}/rules/{rule_id}"))
    assert refusal == (404, "Firewall rule ID not found")


def test_default_attach_failures_are_0_to_5() -> None:
    world = VultrWorld(Settings(requests_per_second=None))
    failures = set()
    vpc = world.create_vpc()
    for _ in range(60):
        machine_id = world.create_vm()["id"]
        world.wait(400)
        count = 0
        while world.call("POST", f"/instances/{machine_id}/vpcs/attach", {"vpc_id": vpc}).status == 500:
            count += 1
        failures.add(count)

    assert failures == {0, 1, 2, 3, 4, 5}
