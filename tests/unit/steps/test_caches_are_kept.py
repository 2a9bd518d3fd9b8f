"""A cache that a lease is about to use is neither removed nor does it end."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.ports import Change
from gpulease_local.simulate.virtual import OWNER, ApiRefused

from tests.support.cache_world import Caches
from tests.support.pause_world import PauseWorld

S = LeaseState
ON_AWS = {"provider": "aws", "region": "us-east-1", "zone": "us-east-1a"}
USES: dict[str, Any] = {
    "providers": ["aws"],
    "plans": ["g6.xlarge"],
    "cache": {"name": "models", "mounts": ["/root/.cache/huggingface"]},
}


@pytest.fixture
def world() -> Iterator[PauseWorld]:
    made = PauseWorld()
    yield made
    made.close()


def test_a_cache_that_was_just_asked_for_is_not_removed(world: PauseWorld) -> None:
    caches = Caches(world.stack)
    caches.make(OWNER, **ON_AWS)
    world.stack.up(name="box", **USES)

    with pytest.raises(ApiRefused) as refused:
        caches.remove()

    assert refused.value.problem["code"] == "cache_in_use"


def test_a_cache_does_not_end_while_a_lease_starts_with_it(world: PauseWorld) -> None:
    caches = Caches(world.stack)
    cache = caches.make(OWNER, **ON_AWS, expire_after_seconds=3600)
    world.fault(action="DescribeInstanceTypeOfferings", code="InternalError", status=500)
    deps = world.stack.stack.deps
    now = deps.clock.now()
    dues = {"used_at": now - timedelta(seconds=3590), "expiry_warned_at": now - timedelta(seconds=1790)}
    told = world.stack.lease(cache).model_copy(update={**dues, "next_check_at": now + timedelta(seconds=10)})
    deps.ledger.commit(Change(lease_id=cache, lease=told))

    lease_id = world.stack.up(name="box", **USES)
    world.run_for(300)

    assert world.lease(lease_id).state in (S.REQUESTED, S.PROVISIONING)
    assert world.stack.lease(cache).state is S.RUNNING
