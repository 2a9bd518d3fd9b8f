"""A machine that is to go is kept until its agent has saved the cache, for a time that the ledger knows; see
`domain/flush.py`. Whole leases in virtual time, with agents that are as quick, as slow or as dead as the case wants."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from gpulease.domain.event import Event
from gpulease.domain.flush import FLUSH_TIME, LONGEST_FLUSH
from gpulease.domain.lease import Flush, LeaseState, Reason
from gpulease.steps import terminate_instance
from gpulease.steps.base import StepCommand, ref_of
from gpulease_local.simulate.workloads import Workload

from tests.support.pause_world import ONE_AWS, ONE_VULTR, PauseWorld

S = LeaseState
MINUTE = 60.0
QUIET = Workload("quiet", ())
VULTR_PLACE = {"provider": "vultr", "region": "ewr", "size_gb": 50}
AWS_PLACE = {"provider": "aws", "region": "us-east-1", "zone": "us-east-1a", "size_gb": 50}
STORE = {"object_store": {"endpoint": "https://s3.invalid", "bucket": "models"}}
NewWorld = Callable[..., PauseWorld]


@pytest.fixture
def new_world() -> Iterator[NewWorld]:
    made: list[PauseWorld] = []

    def make(saves_for: float = 5.0, *, agents: bool = True) -> PauseWorld:
        workload_of = (lambda name: QUIET) if agents else None
        world = PauseWorld(workload_of=workload_of, flush_seconds=(saves_for, saves_for))
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


def running(world: PauseWorld, place: dict[str, Any] = VULTR_PLACE, **request: Any) -> str:
    """A lease with a cache, running."""
    cache = world.stack.api("POST", "/v1/caches", {"name": "models", **place})
    world.wait(lambda: world.lease(cache["id"]).state is S.RUNNING, 600, "no cache")
    where = ONE_AWS if place.get("provider") == "aws" else ONE_VULTR
    return world.up(**where, **request, cache={"name": "models", "mounts": ["/root/.cache"]})


def alive(world: PauseWorld) -> bool:
    """Whether the provider bills a machine, by its own book."""
    now = world.stack.clock.time()
    vultr = any(each.kind == "instance" and each.destroyed is None for each in world.stack.cloud.book.billed(now))
    return vultr or any(each.destroyed is None for each in world.machines_booked())


def flush_of(world: PauseWorld, lease_id: str) -> Flush:
    flush = world.lease(lease_id).flush
    assert flush is not None
    return flush


def seconds(world: PauseWorld, at: datetime | None) -> float:
    """As T+."""
    assert at is not None
    return at.timestamp() - world.t0


def asks(world: PauseWorld, lease_id: str) -> Any:
    row = world.stack.stack.deps.agents.load(lease_id)
    return row.flush_wanted_at if row is not None else None


def only(events: list[Event]) -> Event:
    (event,) = events
    return event


def no_alarm(world: PauseWorld, *but: str) -> None:
    world.assert_right()
    assert [name for name, _ in world.stack.log.alarms if name not in but] == []


# --- a release ----------------------------------------------------------------------------------------------------


def test_a_machine_is_given_back_when_its_cache_is_saved(new_world: NewWorld) -> None:
    world = new_world(saves_for=20.0)
    lease_id = running(world)
    world.run_for(5 * MINUTE)

    asked = world.now
    world.stack.down(lease_id)
    shown = world.view(lease_id)
    world.wait(lambda: flush_of(world, lease_id).ended_at is not None, 120, "not saved")
    saved = world.now
    still_there = alive(world)
    world.until(lease_id, S.RELEASED, within=300)

    until = f"{datetime.fromtimestamp(world.t0 + asked, UTC) + LONGEST_FLUSH:%H:%M}"
    assert shown["waiting_for"] == f"its cache to be saved (until {until} UTC at most)"
    assert f"at {until} UTC at most" in shown["next"]["text"]
    assert shown["cache_saving"]["at_most_until"] > shown["cache_saving"]["deadline"]
    assert [(r["state"], r["billed"]) for r in shown["resources"]] == [("releasing", True)]
    assert still_there, "the machine was there until then"
    assert 20 <= saved - asked <= 20 + 75, "its next report, the saving, and one look"
    assert only(world.events(lease_id, "cache_saved")).level == "info"
    assert world.view(lease_id)["cache_saving"] is None
    assert world.lease(lease_id).reason is Reason.USER
    no_alarm(world)


def test_a_save_that_takes_minutes_is_waited_for_while_the_agent_says_so(new_world: NewWorld) -> None:
    world = new_world(saves_for=8 * MINUTE)
    lease_id = running(world)

    begun = world.now
    world.stack.down(lease_id)
    world.wait(lambda: not alive(world), 12 * MINUTE, "kept")
    took = world.now - begun
    world.until(lease_id, S.RELEASED, within=300)

    assert 8 * MINUTE <= took <= 10 * MINUTE
    assert flush_of(world, lease_id).ended == "saved"
    assert [e.name for e in world.stack.engine.executions() if "-release-" in e.name and lease_id in e.name] == [
        f"{lease_id}-release-2"
    ], "no second one was started beside it"
    assert world.events(lease_id, "workflow_restarted") == world.events(lease_id, "release_stuck") == []
    no_alarm(world)


def test_what_takes_for_ever_ends_after_a_quarter_of_an_hour(new_world: NewWorld) -> None:
    world = new_world(saves_for=3 * 60 * MINUTE)
    lease_id = running(world)

    begun = world.now
    world.stack.down(lease_id)
    world.wait(lambda: not alive(world), 20 * MINUTE, "kept")
    took = world.now - begun
    world.until(lease_id, S.RELEASED, within=300)

    assert LONGEST_FLUSH.total_seconds() <= took <= LONGEST_FLUSH.total_seconds() + 60
    assert "did not say" in only(world.events(lease_id, "cache_not_saved")).text
    no_alarm(world)


def test_an_agent_that_dies_while_it_saves_is_waited_for_ninety_seconds_more(new_world: NewWorld) -> None:
    world = new_world(saves_for=10 * MINUTE)
    lease_id = running(world)
    world.stack.down(lease_id)
    world.run_for(3 * MINUTE)

    assert alive(world)
    assert world.stack.agents is not None
    world.stack.agents.stopped(world.machine(lease_id).provider_id, world.stack.stack.deps.clock.now())
    died = world.now
    world.wait(lambda: not alive(world), 10 * MINUTE, "kept")

    assert world.now - died <= FLUSH_TIME.total_seconds() + 45
    world.until(lease_id, S.RELEASED, within=300)
    assert flush_of(world, lease_id).ended == "late"
    no_alarm(world)


def test_the_workflow_may_die_at_any_time(new_world: NewWorld) -> None:
    world = new_world(saves_for=4 * MINUTE)
    lease_id = running(world)

    begun = world.now
    world.stack.down(lease_id)
    world.run_for(100)
    asked = asks(world, lease_id)
    world.stack.engine.stop("release", f"{lease_id}-release-2", error="Aborted", cause="by the test")
    world.wait(lambda: not alive(world), 12 * MINUTE, "kept")
    took = world.now - begun
    world.until(lease_id, S.RELEASED, within=600)

    assert 4 * MINUTE <= took <= 4 * MINUTE + 170
    assert asks(world, lease_id) == asked, "asked once"
    assert flush_of(world, lease_id).ended == "saved"


def test_with_now_nothing_is_asked_and_nothing_waited_for(new_world: NewWorld) -> None:
    world = new_world(saves_for=5 * MINUTE)
    lease_id = running(world)

    shown = world.stack.api("DELETE", f"/v1/leases/{lease_id}", query={"now": "true"})
    world.wait(lambda: not alive(world), 20, "kept")

    assert shown["cache_saving"] is None and shown["waiting_for"] == "everything to be given back"
    assert asks(world, lease_id) is None and world.lease(lease_id).flush is None
    world.until(lease_id, S.RELEASED, within=300)
    no_alarm(world)


def test_now_ends_a_waiting_that_has_begun(new_world: NewWorld) -> None:
    world = new_world(saves_for=10 * MINUTE)
    lease_id = running(world)
    world.stack.down(lease_id)
    world.run_for(3 * MINUTE)
    world.stack.down(lease_id)
    assert alive(world), "a second word without it changes nothing"

    shown = world.stack.api("DELETE", f"/v1/leases/{lease_id}", query={"now": "true"})
    again = world.stack.api("DELETE", f"/v1/leases/{lease_id}", query={"now": "true"})
    world.wait(lambda: not alive(world), 40, "kept")

    assert shown["cache_saving"] is again["cache_saving"] is None
    assert flush_of(world, lease_id).ended == "skipped"
    assert "by its owner's word" in only(world.events(lease_id, "cache_not_saved")).text
    world.until(lease_id, S.RELEASED, within=300)
    no_alarm(world)


@pytest.mark.parametrize("agents", [True, False])
def test_who_cannot_hear_is_not_asked(new_world: NewWorld, agents: bool) -> None:
    world = new_world(agents=agents)
    lease_id = running(world, policy={"unreachable": {"enabled": False}})
    if world.stack.agents is not None:
        world.stack.agents.stopped(world.machine(lease_id).provider_id, world.stack.stack.deps.clock.now())
    world.run_for(10 * MINUTE)

    world.stack.down(lease_id)

    assert world.lease(lease_id).flush is None
    world.wait(lambda: not alive(world), 20, "kept")


def test_a_lease_without_a_cache_goes_at_once(new_world: NewWorld) -> None:
    world = new_world()
    lease_id = world.up(**ONE_VULTR)

    world.stack.down(lease_id)

    assert world.lease(lease_id).flush is None
    world.wait(lambda: not alive(world), 20, "kept")


def test_a_cache_that_is_an_object_store_alone_is_saved_too(new_world: NewWorld) -> None:
    world = new_world(saves_for=100.0)
    lease_id = running(world, STORE)
    attempt = world.lease(lease_id).attempt
    assert attempt is not None and attempt.volume is None

    begun = world.now
    world.stack.down(lease_id)
    world.wait(lambda: not alive(world), 300, "kept")

    assert world.now - begun >= 100
    assert flush_of(world, lease_id).ended == "saved"


POLICIES: dict[str, tuple[dict[str, Any], dict[str, Any], Reason]] = {
    "idle": ({"idle": {"after_seconds": 600, "then": "release"}}, {}, Reason.IDLE),
    "duration": ({}, {"max_duration_seconds": 1200}, Reason.EXPIRED),
    "budget": ({"budget_usd": "1.80", "idle": {"enabled": False}}, {}, Reason.BUDGET),
}


@pytest.mark.parametrize("which", POLICIES)
def test_each_limit_lets_the_cache_be_saved_first(new_world: NewWorld, which: str) -> None:
    policy, request, reason = POLICIES[which]
    world = new_world(saves_for=30.0)
    lease_id = running(world, policy=policy, **request)

    ended = world.until(lease_id, S.RELEASED, within=3600)

    lease = world.lease(lease_id)
    assert (lease.reason, flush_of(world, lease_id).ended) == (reason, "saved")
    # A release is said, heard with the next report, and the saving takes half a minute.
    assert ended - seconds(world, lease.release_requested_at) <= 3 * MINUTE
    no_alarm(world, "BudgetNearlySpent")


def test_a_machine_that_is_lost_has_nobody_who_could_save(new_world: NewWorld) -> None:
    world = new_world()
    lease_id = running(world, AWS_PLACE)

    world.stack.stack.deps.providers.get("aws").destroy(ref_of(world.machine(lease_id)))
    world.until(lease_id, S.RELEASED, within=3600)

    assert world.lease(lease_id).flush is None


def test_who_gives_another_machine_back_meanwhile_does_not_stay_until_the_turn_of_this_one(new_world: NewWorld) -> None:
    world = new_world(saves_for=5 * MINUTE)
    lease_id = running(world)
    world.stack.down(lease_id)
    deps, record = world.stack.stack.deps, world.record(lease_id)

    outcome = terminate_instance.run(StepCommand(lease_id=lease_id, epoch=record.lease.epoch), deps)

    assert outcome.outcome == "done" and outcome.wait_seconds <= 5
    assert not outcome.may_stay, "the next look is at the agent"


# --- a pause ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [VULTR_PLACE, AWS_PLACE])
def test_a_pause_waits_for_a_long_save_and_raises_no_alarm(new_world: NewWorld, place: dict[str, Any]) -> None:
    world = new_world(saves_for=11 * MINUTE)
    lease_id = running(world, place)

    begun = world.now
    world.pause(lease_id)
    shown = world.view(lease_id)
    paused = world.until(lease_id, S.PAUSED, within=25 * MINUTE)

    assert "its cache to be saved" in shown["waiting_for"] and shown["cache_saving"] is not None
    assert 11 * MINUTE <= paused - begun <= 15 * MINUTE
    assert only(world.events(lease_id, "cache_saved"))
    no_alarm(world)


def test_a_release_during_a_pause_goes_on_with_the_same_saving(new_world: NewWorld) -> None:
    world = new_world(saves_for=4 * MINUTE)
    lease_id = running(world)
    world.pause(lease_id)
    world.run_for(100)
    before, asked = flush_of(world, lease_id), asks(world, lease_id)

    world.stack.down(lease_id)
    world.wait(lambda: not alive(world), 6 * MINUTE, "kept")

    assert flush_of(world, lease_id).requested_at == before.requested_at
    assert flush_of(world, lease_id).ended == "saved"
    assert asks(world, lease_id) == asked, "asked once"
    world.until(lease_id, S.RELEASED, within=300)
    no_alarm(world)
