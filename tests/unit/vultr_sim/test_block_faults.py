"""How the simulated block storage misbehaves where it is told to, and what of it can be chosen."""

import math

from gpulease_sim.vultr import Fault

from tests.support.block_world import STEADY_BLOCK, active, attach, attached, block_world, create, detach, holder
from tests.support.vultr_world import VultrWorld, error_of, steady


def test_fault_a_block_that_never_leaves_its_dead_machine_is_freed_by_a_detach() -> None:
    world = block_world(never_detaches_probability=1)
    block_id, machine_id = attached(world)
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(100_000)
    assert holder(world, block_id) == machine_id

    assert detach(world, block_id).status == 204
    world.wait(5)

    assert holder(world, block_id) == ""


def test_fault_a_detach_is_refused_for_long() -> None:
    world = block_world(stuck_detach_probability=1, stuck_detach_failures=(3, 3))
    block_id, _ = attached(world)

    answers = [error_of(detach(world, block_id)) for _ in range(3)]

    assert answers == [(400, "Unable to detach block storage")] * 3
    assert detach(world, block_id).status == 204


def test_fault_a_detach_that_never_works_ends_with_the_machine() -> None:
    world = block_world(detach_failures=(math.inf, math.inf))
    block_id, machine_id = attached(world)

    assert [detach(world, block_id).status for _ in range(50)] == [400] * 50
    world.call("DELETE", f"/instances/{machine_id}")
    world.wait(30)
    assert holder(world, block_id) == ""


def test_fault_an_attach_is_accepted_and_never_shows() -> None:
    forgotten, hanging = block_world(attach_lost_probability=1), block_world(attach_seconds=(math.inf, math.inf))

    for world in (forgotten, hanging):
        block_id, machine_id = active(world), world.running_vm()
        assert attach(world, block_id, machine_id).status == 204
        world.wait(10_000)
        assert holder(world, block_id) == ""

    assert detach(hanging, block_id).status == 204


def test_rates_of_faults_are_kept_over_many_attaches() -> None:
    world = block_world(attach_lost_probability=0.3)
    block_id, machine_id = active(world), world.running_vm()
    lost = 0

    for _ in range(200):
        attach(world, block_id, machine_id)
        world.wait(5)
        lost += holder(world, block_id) == ""
        detach(world, block_id)
        world.wait(5)

    assert 40 <= lost <= 80


def test_a_scripted_fault_acts_once() -> None:
    world = block_world()
    block_id, machine_id = active(world), world.running_vm()
    world.cloud.faults.add(Fault(method="POST", path="/blocks/[^/]+/attach", region="ord", times=1, effect="ignore"))

    assert attach(world, block_id, machine_id).status == 204
    world.wait(10)
    assert holder(world, block_id) == ""
    assert attach(world, block_id, machine_id).status == 204
    world.wait(10)
    assert holder(world, block_id) == machine_id


def test_a_create_that_was_only_pretended_leaves_nothing() -> None:
    world = block_world()
    world.cloud.faults.add(Fault(method="POST", path="/blocks", effect="ignore"))

    block_id = create(world)["id"]

    assert world.call("GET", f"/blocks/{block_id}").status == 400
    assert not world.cloud.book.objects()


def test_the_other_possible_answer_to_a_delete_while_attached_can_be_chosen() -> None:
    world = VultrWorld(steady(block=STEADY_BLOCK, block_delete_detaches=True))
    block_id, _ = attached(world)

    assert world.call("DELETE", f"/blocks/{block_id}").status == 204
    world.wait(2)

    assert world.cloud.book.get(block_id).destroyed is not None
    assert world.cloud.account.blocks[block_id].hold(world.now) is None


def test_limits_and_stock_of_blocks_can_be_set() -> None:
    world = VultrWorld(steady(block=STEADY_BLOCK, block_limit=1, blocks_sold_out=frozenset({"ewr/high_perf"})))

    refused = world.call("POST", "/blocks", {"region": "ewr", "size_gb": 50})
    assert error_of(refused) == (400, "Block storage is currently not available in this location.")
    create(world)
    assert error_of(world.call("POST", "/blocks", {"region": "ord", "size_gb": 50}))[0] == 400


def test_every_text_has_other_words() -> None:
    world = VultrWorld(steady(block=STEADY_BLOCK, reworded=True))

    assert error_of(detach(world, active(world))) == (400, "The disk is free.")
    assert error_of(world.call("GET", "/blocks/nothing")) == (400, "Disk unknown.")


def test_a_missing_block_can_be_told_in_the_other_known_way() -> None:
    missing = {"block": (404, "Block storage subscription not found.")}
    world = VultrWorld(steady(not_found=missing))

    assert error_of(world.call("GET", "/blocks/nothing")) == missing["block"]
