"""`/v1/drain`, on the whole stack in virtual time: nothing new begins, everything ends, caches stay the user's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.drain import Drain
from gpulease.domain.lease import LeaseState, Reason
from gpulease.ports import DrainStore
from gpulease_local.simulate.virtual import OWNER, ApiRefused

from tests.support.case_world import REGION
from tests.support.sweep_world import SweepWorld

ADMIN = "arn:aws:iam::111122223333:user/root-of-all"
DETAIL = "the deployment is being drained"


@pytest.fixture
def world() -> Iterator[SweepWorld]:
    made = SweepWorld()
    deps = made.stack.stack.deps
    object.__setattr__(deps, "policy", replace(deps.policy, admins=frozenset({ADMIN})))
    yield made
    made.close()


def drain(world: SweepWorld, method: str = "GET", owner: str = ADMIN) -> dict[str, Any]:
    return world.stack.api(method, "/v1/drain", owner=owner)


class Hooked:
    """`ports.DrainStore` that does something before its n-th look."""

    def __init__(self, inner: DrainStore, before: dict[int, Callable[[], object]]) -> None:
        self._inner = inner
        self._before = before
        self.looks = 0

    def load(self) -> Drain:
        self.looks += 1
        self._before.pop(self.looks, lambda: None)()
        return self._inner.load()

    def save(self, drain: Drain) -> None:
        self._inner.save(drain)


def hook(world: SweepWorld, before: dict[int, Callable[[], object]]) -> Hooked:
    deps = world.stack.stack.deps
    hooked = Hooked(deps.drains, before)
    object.__setattr__(deps, "drains", hooked)
    return hooked


def switch_on(world: SweepWorld) -> None:
    deps = world.stack.stack.deps
    deps.drains.save(Drain(on=True, since=deps.clock.now(), by=ADMIN))


def test_all_leases_end_and_then_nothing_is_billed(world: SweepWorld) -> None:
    running, starting = world.up(private_network="preferred", network_scope="owner"), ""
    world.until(running, LeaseState.RUNNING, within=300)
    starting = world.up()

    begun = drain(world, "POST")
    world.until(running, LeaseState.RELEASED, within=300)
    world.until(starting, LeaseState.RELEASED, within=300)
    world.run_for(120)
    ended = drain(world)

    assert (begun["draining"], begun["done"], begun["by"]) == (True, False, ADMIN)
    assert begun["lease_count"] == 2
    assert {thing["kind"] for thing in begun["still_billed"]} >= {"instance", "network"}
    assert ended["done"]
    assert (ended["leases"], ended["still_billed"], ended["price_per_hour_usd"]) == ([], [], "0.00")
    assert world.lease(running).reason is Reason.USER
    assert world.lease(running).reason_detail == DETAIL


def test_it_is_not_done_at_once_although_nothing_is_listed(world: SweepWorld) -> None:
    assert not drain(world, "POST")["done"]

    world.run_for(11)

    assert drain(world)["done"]


def test_new_leases_are_refused_until_it_is_off(world: SweepWorld) -> None:
    drain(world, "POST")

    with pytest.raises(ApiRefused) as refused:
        world.up()
    drain(world, "DELETE")
    accepted = world.up()

    assert (refused.value.status, refused.value.problem["code"]) == (409, "draining")
    assert "--off" in refused.value.problem["detail"]
    world.until(accepted, LeaseState.RUNNING, within=300)


def test_a_repeated_request_is_still_answered_with_the_lease_that_it_made(world: SweepWorld) -> None:
    request: dict[str, Any] = {"regions": [REGION], "plan_kinds": ["vm"]}
    lease_id = world.stack.up(idempotency_key="once", **request)
    drain(world, "POST")

    assert world.stack.up(idempotency_key="once", **request) == lease_id


def test_a_lease_written_at_the_moment_of_the_switch_is_ended_by_its_own_request(world: SweepWorld) -> None:
    hook(world, {2: lambda: switch_on(world)})

    with pytest.raises(ApiRefused) as refused:
        world.up()

    assert refused.value.problem["code"] == "draining"
    lease_id = refused.value.problem["lease_id"]
    world.until(lease_id, LeaseState.RELEASED, within=60)
    assert world.lease(lease_id).attempts == ()


def test_a_lease_accepted_before_the_switch_asks_nothing_of_a_provider_after_it(world: SweepWorld) -> None:
    # Both of the request's own looks find the switch off, and whoever drains does not see the lease yet.
    hook(world, {3: lambda: switch_on(world)})

    lease_id = world.up()
    world.until(lease_id, LeaseState.RELEASED, within=60)

    assert world.lease(lease_id).attempts == ()
    assert world.lease(lease_id).reason_detail == DETAIL


def test_only_an_admin_may(world: SweepWorld) -> None:
    for method in ("GET", "POST", "DELETE"):
        with pytest.raises(ApiRefused) as refused:
            drain(world, method, owner=OWNER)
        assert (refused.value.status, refused.value.problem["code"]) == (403, "admins_only")


def test_a_cache_is_shown_with_its_price_and_stays(world: SweepWorld) -> None:
    body = {"name": "models", "provider": "vultr", "region": REGION, "size_gb": 50}
    world.stack.api("POST", "/v1/caches", body)
    world.run_for(120)

    drain(world, "POST")
    world.run_for(120)
    seen = drain(world)

    assert seen["done"]
    assert [(cache["name"], cache["provider"], cache["region"]) for cache in seen["caches"]] == [
        ("models", "vultr", REGION)
    ]


def test_a_cache_in_an_object_store_alone_is_not_billed_and_holds_nothing_up(world: SweepWorld) -> None:
    world.stack.api("POST", "/v1/caches", {"name": "far", "object_store": {"bucket": "my-models"}})
    world.stack.api("POST", "/v1/caches", CACHE)
    world.run_for(120)

    seen = drain(world, "POST")

    assert [(cache["name"], cache["owner"]) for cache in seen["caches"]] == [("late", OWNER)]


def test_no_new_cache_is_made_meanwhile(world: SweepWorld) -> None:
    drain(world, "POST")

    with pytest.raises(ApiRefused) as refused:
        world.stack.api("POST", "/v1/caches", {"name": "late", "provider": "vultr", "region": REGION, "size_gb": 50})

    assert refused.value.problem["code"] == "draining"


CACHE = {"name": "late", "provider": "vultr", "region": REGION, "size_gb": 50}


def only_cache(world: SweepWorld) -> str:
    deps = world.stack.stack.deps
    (lease,) = deps.ledger.leases_of(None, states=tuple(LeaseState)).items
    return lease.id


def test_a_cache_written_at_the_moment_of_the_switch_is_ended_by_its_own_request(world: SweepWorld) -> None:
    hook(world, {2: lambda: switch_on(world)})

    with pytest.raises(ApiRefused) as refused:
        world.stack.api("POST", "/v1/caches", CACHE)
    cache_id = only_cache(world)
    world.until(cache_id, LeaseState.RELEASED, within=60)

    assert (refused.value.status, refused.value.problem["code"]) == (409, "draining")
    assert world.record(cache_id).resources == ()
    assert world.ours() == []


def test_a_cache_accepted_before_the_switch_asks_for_no_volume_after_it(world: SweepWorld) -> None:
    # Both of the request's own looks find the switch off, and whoever drains does not see the cache yet.
    hook(world, {3: lambda: switch_on(world)})

    world.stack.api("POST", "/v1/caches", CACHE)
    cache_id = only_cache(world)
    world.until(cache_id, LeaseState.RELEASED, within=60)

    assert world.record(cache_id).resources == ()
    assert world.ours() == []
    assert world.lease(cache_id).reason_detail == DETAIL


def test_a_cache_whose_volume_was_not_asked_for_yet_is_ended_by_whoever_drains(world: SweepWorld) -> None:
    world.stack.api("POST", "/v1/caches", CACHE)
    cache_id = only_cache(world)

    drain(world, "POST")

    assert world.lease(cache_id).state is LeaseState.RELEASING
    assert world.lease(cache_id).reason_detail == DETAIL


def test_a_volume_that_was_asked_for_before_the_switch_is_seen_to_its_end(world: SweepWorld) -> None:
    world.stack.api("POST", "/v1/caches", CACHE)
    cache_id = only_cache(world)
    world.stack.run_until(lambda: bool(world.ours()), limit_seconds=60, step_seconds=1)

    drain(world, "POST")
    world.until(cache_id, LeaseState.RUNNING, within=120)

    assert [cache["name"] for cache in drain(world)["caches"]] == ["late"]
