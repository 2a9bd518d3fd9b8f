"""Sweeps that meet, die, run out of time or are refused: nothing is done twice and nothing is forgotten."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.sweep import SWEEP_EVERY, SweepReport
from gpulease.errors import LedgerUnavailable
from gpulease.steps import sweep

from tests.support.case_world import R_SECONDS, VM_PLAN
from tests.support.kills import Killed
from tests.support.sweep_world import NOBODYS, SWEEP, SweepWorld, marker, plant

RUNNING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASED


@pytest.fixture
def world(reworded: bool) -> Iterator[SweepWorld]:
    made = SweepWorld(reworded=reworded)
    yield made
    made.close()


def _running(world: SweepWorld, **request: Any) -> str:
    lease_id = world.up(**request)
    world.until(lease_id, RUNNING, within=200)
    return lease_id


def _sweep(world: SweepWorld, **options: Any) -> SweepReport:
    """One sweep, in a call of its own, as the function would make it."""
    report, _ = world.stack._timed(lambda: sweep.run(world.stack.stack.deps, **options))
    assert isinstance(report, SweepReport)
    return report


@pytest.mark.parametrize("later", [0.0, 1.0, 30.0, 59.0, 90.0])
def test_a_schedule_that_fires_twice_acts_once(world: SweepWorld, later: float) -> None:
    _running(world)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    world.run_for(R_SECONDS - world.stack.clock.time() % R_SECONDS)
    for _ in range(3):
        world.stack.invoke_later(later, SWEEP, {})
        world.run_for(R_SECONDS)

    world.gone_at(orphan)
    assert len(world.calls("DELETE")) == 1
    assert len(world.alarms("UnownedResourceFound")) == 1
    world.assert_right_at_the_end()


def test_two_sweepers_with_the_same_reading_do_no_harm(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the states before either claims a place."""
    _running(world)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    world.run_for(2 * R_SECONDS - world.stack.clock.time() % R_SECONDS - 100)
    sweeps = world.stack.stack.deps.sweeps
    stale = sweeps.states()

    first = _sweep(world)
    monkeypatch.setattr(sweeps, "states", lambda: stale)
    second = _sweep(world)
    monkeypatch.undo()

    assert (first.taken_up, second.taken_up, second.skipped) == (1, 0, 1)
    world.run_for(60)
    world.gone_at(orphan)
    world.assert_right_at_the_end()


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "answer-lost"])
@pytest.mark.parametrize("fail", [LedgerUnavailable, Killed], ids=["error", "killed"])
def test_a_sweep_that_is_cut_off_while_taking_up_is_continued(
    world: SweepWorld, carried_out: bool, fail: type[BaseException]
) -> None:
    _running(world)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    planted = world.now
    world.fail_commits(
        lambda change: change.lease_id == NOBODYS, lambda: fail("Sandbox.Timedout"), carried_out=carried_out
    )

    world.run_for(4 * R_SECONDS)

    assert world.gone_at(orphan) <= planted + 3 * R_SECONDS + 60
    assert world.lease(NOBODYS).state is RELEASED
    world.assert_right_at_the_end()


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "answer-lost"])
def test_a_sweep_that_is_cut_off_while_ending_a_lost_lease_is_continued(world: SweepWorld, carried_out: bool) -> None:
    lease_id = _running(world)
    world.run_for(200)
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)
    world.fail_commits(
        lambda change: change.lease is not None and change.lease.state is LeaseState.RELEASING,
        lambda: Killed("Sandbox.Timedout"),
        carried_out=carried_out,
    )

    world.run_for(4 * R_SECONDS)

    assert world.lease(lease_id).state is RELEASED
    world.assert_right_at_the_end()


def test_a_run_that_ends_in_time_is_continued_by_the_next_one(world: SweepWorld) -> None:
    for region in ("ewr", "ord", "fra"):
        _running(world, regions=[region], plans=[VM_PLAN], plan_kinds=["vm"])
    world.off.add(SWEEP)
    world.run_for(120)
    world.set(list_latency_seconds=(2, 2))

    seen = []
    for _ in range(3):
        before = {each.region: each.last_try_at for each in world.stack.stack.deps.sweeps.states()}
        report = _sweep(world, time_limit=timedelta(seconds=1))
        assert (report.places, report.left) == (1, 2)
        after = {each.region: each.last_try_at for each in world.stack.stack.deps.sweeps.states()}
        seen += [region for region in after if after[region] != before[region]]
        world.run_for(10)

    assert sorted(seen) == ["ewr", "fra", "ord"]


def test_places_share_the_lists_that_have_no_region(world: SweepWorld) -> None:
    for region in ("ewr", "ord", "fra"):
        _running(world, regions=[region], plans=[VM_PLAN], plan_kinds=["vm"])
    world.off.add(SWEEP)
    world.run_for(120)
    before = world.cloud.calls_total

    assert _sweep(world).complete == 3

    paths = [call.path for call in list(world.cloud.calls)[before:]]
    assert sorted(paths) == ["/bare-metals", "/blocks", *["/instances"] * 3, "/vpcs"]


def test_a_refused_key_is_told_once_an_hour_and_giving_back_goes_on(world: SweepWorld) -> None:
    lease_id = _running(world)
    world.run_for(R_SECONDS)
    world.set(api_keys=frozenset({"another"}))
    world.down(lease_id)

    world.run_for(2.5 * 3600)

    alarms = world.alarms("ProviderAuthFailed")
    assert len(alarms) == 3
    assert {(each["account"], each["status"]) for each in alarms} == {("vultr", 401)}
    assert world.lease(lease_id).state is LeaseState.RELEASING
    assert len(world.alarms("ReleaseStuck")) == 1
    world.set(api_keys=None)
    world.until(lease_id, RELEASED, within=600)
    world.assert_right_at_the_end()


def test_a_place_is_known_before_anything_is_asked_for_there(world: SweepWorld) -> None:
    world.fail_commits(lambda change: bool(change.resources), lambda: Killed("Sandbox.Timedout"), carried_out=False)
    world.up()
    world.run_for(1)

    assert not world.calls("POST")
    assert [(each.account, each.region) for each in world.stack.stack.deps.sweeps.states()] == [("vultr", "ewr")]


def test_an_account_that_is_no_longer_configured_is_said_to_be_unverified(world: SweepWorld) -> None:
    world.stack.stack.deps.sweeps.note_place("sold", "ewr")
    lease_id = _running(world)

    world.run_for(4 * R_SECONDS)

    [alarm] = world.alarms("SweepIncomplete")
    assert alarm["account"] == "sold"
    assert world.state_of().incomplete_runs == 0
    assert world.lease(lease_id).state is RUNNING


def test_the_schedule_is_as_often_as_the_rules_think(world: SweepWorld) -> None:
    every = [each.every_seconds for each in world.stack.stack.template.schedules if each.function == SWEEP]

    assert every == [SWEEP_EVERY.total_seconds()] == [R_SECONDS]


def test_what_is_seen_for_the_first_time_is_told_and_not_touched(world: SweepWorld) -> None:
    _running(world)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    kept = plant(world, [marker("l-cccccccccccc.instance.1"), "gpulease:keep"])
    world.off.add(SWEEP)
    world.run_for(10)

    report = _sweep(world)

    assert (report.taken_up, report.watching, report.exempt) == (0, 1, 1)
    assert {line.rpartition(": ")[2]: line.split()[1] for line in report.lines} == {
        "given back if it is seen so again": orphan,
        "exempt": kept,
    }


def test_a_release_whose_function_only_fails_is_told_by_the_sweep_once(world: SweepWorld) -> None:
    lease_id = _running(world)
    world.off.add("TerminateInstanceFunction")
    world.down(lease_id)

    world.run_for(3600)

    [alarm] = world.alarms("ReleaseStuck")
    assert (alarm["lease_id"], alarm["reason"]) == (lease_id, "not_worked_on")
    world.off.clear()
    world.until(lease_id, RELEASED, within=600)
