"""C24, C34 to C37: volumes that outlive their machines, and machines that wait for them."""

import math
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from gpulease.domain.cost import lease_cost
from gpulease.domain.lease import LeaseState, Reason
from gpulease_local.simulate.virtual import ApiRefused
from gpulease_local.world import DepsClock
from gpulease_sim.vultr import Fault

from tests.cases.conftest import NewWorld
from tests.support.cache_world import STEADY_BLOCK, USES_MODELS, Caches
from tests.support.case_world import ONE_VM, CaseWorld

RUNNING, RELEASING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASING, LeaseState.RELEASED
VM: dict[str, Any] = {**ONE_VM, **USES_MODELS}


UNABLE = Fault(
    method="POST", path="/blocks/.*/detach", status=400, error="Unable to detach block storage", execute=False
)


def world_with_cache(new_world: NewWorld, **settings: Any) -> tuple[CaseWorld, Caches, str]:
    """The usual world with a cache that can be used. T+0 is now."""
    world = new_world(**{"block": STEADY_BLOCK, **settings})
    caches = Caches(world.stack)
    cache = caches.make()
    world.t0 = world.stack.clock.time()
    return world, caches, cache


def attaches(world: CaseWorld) -> list[tuple[float, int]]:
    """(T+, status) of the attach calls."""
    return [(call.at, call.status) for call in world.calls("POST", "/blocks/.*/attach")]


def test_c24_the_cache_volume_survives_its_machine_and_is_listed_with_its_price(new_world: NewWorld) -> None:
    world, caches, cache = world_with_cache(new_world)
    lease = world.up(**VM)
    world.until(lease, RUNNING, within=300)
    world.down(lease)
    world.until(lease, RELEASED, within=300)

    shown = caches.shown()

    (block,) = caches.blocks()
    assert shown["state"] == "available" and shown["price_per_month_usd"] == "5.00"
    assert [volume["provider_id"] for volume in shown["volumes"]] == [block.id]
    assert world.calls("POST", "/blocks/.*/detach") == [], "the machine's end has freed it"
    world.assert_right_at_the_end()
    now = DepsClock(world.stack.clock).now()
    assert abs(lease_cost(caches.record(cache), now) - caches.blocks()[0].cost_usd) < Decimal("0.01")


def test_c24_what_was_made_on_the_way_to_a_cache_is_gone_with_it(new_world: NewWorld) -> None:
    world, caches, cache = world_with_cache(new_world)
    lease = world.up(**VM)
    world.until(lease, RUNNING, within=300)
    with pytest.raises(ApiRefused, match="in use by box"):
        caches.remove()
    world.down(lease)
    world.until(lease, RELEASED, within=300)

    caches.remove()
    world.until(cache, RELEASED, within=120)

    assert caches.blocks() == []
    world.assert_right_at_the_end()


def test_c34_a_volume_is_not_asked_for_before_the_machine_is_ready(new_world: NewWorld) -> None:
    world, caches, cache = world_with_cache(new_world, block=replace(STEADY_BLOCK, attach_seconds=(14, 14)))
    shown_attached: list[bool] = []

    lease = world.up(**VM)
    while world.lease(lease).state is not RUNNING:
        world.run_for(1)
        block = world.cloud.account.blocks[caches.volume(cache).provider_id]
        if caches.volume(cache).attached_to:
            shown_attached.append(bool(block.shown_instance(world.stack.clock.time())))
        assert world.now < 400

    ((asked_at, status),) = attaches(world)
    assert asked_at >= 60 and status == 204, "the machine is ready at T+60"
    assert shown_attached and all(shown_attached), "never said before the provider says so"
    assert world.states_of(lease)[-1] is RUNNING and len(world.lease(lease).attempts) == 1
    world.assert_right_at_the_end()


def test_c34_an_attach_that_is_refused_in_unknown_words_is_asked_for_again(new_world: NewWorld) -> None:
    """Also where the provider says "no" to a machine that it shows as ready: three times is not for ever."""
    world, caches, cache = world_with_cache(new_world)
    world.machine(1, lock_tail_seconds=25)

    lease = world.up(**VM)
    world.until(lease, RUNNING, within=400)

    assert [status for _, status in attaches(world)][-1] == 204
    assert caches.attached_to(cache) == world.machine_of(lease).provider_id
    world.assert_right_at_the_end()


def test_c35_attach_is_repeated_with_pauses_while_the_machine_is_locked(new_world: NewWorld) -> None:
    world, caches, _ = world_with_cache(new_world)
    world.machine(1, lock_tail_seconds=80)

    lease = world.up(**VM)
    running_at = world.until(lease, RUNNING, within=400)

    refused = [at for at, status in attaches(world) if status >= 400]
    assert len(refused) >= 3 and all(b - a >= 7 for a, b in pairwise(refused))
    (attached,) = world.events(lease, "cache_attached")
    assert attached.at.timestamp() - world.t0 <= running_at
    assert len(world.ours("instance")) == 1 and len(world.lease(lease).attempts) == 1
    assert caches.shown()["used_by"]["lease_id"] == lease
    world.assert_right_at_the_end()


def test_c35_a_volume_that_cannot_be_attached_costs_one_machine_and_no_second(new_world: NewWorld) -> None:
    world, caches, _ = world_with_cache(new_world, block=replace(STEADY_BLOCK, attach_seconds=(math.inf, math.inf)))

    lease = world.up(**VM)
    world.until(lease, RELEASED, within=1200)

    assert world.lease(lease).reason is Reason.CACHE_FAILED
    assert "not attached in time" in world.lease(lease).reason_detail
    assert len(world.ours("instance")) == 1 and world.billed("instance") == []
    assert caches.shown()["state"] == "available"
    world.assert_right_at_the_end()


def test_c36_a_volume_that_stays_attached_is_not_free_and_the_next_job_waits_for_it(new_world: NewWorld) -> None:
    """For eight minutes, until a detach is accepted: the machine goes first, nothing is forced."""
    world, caches, cache = world_with_cache(new_world, block=replace(STEADY_BLOCK, never_detaches_probability=1))
    world.cloud.faults.add(replace(UNABLE, times=3))
    first = world.up(**VM)
    world.until(first, RUNNING, within=300)
    world.down(first)
    world.run_for(60)
    assert world.billed("instance") == [], "the machine is gone"

    second = world.up(**{**VM, "name": "next"})
    world.run_for(240)

    assert world.lease(first).state is RELEASING, "not done while the volume is not free"
    assert caches.shown()["state"] == "in_use" and caches.shown()["used_by"]["lease_id"] == first
    assert world.lease(second).state is LeaseState.PROVISIONING and len(world.ours("instance")) == 1
    assert "leaving" in world.lease(second).waiting_for
    world.until(second, RUNNING, within=1800)
    assert world.lease(first).state is RELEASED
    assert caches.attached_to(cache) == world.machine_of(second).provider_id
    detaches = [call.at for call in world.calls("POST", "/blocks/.*/detach")]
    assert len(detaches) == 4 and all(b - a >= 50 for a, b in pairwise(detaches))
    world.assert_right_at_the_end()


def test_c36_what_never_comes_free_is_told_and_the_next_job_ends_without_having_cost_anything(
    new_world: NewWorld,
) -> None:
    world, caches, _ = world_with_cache(new_world, block=replace(STEADY_BLOCK, never_detaches_probability=1))
    world.cloud.faults.add(UNABLE)
    first = world.up(**VM)
    world.until(first, RUNNING, within=300)
    world.down(first)
    world.run_for(30)

    second = world.up(**{**VM, "name": "next"})
    world.until(second, RELEASED, within=2400)

    assert world.lease(second).reason is Reason.CACHE_BUSY and world.lease(second).attempts[0].asked
    assert len(world.ours("instance")) == 1, "none was made for the second"
    assert world.lease(first).state is RELEASING and caches.shown()["state"] == "in_use"
    assert [name for name, _ in world.stack.log.alarms] == ["ReleaseStuck"]
    # Support frees it in the end.
    block = world.cloud.account.blocks[caches.blocks()[0].id]
    block.holds.clear()
    world.until(first, RELEASED, within=600)
    assert caches.shown()["state"] == "available"
    world.assert_right_at_the_end()


def test_c37_only_offers_of_the_volumes_place_are_tried(new_world: NewWorld) -> None:
    """Cheaper ones elsewhere are left alone."""
    world, _, _ = world_with_cache(new_world)

    lease = world.up(**USES_MODELS, gpu=["L40S"], plan_kinds=["vm"])
    world.until(lease, RUNNING, within=300)

    assert {attempt.offer.region for attempt in world.lease(lease).attempts} == {"ewr"}
    world.assert_right_at_the_end()


def test_c37_without_capacity_there_nothing_is_created_and_nothing_is_billed(new_world: NewWorld) -> None:
    world, caches, _ = world_with_cache(new_world)
    world.set(capacity={"ewr/*": 0})

    lease = world.up(**USES_MODELS, gpu=["L40S"], plan_kinds=["vm"])
    world.until(lease, RELEASED, within=600)

    assert world.lease(lease).reason is Reason.NO_CAPACITY
    assert "its cache models is in vultr/ewr" in world.lease(lease).reason_detail
    assert world.ours("instance") == [] and world.calls("POST", "/instances") == []
    assert caches.shown()["state"] == "available"
    world.assert_right_at_the_end()


def test_c37_a_request_that_could_never_use_its_cache_is_refused_at_once(new_world: NewWorld) -> None:
    world, _, _ = world_with_cache(new_world)

    with pytest.raises(ApiRefused, match=r"bare metal takes no volume|what fits is in vultr/ams"):
        world.up(**USES_MODELS, plan_kinds=["bare_metal"], gpu_count=4)
    with pytest.raises(ApiRefused, match="what fits is in vultr/ams"):
        world.up(**USES_MODELS, regions=["ams"], plan_kinds=["vm"])

    assert len(world.stack.leases()) == 1, "the cache alone"
    world.assert_right_at_the_end()
