"""`GET /v1/doctor` and `POST /v1/sweep`, on the whole stack in virtual time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.ports import Policy
from gpulease_local.simulate.virtual import DEPLOYMENT, ApiRefused
from gpulease_sim.vultr import Fault

from tests.support.cache_world import Caches
from tests.support.case_world import R_SECONDS, REGION
from tests.support.sweep_world import NOBODYS, SweepWorld, marker, plant

ADMIN = "arn:aws:iam::111122223333:user/root-of-all"
SOMEBODY = "arn:aws:iam::111122223333:user/somebody"


@pytest.fixture
def world() -> Iterator[SweepWorld]:
    made = SweepWorld()
    deps = made.stack.stack.deps
    policy = replace(deps.policy, admins=frozenset({ADMIN}))
    assert isinstance(policy, Policy)
    object.__setattr__(deps, "policy", policy)
    yield made
    made.close()


def doctor(world: SweepWorld, owner: str = ADMIN, **query: str) -> dict[str, Any]:
    return world.stack.api("GET", "/v1/doctor", query=query or None, owner=owner)


def group(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in answer["groups"] if each["group"] == name)


def running(world: SweepWorld, **request: Any) -> str:
    lease_id = world.up(**request)
    world.until(lease_id, LeaseState.RUNNING, within=200)
    return lease_id


def test_before_anything_was_asked_for_there_is_nothing_to_compare(world: SweepWorld) -> None:
    answer = doctor(world)

    assert answer["places"] == []
    assert [each["count"] for each in answer["groups"]] == [0, 0, 0, 0, 0]


def test_everything_is_shown_in_its_group_with_what_it_costs(world: SweepWorld) -> None:
    kept, lost, leaving = running(world), running(world), running(world)
    world.run_for(200)
    world.cloud.remove_by_hand(world.machine_of(lost).provider_id)
    world.machine(stuck="destruction")
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    exempt = plant(world, [marker("l-cccccccccccc.instance.1"), "gpulease:keep"])
    world.set(rules=())
    world.down(leaving)

    answer = doctor(world)

    found = {each["group"]: [item["provider_id"] for item in each["items"]] for each in answer["groups"]}
    assert found == {
        "held": [world.machine_of(kept).provider_id],
        "releasing": [world.machine_of(leaving).provider_id],
        "unowned": [orphan],
        "lost": [world.machine_of(lost).provider_id],
        "exempt": [exempt],
    }
    assert {each["price_per_hour_usd"] for each in answer["groups"]} == {"1.671"}
    assert group(answer, "held")["items"][0]["at_provider"] is True
    assert group(answer, "lost")["items"][0]["at_provider"] is False
    [place] = answer["places"]
    assert (place["region"], place["source"], place["last_error"]) == (REGION, "live", "")


def test_a_user_sees_only_what_is_theirs(world: SweepWorld) -> None:
    mine, theirs = running(world), world.up(owner=SOMEBODY)
    world.until(theirs, LeaseState.RUNNING, within=200)
    twin = plant(world, [world.machine_of(mine).marker])
    plant(world, [world.machine_of(theirs).marker])
    plant(world, [marker(f"{NOBODYS}.instance.1")])

    answer = world.stack.api("GET", "/v1/doctor")

    assert answer["everybodys"] is False
    assert [item["lease_id"] for item in group(answer, "held")["items"]] == [mine]
    assert [item["provider_id"] for item in group(answer, "unowned")["items"]] == [twin]


def test_where_the_provider_does_not_answer_the_last_sweep_is_shown_and_said(world: SweepWorld) -> None:
    lease_id = running(world)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    world.run_for(R_SECONDS)
    begins = world.stack.clock.time()
    world.cloud.faults.add(Fault(method="GET", path="/instances", execute=False, status=503, from_seconds=begins))

    answer = doctor(world)

    [place] = answer["places"]
    assert (place["source"], place["verified_at"][:16]) == ("last_sweep", "2026-01-05T00:05")
    assert "unavailable" in place["last_error"]
    assert [item["provider_id"] for item in group(answer, "unowned")["items"]] == [orphan]
    [held] = group(answer, "held")["items"]
    assert (held["lease_id"], held["at_provider"]) == (lease_id, None)


def test_without_live_no_provider_is_asked(world: SweepWorld) -> None:
    running(world)
    before = world.cloud.calls_total

    assert doctor(world, live="false")["places"][0]["source"] == "never"
    assert world.cloud.calls_total == before


def test_a_provider_that_hangs_does_not_hold_up_the_answer(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    running(world)
    monkeypatch.setattr("gpulease.api.doctor.LOOK_SECONDS", 0.0)

    assert doctor(world)["places"][0]["source"] in ("never", "live")


def test_looking_changes_nothing(world: SweepWorld) -> None:
    running(world)
    plant(world, [marker(f"{NOBODYS}.instance.1")])
    states = world.stack.stack.deps.sweeps.states()

    doctor(world)

    assert world.stack.stack.deps.sweeps.states() == states
    assert not world.calls("DELETE|PATCH|PUT")


def test_only_an_admin_sweeps(world: SweepWorld) -> None:
    with pytest.raises(ApiRefused) as refused:
        world.stack.api("POST", "/v1/sweep")

    assert (refused.value.status, refused.value.problem["code"]) == (403, "admins_only")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(world: SweepWorld) -> None:
    running(world)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    world.run_for(R_SECONDS)
    world.run_for(200)

    dry = world.stack.api("POST", "/v1/sweep", query={"dry_run": "true"}, owner=ADMIN)

    assert (dry["dry_run"], dry["taken_up"]) == (True, 1)
    assert orphan in dry["lines"][0]
    assert not world.calls("DELETE")
    acted = world.stack.api("POST", "/v1/sweep", owner=ADMIN)
    assert (acted["dry_run"], acted["taken_up"], acted["complete"]) == (False, 1, 1)
    again = world.stack.api("POST", "/v1/sweep", owner=ADMIN)
    assert (again["skipped"], again["taken_up"]) == (1, 0)
    world.run_for(60)
    world.gone_at(orphan)
    assert DEPLOYMENT in world.ours("instance")[-1].markers[0]


def test_a_users_caches_are_among_what_is_held(world: SweepWorld) -> None:
    Caches(world.stack).make(SOMEBODY)

    theirs, others = (group(doctor(world, owner=owner), "held") for owner in (SOMEBODY, "arn:aws:iam::1:user/other"))

    (held,) = theirs["items"]
    assert (held["kind"], held["at_provider"], theirs["price_per_hour_usd"]) == ("volume", True, "0.006849")
    assert others["count"] == 0
