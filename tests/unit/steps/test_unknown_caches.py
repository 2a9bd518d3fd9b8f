"""A cache is ended by its owner's word or its own expiry, and not because the ledger does not know it (any more)."""

from collections.abc import Iterator

import pytest
from gpulease.domain.lease import LeaseState
from gpulease_local.simulate.virtual import OWNER

from tests.support.cache_world import MODELS
from tests.support.case_world import R_SECONDS, REGION
from tests.support.sweep_world import SweepWorld, _create, marker

NOBODYS_CACHE = "c-bbbbbbbbbbbb"


@pytest.fixture
def world() -> Iterator[SweepWorld]:
    made = SweepWorld()
    yield made
    made.close()


def plant_volume(world: SweepWorld, name: str) -> str:
    """A block with a marker of ours, as of a cache made after the backup that the ledger was restored from."""
    body = {"region": REGION, "size_gb": 50, "block_type": "storage_opt", "label": name}
    return _create(world, "/blocks", body)


def test_the_volume_of_a_cache_that_the_ledger_does_not_know_is_told_and_not_touched(world: SweepWorld) -> None:
    world.until(world.up(), LeaseState.RUNNING, within=200)
    world.at(320)
    volume = plant_volume(world, marker(f"{NOBODYS_CACHE}.volume.1"))

    world.at(320 + 6 * R_SECONDS)

    assert world.cloud.book.get(volume).destroyed is None
    told = [each for each in world.alarms("UnownedResourceFound") if each["provider_id"] == volume]
    assert {each["lease_id"] for each in told} == {NOBODYS_CACHE}
    assert len(told) <= 2, "not every five minutes"


def test_what_a_removed_cache_left_is_given_back(world: SweepWorld) -> None:
    made = world.stack.api("POST", "/v1/caches", dict(MODELS), owner=OWNER)
    world.until(made["id"], LeaseState.RUNNING, within=200)
    world.stack.api("DELETE", "/v1/caches/models", owner=OWNER)
    world.until(made["id"], LeaseState.RELEASED, within=200)
    left = plant_volume(world, marker(f"{made['id']}.volume.1"))

    world.run_for(4 * R_SECONDS)

    assert world.cloud.book.get(left).destroyed is not None
