"""Caches in the whole stack in virtual time: lost answers, races, expiry, loss, and volumes that nobody holds."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseKind, LeaseState, Reason
from gpulease.domain.resource import ResourceState, marker_for
from gpulease_local.simulate.effects import Effect, Kind
from gpulease_local.simulate.virtual import DEPLOYMENT, ApiRefused
from gpulease_sim.vultr import Fault

from tests.support.cache_world import MODELS, STEADY_BLOCK, USES_MODELS, Caches
from tests.support.network_world import ADA, GRACE, Misfortune, NetworkWorld

RUNNING, RELEASING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASING, LeaseState.RELEASED
VM: dict[str, Any] = {**USES_MODELS, "private_network": "none"}
DAY = 86400.0

NewWorld = Callable[..., tuple[NetworkWorld, Caches]]


@pytest.fixture
def new_world() -> Iterator[NewWorld]:
    """Makes worlds; one at a time."""
    worlds: list[NetworkWorld] = []

    def make(**how: Any) -> tuple[NetworkWorld, Caches]:
        if worlds:
            worlds.pop().close()
        worlds.append(NetworkWorld(**{"block": STEADY_BLOCK, **how}))
        return worlds[-1], Caches(worlds[-1].stack)

    yield make
    for each in worlds:
        each.close()


def leases(world: NetworkWorld) -> list[str]:
    return [lease.id for lease in world.stack.leases() if lease.kind is LeaseKind.MACHINE]


def end(world: NetworkWorld, caches: Caches, *names: str, owner: str = ADA) -> None:
    """Give everything back, and nothing may be left."""
    world.down(each for each in leases(world) if world.stack.lease(each).state is not RELEASED)
    world.until(leases(world), RELEASED)
    for name in names:
        caches.remove(name, owner=owner)
    world.until_over()
    world.assert_nothing_is_left()
    assert world.stack.log.errors == []


# --- made ---


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="POST", path="/blocks", cut=True, delay_seconds=30, times=1),
        Fault(method="POST", path="/blocks", status=504, html=True, delay_seconds=30, times=1),
        Fault(method="POST", path="/blocks", body="{}", times=1),
    ],
    ids=["cut", "gateway", "wrong-body"],
)
def test_a_volume_whose_create_answer_was_lost_is_found_and_not_made_twice(new_world: NewWorld, fault: Fault) -> None:
    world, caches = new_world()
    world.cloud.faults.add(fault)

    caches.make(ADA)

    assert len(caches.blocks()) == 1 and len(world.calls("POST", "/blocks")) == 1
    end(world, caches, "models")


def test_a_create_that_never_arrived_is_sent_again_only_after_the_window(new_world: NewWorld) -> None:
    world, caches = new_world()
    world.cloud.faults.add(Fault(method="POST", path="/blocks", execute=False, cut=True, delay_seconds=5, times=1))

    cache = caches.make(ADA)

    first, second = world.calls("POST", "/blocks")
    assert second.at - first.at >= 120, "V has passed"
    notes = [volume.release_note for volume in caches.record(cache).resources]
    assert notes == ["never appeared", ""]
    end(world, caches, "models")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"block_limit": 0}, Reason.QUOTA_EXCEEDED),
        ({"blocks_sold_out": frozenset({"ewr/high_perf"})}, Reason.NO_CAPACITY),
    ],
)
def test_a_volume_that_is_refused_ends_the_cache_with_the_reason(
    new_world: NewWorld, settings: dict[str, Any], reason: Reason
) -> None:
    world, caches = new_world(**settings)

    made = world.stack.api("POST", "/v1/caches", MODELS, owner=ADA)
    world.until([made["id"]], RELEASED, within=300)

    assert world.stack.lease(made["id"]).reason is reason and caches.blocks(existing=False) == []
    with pytest.raises(ApiRefused, match="there is no cache models"):
        caches.shown(owner=ADA)
    world.assert_nothing_is_left()


def test_a_throttled_create_is_tried_again_until_it_is_heard(new_world: NewWorld) -> None:
    world, caches = new_world()
    world.cloud.faults.add(Fault(method="POST", path="/blocks", status=429, execute=False, retry_after=5, times=3))

    caches.make(ADA)

    assert len(world.calls("POST", "/blocks")) == 4 and len(caches.blocks()) == 1
    end(world, caches, "models")


def test_a_cache_that_is_removed_while_its_create_call_is_on_its_way_leaves_nothing(new_world: NewWorld) -> None:
    removed: list[bool] = []

    def create(effect: Effect) -> bool:
        if effect.kind is Kind.PROVIDER and effect.method == "POST" and effect.path == "/blocks" and not removed:
            removed.append(True)
            caches.remove(owner=ADA)
        return False

    world, caches = new_world(misfortune=Misfortune(create, "before"))
    made = world.stack.api("POST", "/v1/caches", MODELS, owner=ADA)
    world.until([made["id"]], RELEASED, within=900)

    assert removed and len(caches.blocks(existing=False)) == 1
    world.assert_nothing_is_left()


def test_two_create_calls_carried_out_for_one_intent_leave_one_volume(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA)
    volume = caches.volume(cache)
    twin = {"region": "ewr", "size_gb": 50, "block_type": "high_perf", "label": volume.marker}

    _plant(world, twin)
    gone = world.stack.run_until(lambda: len(caches.blocks()) == 1, limit_seconds=1800)

    assert gone and caches.blocks()[0].id == volume.provider_id
    assert caches.shown(owner=ADA)["state"] == "available"
    caches.remove(owner=ADA)
    world.until_over()
    assert caches.blocks() == []


def _plant(world: NetworkWorld, body: dict[str, Any]) -> str:
    headers = {"Authorization": "Bearer x", "Content-Type": "application/json"}
    answer = world.cloud.handle("POST", "/blocks", {}, headers, json.dumps(body).encode(), "203.0.113.7")
    assert answer.status == 202, answer
    return str(answer.json()["block"]["id"])


# --- taken and left ---


def test_of_two_leases_that_want_one_cache_at_once_one_has_it(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA)

    both = world.up(2, **VM)
    world.until(both, RUNNING, RELEASED)

    (winner,) = [each for each in both if world.stack.lease(each).state is RUNNING]
    (loser,) = [each for each in both if each != winner]
    assert world.stack.lease(loser).reason is Reason.CACHE_BUSY
    assert winner in world.stack.lease(loser).reason_detail
    assert len(world.machines()) == 1, "the other one has cost nothing"
    assert world.stack.lease(cache).members == (f"{winner}.instance.1",)
    end(world, caches, "models")


def test_a_lease_waits_for_the_one_that_is_leaving(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA)
    (first,) = world.up(**VM)
    world.until([first], RUNNING)
    world.down([first])

    (second,) = world.up(**VM)
    world.until([second], RUNNING)

    assert world.stack.lease(first).state is RELEASED
    assert world.stack.lease(cache).members == (f"{second}.instance.1",)
    end(world, caches, "models")


def test_the_next_offer_of_a_refused_machine_has_the_cache(new_world: NewWorld) -> None:
    world, caches = new_world(vanishing=frozenset({"ewr/vcg-a16-2c-8g-2vram"}))
    caches.make(ADA)

    (lease,) = world.up(**VM, plans=[], gpu=["A16"])
    world.until([lease], RUNNING)

    attempts = world.stack.lease(lease).attempts
    assert len(attempts) > 1 and [a.volume.left for a in attempts if a.volume] == [True] * (len(attempts) - 1) + [False]
    end(world, caches, "models")


@pytest.mark.parametrize("how", ["before", "after", "lost"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_use_that_nobody_took_off_is_taken_off_by_the_cache_itself(new_world: NewWorld, how: str, nth: int) -> None:
    """The writes that take the cache, cut off: the lease is given back at that moment."""

    def taking(effect: Effect) -> bool:
        mine = effect.function == "CreateInstanceFunction" and effect.kind is Kind.LEDGER
        return mine and effect.name in ("write lease provisioning", "write lease running")

    misfortune = Misfortune(taking, how, nth)
    world, caches = new_world(misfortune=misfortune)
    cache = caches.make(ADA)
    (lease,) = world.up(**VM)
    world.stack.run_until(lambda: bool(misfortune.struck), limit_seconds=600, step_seconds=1)
    world.down([lease])
    world.until([lease], RELEASED)

    free = world.stack.run_until(lambda: not world.stack.lease(cache).members, limit_seconds=900)

    assert misfortune.struck and free and caches.shown(owner=ADA)["state"] == "available"
    end(world, caches, "models")


def test_an_attach_whose_answer_was_lost_is_left_only_when_the_volume_is_seen_free(new_world: NewWorld) -> None:
    world, caches = new_world(block=replace(STEADY_BLOCK, never_detaches_probability=1))
    cache = caches.make(ADA)
    world.cloud.faults.add(Fault(method="POST", path="/blocks/.*/attach", cut=True, delay_seconds=20, times=1))
    (lease,) = world.up(**VM)
    asked = world.stack.run_until(lambda: bool(world.calls("POST", "/attach")), limit_seconds=600, step_seconds=1)

    world.down([lease])
    world.until([lease], RELEASED)

    assert asked and world.calls("POST", "/detach"), "the machine's end did not free it"
    assert caches.attached_to(cache) == "" and world.stack.lease(cache).members == ()
    end(world, caches, "models")


def test_what_another_hand_attached_elsewhere_is_left_there_and_the_machine_given_back(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA)
    (other,) = world.up(**{**VM, "cache": None})
    world.until([other], RUNNING)
    machine = world.stack.record(other).resources[0].provider_id
    headers = {"Authorization": "Bearer x", "Content-Type": "application/json"}
    path, body = (
        f"/blocks/{caches.volume(cache).provider_id}/attach",
        json.dumps({"instance_id": machine, "live": True}),
    )
    assert world.cloud.handle("POST", path, {}, headers, body.encode(), "203.0.113.7").status == 204

    (lease,) = world.up(**VM)
    world.until([lease], RELEASED)

    assert world.stack.lease(lease).reason is Reason.CACHE_FAILED
    assert "hangs at another machine" in world.stack.lease(lease).reason_detail
    assert caches.attached_to(cache) == machine and world.stack.lease(other).state is RUNNING
    end(world, caches, "models")


# --- its end ---


def test_an_unused_cache_is_warned_of_and_then_removed(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA)
    (lease,) = world.up(**VM)
    world.until([lease], RUNNING)
    world.down([lease])
    world.until([lease], RELEASED)

    world.stack.run_for(12 * DAY - 600)
    assert caches.shown(owner=ADA)["warnings"] == [] and world.stack.log.alarms == []
    world.stack.run_for(1200)
    warned = caches.shown(owner=ADA)
    world.stack.run_for(2 * DAY)

    assert "nobody uses it" in warned["warnings"][0] and warned["state"] == "available"
    assert [name for name, _ in world.stack.log.alarms] == ["CacheExpiring"]
    world.until([cache], RELEASED, within=600)
    assert world.stack.lease(cache).reason is Reason.EXPIRED
    world.assert_nothing_is_left()


def test_use_takes_the_warning_back_and_a_cache_in_use_never_ends(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA, expire_after_seconds=7200)
    world.stack.run_for(3900)
    assert caches.shown(owner=ADA)["warnings"]

    (lease,) = world.up(**VM)
    world.until([lease], RUNNING)
    world.stack.run_for(2 * DAY)

    assert world.stack.lease(cache).state is RUNNING and caches.shown(owner=ADA)["warnings"] == []
    end(world, caches, "models")


def test_a_cache_that_a_paused_lease_would_come_back_with_does_not_end(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache = caches.make(ADA, expire_after_seconds=7200)
    (lease,) = world.up(**VM, policy={"paused": {"release_after_seconds": None}})
    world.until([lease], RUNNING)
    world.stack.api("POST", f"/v1/leases/{lease}/pause", owner=ADA)
    world.until([lease], LeaseState.PAUSED)

    world.stack.run_for(3 * DAY)

    assert world.stack.lease(cache).state is RUNNING and world.stack.log.alarms == []
    end(world, caches, "models")


def test_a_volume_deleted_by_hand_ends_the_cache_and_harms_nothing_else(new_world: NewWorld) -> None:
    world, caches = new_world()
    cache, other = caches.make(ADA), caches.make(ADA, name="other")
    (lease,) = world.up(**VM)
    world.until([lease], RUNNING)

    world.cloud.remove_by_hand(caches.volume(cache).provider_id)
    world.until([cache], RELEASED, within=1800)

    assert world.stack.lease(cache).reason is Reason.LOST
    assert world.stack.lease(lease).state is RUNNING and "is lost" in world.stack.lease(lease).warnings[0]
    assert world.stack.lease(other).state is RUNNING
    (lost,) = [facts for name, facts in world.stack.log.alarms if name == "CacheLost"]
    assert (lost["cache_id"], lost["user"], lost["reason"]) == (cache, ADA, "lost")
    end(world, caches, "other")


def test_the_sweep_tells_of_a_volume_that_no_cache_holds_and_leaves_it_alone(new_world: NewWorld) -> None:
    """It may hold somebody's data (a ledger that was restored): only a person decides that it goes."""
    world, caches = new_world()
    kept = caches.make(ADA)
    marker = marker_for(DEPLOYMENT, "c-bbbbbbbbbbbb.volume.1")
    stray = _plant(world, {"region": "ewr", "size_gb": 20, "block_type": "high_perf", "label": marker})
    foreign = _plant(world, {"region": "ewr", "size_gb": 20, "block_type": "high_perf", "label": "models"})

    world.stack.run_for(1800)

    assert {stray, foreign} <= {b.id for b in caches.blocks()}
    assert caches.volume(kept).state is ResourceState.HELD
    assert "UnownedResourceFound" in [name for name, _ in world.stack.log.alarms]
    assert world.stack.api("GET", "/v1/caches", owner=GRACE)["caches"] == []
    for each in (stray, foreign):
        world.cloud.remove_by_hand(each)
    end(world, caches, "models")
