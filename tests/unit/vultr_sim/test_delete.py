"""How destroying a simulated machine is refused, accepted, ignored and finished."""

from dataclasses import replace

import pytest
from gpulease_sim.vultr import MachineRule, Settings

from tests.support.vultr_world import START, STEADY, VultrWorld, error_of, steady

NOT_ACTIVE = "Unable to destroy server: This subscription is not currently active, you cannot destroy it."
LOCKED = "Unable to destroy server: Unable to remove VM: Server is currently locked"
ALREADY = "Unable to destroy server: Server is already pending destruction."


def test_a_delete_is_refused_while_pending_then_while_locked_then_accepted() -> None:
    world = VultrWorld()
    path = f"/instances/{world.create_vm()['id']}"

    assert error_of(world.call("DELETE", path)) == (500, NOT_ACTIVE)
    world.wait(20)
    assert error_of(world.call("DELETE", path)) == (500, LOCKED)
    world.wait(5)
    assert world.call("DELETE", path) == (204, {"Server": "nginx"}, b"", 0.0)


def test_a_delete_can_be_refused_as_locked_although_the_state_no_longer_says_so() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, lock_tail_seconds=(8, 8))))
    instance = world.create_vm()
    world.wait(26)

    assert world.state(instance["id"])[2] == "installingbooting"
    assert error_of(world.call("DELETE", f"/instances/{instance['id']}")) == (500, LOCKED)
    world.wait(8)
    assert world.call("DELETE", f"/instances/{instance['id']}").status == 204


def test_an_accepted_delete_leaves_the_machine_listed_and_billed_until_it_is_gone() -> None:
    world = VultrWorld()
    machine_id = world.running_vm()
    path = f"/instances/{machine_id}"
    world.call("DELETE", path)

    assert world.get("/instances")["meta"]["total"] == 1
    assert world.call("GET", path).status == 200
    assert error_of(world.call("DELETE", path)) == (500, ALREADY)
    assert [each.id for each in world.cloud.book.billed()] == [machine_id]
    world.wait(10)
    assert world.get("/instances")["instances"] == []
    assert error_of(world.call("GET", path)) == (404, "instance not found")
    assert error_of(world.call("DELETE", path)) == (404, "instance not found")
    assert world.cloud.book.get(machine_id).destroyed == START + 110
    assert world.cloud.book.billed() == []


def test_reading_a_machine_that_is_being_destroyed_may_answer_an_error() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, destruction_get_error_probability=1)))
    machine_id = world.running_vm()
    world.call("DELETE", f"/instances/{machine_id}")

    assert error_of(world.call("GET", f"/instances/{machine_id}")) == (500, "Server is pending destruction")
    world.cloud.settings = replace(world.cloud.settings, destruction_get_status=404)
    assert error_of(world.call("GET", f"/instances/{machine_id}"))[0] == 404


@pytest.mark.parametrize("reworded", [False, True])
def test_refusal_windows_can_be_set_per_machine_and_reworded(reworded: bool) -> None:
    rule = MachineRule(change={"not_active_until_seconds": 120, "locked_until_seconds": 200})
    world = VultrWorld(steady(rules=(rule,), reworded=reworded))
    path = f"/instances/{world.create_vm()['id']}"

    seen = {}
    for second in range(0, 221, 10):
        world.now = START + second
        seen[second] = world.call("DELETE", path)

    assert [second for second, answer in seen.items() if answer.status == 204] == [200]
    assert {error_of(answer)[0] for second, answer in seen.items() if second < 200} == {500}
    texts = {error_of(answer)[1] for second, answer in seen.items() if second < 200}
    assert len(texts) == 2
    assert (texts == {NOT_ACTIVE, LOCKED}) is not reworded


def test_deletes_that_say_ok_and_do_nothing() -> None:
    world = VultrWorld(steady(rules=(MachineRule(change={"deletes_ignored": 2}),)))
    machine_id = world.running_vm()
    path = f"/instances/{machine_id}"

    for _ in range(2):
        assert world.call("DELETE", path).status == 204
        world.wait(600)
        assert world.state(machine_id) == ("active", "running", "ok")
    assert world.call("DELETE", path).status == 204
    world.wait(10)
    assert world.call("GET", path).status == 404


def test_a_destruction_that_never_finishes_keeps_costing() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, stuck="destruction")))
    machine_id = world.running_vm()
    assert world.call("DELETE", f"/instances/{machine_id}").status == 204

    world.wait(86_400)

    assert error_of(world.call("DELETE", f"/instances/{machine_id}")) == (500, ALREADY)
    assert world.cloud.book.get(machine_id).destroyed is None


def test_the_fifth_delete_of_a_machine_on_its_way_out_suspends_the_key() -> None:
    slow = replace(STEADY, destruction_seconds=(480, 480))
    world = VultrWorld(steady(vm=slow, suspend_key_after_refused_deletes=4))
    path = f"/instances/{world.running_vm()}"

    answers = [world.call("DELETE", path).status for _ in range(5)]

    assert answers == [204, 500, 500, 500, 500]
    assert error_of(world.call("GET", path)) == (401, "Invalid API token.")
    assert world.call("GET", path, key="another").status == 200


def test_a_machine_removed_by_hand_is_gone_at_once() -> None:
    world = VultrWorld(steady(not_found={"instance": (400, "invalid instance ID")}))
    machine_id = world.running_vm()

    world.cloud.remove_by_hand(machine_id)

    assert error_of(world.call("GET", f"/instances/{machine_id}")) == (400, "invalid instance ID")
    assert world.get("/instances")["instances"] == []
    assert world.cloud.book.billed() == []


def test_lists_may_still_show_a_machine_that_is_gone() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, ghost_seconds=(30, 30))))
    machine_id = world.running_vm()
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(11)

    assert world.call("GET", f"/instances/{machine_id}").status == 404
    assert [each["id"] for each in world.get("/instances")["instances"]] == [machine_id]
    world.wait(30)
    assert world.get("/instances")["instances"] == []


def test_a_pending_bare_metal_cannot_be_deleted_at_first_and_can_later() -> None:
    world = VultrWorld()
    path = f"/bare-metals/{world.create_metal()['id']}"

    assert error_of(world.call("DELETE", path)) == (500, NOT_ACTIVE)
    world.wait(300)
    assert world.call("DELETE", path).status == 204
    world.wait(10)
    assert error_of(world.call("GET", path)) == (404, "Invalid server")


def test_default_machines_are_gone_2_to_30_seconds_after_the_delete() -> None:
    world = VultrWorld(Settings(requests_per_second=None))
    ids = [world.create_vm()["id"] for _ in range(50)]
    world.wait(400)
    asked = world.now
    for each in ids:
        assert world.call("DELETE", f"/instances/{each}").status == 204

    gone = [world.cloud.machine(each).gone_at - asked for each in ids]

    assert 2 <= min(gone) < 10 and 20 < max(gone) <= 30
