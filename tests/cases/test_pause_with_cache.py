"""C36, C38 and C39 for a stopped machine that holds its cache's volume (AWS): it stays, goes over, or comes back."""

from collections.abc import Iterator
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import Resource
from gpulease_local.simulate.virtual import OWNER
from gpulease_local.simulate.workloads import Workload

from tests.support.cache_world import Caches
from tests.support.pause_world import ONE_AWS, R_SECONDS, PauseWorld

S = LeaseState
NO_CAPACITY = "InsufficientInstanceCapacity"
ON_AWS = {"provider": "aws", "region": "us-east-1", "zone": "us-east-1a"}
USES: dict[str, Any] = {**ONE_AWS, "cache": {"name": "models", "mounts": ["/root/.cache/huggingface"]}}


@pytest.fixture
def world() -> Iterator[PauseWorld]:
    made = PauseWorld(workload_of=lambda name: Workload("nobody", ()))
    yield made
    made.close()


def volume_user(world: PauseWorld, caches: Caches, cache: str) -> str:
    """Which machine has the cache's volume, by the provider; empty = none."""
    return world.stack.clouds.user_of(caches.volume(cache).provider_id)


def paused_with_cache(world: PauseWorld) -> tuple[Caches, str, str, Resource]:
    """A lease whose stopped machine holds the cache's volume: caches, the cache, the lease, the machine."""
    caches = Caches(world.stack)
    cache = caches.make(OWNER, **ON_AWS)
    lease_id = world.up(**USES)
    world.paused(lease_id)
    return caches, cache, lease_id, world.machine(lease_id)


def test_c36_a_stopped_machines_volume_is_not_taken_by_another_lease(world: PauseWorld) -> None:
    caches, cache, lease_id, stopped = paused_with_cache(world)
    old, shown = stopped.provider_id, caches.shown()

    other = world.up("other", **ONE_AWS)
    world.paused(other)
    world.fault(action="StartInstances", code=NO_CAPACITY)
    world.resume(other, on_no_capacity="replace", wait_seconds="0")
    world.until(other, S.RUNNING, within=1200)

    assert shown["state"] == "in_use" and shown["used_by"]["lease_id"] == lease_id
    assert volume_user(world, caches, cache) == old and world.calls("DetachVolume") == []
    world.assert_right()


def test_c38_without_capacity_the_cache_stays_at_its_stopped_machine(world: PauseWorld) -> None:
    caches, cache, lease_id, old = paused_with_cache(world)
    world.fault(action="StartInstances", code=NO_CAPACITY)

    world.resume(lease_id)
    world.until(lease_id, S.RESUMING, within=10)
    world.until(lease_id, S.PAUSED, within=300)

    assert volume_user(world, caches, cache) == old.provider_id
    assert world.calls("DetachVolume") == world.calls("DeleteVolume") == []
    assert world.stack.lease(cache).members == (old.id,)
    world.no_faults()
    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=900)
    assert volume_user(world, caches, cache) == old.provider_id
    assert len(world.calls("AttachVolume")) == 1, "it was never away"
    world.assert_right()


def test_c39_a_fresh_machine_has_the_cache_and_the_paused_one_is_listed_until_it_runs(world: PauseWorld) -> None:
    caches, cache, lease_id, old = paused_with_cache(world)
    world.fault(action="StartInstances", code=NO_CAPACITY)

    world.resume(lease_id, on_no_capacity="replace")
    world.wait(lambda: len(world.machines_booked()) == 2, 600, "no new machine")
    listed = {each["id"]: each for each in world.view(lease_id)["resources"]}
    world.until(lease_id, S.RUNNING, within=1200)

    assert listed[old.id]["billed"] is True and 0 < float(listed[old.id]["price_per_hour_usd"]) < 0.1
    new = world.machine(lease_id)
    assert new.zone == old.zone and volume_user(world, caches, cache) == new.provider_id
    world.run_for(2 * R_SECONDS)
    assert world.aws.book.get(old.provider_id).destroyed is not None
    assert volume_user(world, caches, cache) == new.provider_id
    world.assert_right()


def test_c39_when_no_fresh_one_can_be_had_the_paused_one_keeps_its_place_and_gets_its_cache_back(
    world: PauseWorld,
) -> None:
    caches, cache, lease_id, old = paused_with_cache(world)
    world.fault(action="(Start|Run)Instances", code=NO_CAPACITY)

    world.resume(lease_id, on_no_capacity="replace")
    world.until(lease_id, S.RESUMING, within=10)
    world.until(lease_id, S.PAUSED, within=3600)

    pause = world.lease(lease_id).pause
    assert pause is not None and pause.resume_failed is Reason.NO_CAPACITY
    assert [each.id for each in world.machines_booked() if each.destroyed is None] == [old.provider_id]
    assert caches.shown()["state"] == "available"
    world.no_faults()
    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=900)
    assert volume_user(world, caches, cache) == old.provider_id and caches.shown()["state"] == "in_use"
    world.assert_right()
