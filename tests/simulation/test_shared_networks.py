"""Networks shared by the leases of one owner: one at a time in a place, and given back after the last machine."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.ports import Change
from gpulease_local.simulate.effects import Effect
from gpulease_sim.vultr import BookObject, Fault

from tests.support.network_world import ADA, GRACE, Misfortune, NetworkWorld

NewWorld = Callable[..., NetworkWorld]
RUNNING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASED
FORTY = 40
METAL: dict[str, Any] = {
    "plans": ["vbm-48c-1024gb-4-a100-gpu"],
    "plan_kinds": ["bare_metal"],
    "gpu_count": 4,
    "private_network": "preferred",
}


def is_network_create(effect: Effect) -> bool:
    return (effect.method, effect.path) == ("POST", "/vpcs")


def assert_deleted_once_after_the_last_machine(world: NetworkWorld, network: BookObject) -> None:
    deletes = world.calls("DELETE", f"/vpcs/{network.id}")
    last = max(each.destroyed or float("inf") for each in world.machines())
    assert sum(call.status < 300 for call in deletes) == 1
    assert min(call.at for call in deletes) >= last


@pytest.mark.parametrize(
    ("trouble", "machines"),
    [
        (None, {}),
        (None, {"attach_failures": (4, 9)}),
        (None, {"list_lag_seconds": (0, 60), "get_lag_seconds": (0, 45)}),
        ("before", {}),
        ("after", {"attach_failures": (0, 9)}),
    ],
    ids=["calm", "flaky-attach", "lagging-lists", "killed-before-the-create", "killed-after-the-create"],
)
def test_forty_leases_of_one_owner_share_exactly_one_network(
    new_world: NewWorld, trouble: str | None, machines: dict[str, object]
) -> None:
    misfortune = Misfortune(is_network_create, trouble) if trouble else None
    world = new_world(misfortune=misfortune, machines=machines)

    leases = world.up(FORTY)
    world.until(leases, RUNNING)

    # Killed before its create call, an intent never comes to be: the network that is made has another marker.
    [network] = world.networks()
    assert all(world.joined(each) for each in leases)
    [holder] = world.holders()
    assert sorted(holder.lease.members) == sorted(f"{each}.instance.1" for each in leases)

    world.down(leases[1:])
    world.until(leases[1:], RELEASED)
    world.stack.run_for(1800)
    assert world.calls("DELETE", f"/vpcs/{network.id}") == []

    world.down(leases[:1])
    world.until_over()
    world.stack.run_for(1800)
    assert_deleted_once_after_the_last_machine(world, network)
    assert len(world.networks()) == 1
    world.assert_nothing_is_left()


def test_a_lost_answer_to_the_create_is_found_by_its_marker(new_world: NewWorld) -> None:
    world = new_world()
    world.cloud.faults.add(Fault(method="POST", path="/vpcs", cut=True, delay_seconds=30, times=1))

    leases = world.up(FORTY)
    world.until(leases, RUNNING)

    assert len(world.networks()) == len(world.calls("POST", "/vpcs")) == 1
    world.down(leases)
    world.until_over()
    world.assert_nothing_is_left()


def test_two_owners_have_two_networks(new_world: NewWorld) -> None:
    world = new_world()

    adas, graces = world.up(3, ADA), world.up(3, GRACE)
    world.until(adas + graces, RUNNING)

    assert len(world.networks()) == 2
    members = [{member.partition(".")[0] for member in holder.lease.members} for holder in world.holders()]
    assert sorted(map(sorted, members)) == sorted([sorted(adas), sorted(graces)])


@pytest.mark.parametrize("request_", [{}, METAL], ids=["vm", "bare-metal"])
def test_a_network_that_exists_is_joined_by_the_create_call(new_world: NewWorld, request_: dict[str, Any]) -> None:
    world = new_world(machines={"attach_failures": (3, 3)})
    first = world.up()
    world.until(first, RUNNING)
    asked = len(world.calls("POST", "/vpcs/attach"))

    second = world.up(**request_)
    world.until(second, RUNNING, within=4 * 3600)

    assert world.joined(second[0])
    assert len(world.calls("POST", "/vpcs/attach")) == asked
    view = world.stack.api("GET", f"/v1/leases/{second[0]}", owner=ADA)
    [shown] = [each for each in view["resources"] if each["kind"] == "network"]
    assert (shown["shared"], shown["used_by_others"], shown["billed"]) == (True, 1, False)


def test_a_lease_with_a_network_of_its_own_shares_nothing(new_world: NewWorld) -> None:
    world = new_world()

    leases = world.up(2, network_scope="lease")
    world.until(leases, RUNNING)

    assert len(world.networks()) == 2
    assert world.holders() == []


@pytest.mark.parametrize("reworded", [False, True], ids=["own-words", "reworded"])
@pytest.mark.parametrize("status", [400, 500])
def test_a_plan_without_networks_runs_without_one_where_it_is_only_preferred(
    new_world: NewWorld, reworded: bool, status: int
) -> None:
    world = new_world(reworded=reworded, no_vpc_status=status, plans_without_vpc=frozenset(METAL["plans"]))
    first = world.up()
    world.until(first, RUNNING)

    [metal] = world.up(**METAL)
    world.until([metal], RUNNING, within=4 * 3600)

    lease = world.stack.lease(metal)
    assert any("no private network" in warning for warning in lease.warnings)
    assert {attempt.offer.plan for attempt in lease.attempts} == set(METAL["plans"])
    assert len(world.machines()) == 2
    [holder] = world.holders()
    assert holder.lease.members == (f"{first[0]}.instance.1",)
    world.down([*first, metal])
    world.until_over()
    world.assert_nothing_is_left()


@pytest.mark.parametrize(("wish", "state"), [("preferred", RUNNING), ("required", RELEASED)])
def test_at_the_limit_of_networks_the_wish_decides(new_world: NewWorld, wish: str, state: LeaseState) -> None:
    world = new_world(vpcs_per_region=0)

    leases = world.up(3, private_network=wish)
    world.until(leases, state)

    for each in leases:
        lease = world.stack.lease(each)
        assert lease.reason == (Reason.QUOTA_EXCEEDED if wish == "required" else None)
        assert bool(lease.warnings) == (wish == "preferred")
    world.stack.run_for(1200)
    assert all(holder.lease.state is RELEASED for holder in world.holders())
    assert world.networks() == []


@pytest.mark.parametrize("wait", [0, 5, 20, 45, 62, 70, 90, 130])
def test_cancelled_at_any_moment_nothing_stays(new_world: NewWorld, wait: float) -> None:
    world = new_world(machines={"attach_failures": (2, 2)})
    leases = world.up(4)
    world.stack.run_for(wait)

    world.down(leases)
    world.until_over()

    world.assert_nothing_is_left()


def test_whoever_comes_while_it_is_deleted_gets_the_next_one(new_world: NewWorld) -> None:
    world = new_world(machines={"vpc_hold_seconds": (75, 75)})
    first = world.up()
    world.until(first, RUNNING)
    world.down(first)
    world.stack.run_until(lambda: world.holders()[0].lease.state is LeaseState.RELEASING, limit_seconds=600)

    second = world.up()
    world.until(second, RUNNING)

    old, new = world.networks()
    assert world.joined(second[0])
    assert (old.destroyed is None, new.destroyed is None) == (False, True)
    assert [holder.lease.generation for holder in world.holders()] == [1, 2]


def test_a_member_that_nobody_took_off_is_found_by_the_holders_check(new_world: NewWorld) -> None:
    world = new_world()
    leases = world.up(2)
    world.until(leases, RUNNING)
    [holder] = world.holders()
    ghost = holder.lease.model_copy(update={"members": (*holder.lease.members, "l-aaaaaaaaaaaa.instance.1")})
    world.stack.ledger.commit(Change(holder.lease.id, lease=ghost))

    world.down(leases)
    world.until_over()

    world.assert_nothing_is_left()


# --- cut off at every effect ------------------------------------------------------------------------------------------

FUNCTIONS = {
    f"{name}Function" for name in ("CreateNetwork", "AttachNetwork", "NextToRelease", "DeleteNetwork", "CloseLease")
}


def is_of_networks(effect: Effect) -> bool:
    """Effects of the steps that join, make, attach, leave and give back, and of creates that carry the network."""
    return effect.function in FUNCTIONS or (
        effect.function == "CreateInstanceFunction" and (effect.machine_create or "network_shared" in effect.name)
    )


def two_leases_one_after_the_other(world: NetworkWorld) -> None:
    first = world.up()
    world.until(first, RUNNING, RELEASED)
    second = world.up()
    world.until(second, RUNNING, RELEASED)
    world.down(each for each in first + second if world.stack.lease(each).state is RUNNING)
    world.until_over(within=2 * 3600)


def number_of_effects() -> int:
    counting = Misfortune(is_of_networks, "none", nth=0)
    world = NetworkWorld(misfortune=counting)
    try:
        two_leases_one_after_the_other(world)
    finally:
        world.close()
    return len(counting.seen)


@pytest.mark.parametrize("how", ["before", "after", "lost"])
def test_cut_off_at_any_effect_nothing_stays_and_nothing_is_made_twice(new_world: NewWorld, how: str) -> None:
    effects = number_of_effects()
    assert effects > 20

    for nth in range(1, effects + 1):
        misfortune = Misfortune(is_of_networks, how, nth)
        world = new_world(misfortune=misfortune)

        two_leases_one_after_the_other(world)

        assert misfortune.struck
        world.assert_nothing_is_left()
        # A create that was never sent leaves an intent that is closed; what exists at one time is one network.
        spans = sorted((each.created, each.destroyed or float("inf")) for each in world.networks())
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), misfortune.struck
