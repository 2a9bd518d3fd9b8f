"""Whole leases under everything that can go wrong, workflows cut off at each effect, and what explains a failure."""

import json

import pytest
from gpulease_local import simulate as command
from gpulease_local.simulate import shrinking
from gpulease_local.simulate.crash import WAYS, OneLease, Point, Way, enumerate_all, points_of, ran_of
from gpulease_local.simulate.report import Report
from gpulease_local.simulate.run import simulate
from gpulease_local.simulate.shrinking import Case, case_of, tell
from gpulease_local.simulate.workflows import WORKFLOWS, Workflow, by_name

LEASES = 60


def test_with_all_faults_nothing_is_left_doubled_stuck_or_misnamed() -> None:
    report = simulate(leases=LEASES, seed=11, faults="all")

    assert report.suspects == []
    assert report.ok
    assert report.leases + report.refused == LEASES
    assert report.leases_with_cache > 0
    assert report.max_unowned_seconds <= report.unowned_limit_seconds
    assert len(report.misfortunes) > 20, "the weather was too fine to prove anything"


@pytest.mark.parametrize("faults", ["none", "default"])
def test_the_calmer_profiles_end_well_too(faults: str) -> None:
    report = simulate(leases=30, seed=5, faults=faults)

    assert report.suspects == []
    assert report.misfortunes == {}
    assert report.max_unowned_seconds_in_all == 0


def test_the_same_seed_gives_the_same_history_and_another_one_another() -> None:
    first, again, other = (simulate(leases=8, seed=seed, faults="all") for seed in (3, 3, 4))

    assert first.digest == again.digest
    assert first.misfortunes == again.misfortunes
    assert first.digest != other.digest


SAMPLED = {"pause_while_locked": 150, "pause_keeps_cache": 30}
"""Long lives: every so manieth of their effects is cut."""


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_a_sample_of_all_crash_points_ends_as_if_nothing_had_happened(workflow: Workflow) -> None:
    # A life on AWS takes several times as long to simulate: `gpulease simulate --crash-points` has all points.
    every = SAMPLED.get(workflow.name, 9 if workflow.aws is None else 60)
    report = enumerate_all(every=every, workflows=[workflow])

    assert report.failures == []
    assert report.points >= report.workflows[workflow.name] * 2 // every
    assert report.workflows[workflow.name] < 5 * every or set(report.ways) == {way.value for way in WAYS}
    assert (report.orphans, report.duplicates, report.stuck, report.not_reached) == (0, 0, 0, 0)


def test_pairs_of_crash_points_end_well() -> None:
    report = enumerate_all(pairs=20, every=10_000, workflows=[by_name("cancel_at_PollInstance"), by_name("expired")])

    assert report.failures == []
    assert report.pairs == 20


def test_a_twin_in_the_middle_of_each_call_changes_nothing() -> None:
    report = enumerate_all(ways=[Way.TWIN], workflows=[by_name("expired")])

    assert report.failures == []
    assert report.points > 20


def test_given_back_in_the_middle_of_any_call_it_ends_as_if_nothing_had_happened() -> None:
    report = enumerate_all(every=2, ways=[Way.GIVEN_BACK], workflows=[by_name("vm_with_network")])

    assert report.failures == []
    assert report.points > 20


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_every_effect_of_a_workflow_is_a_point(workflow: Workflow) -> None:
    ran = OneLease(workflow).run()

    numbers = {point.effect for point in points_of(ran)}

    assert ran.problems == ()
    assert numbers == set(range(1, ran.effects + 1))


def test_a_cut_can_be_run_again_with_its_timeline() -> None:
    cut = OneLease(by_name("expired"), [Point(6, Way.AFTER)]).run()

    again = ran_of("workflow=expired,cut=killed_after@6")

    assert again.hit == cut.hit != ()
    assert any("#6 " in line and "Killed" in line for line in again.timeline)


def test_a_failure_is_cut_down_to_the_misfortunes_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_with_the_seventh(case: Case) -> tuple[Report, int]:
        happened = 20 if case.limit is None else case.limit
        concerned = not case.only or 2 in case.only
        return Report(leases=1, seed=case.seed, faults="all", stuck=int(concerned and happened >= 7)), happened

    monkeypatch.setattr(shrinking, "run_case", fails_with_the_seventh)

    small = shrinking.shrink(Case(seed=2, leases=10), 2, lambda text: None)

    assert small == Case(seed=2, leases=10, only=(2,), limit=7)


def test_the_story_of_a_lease_has_all_sides() -> None:
    told = tell(Case(seed=2, leases=3, only=(1,)))

    story = "\n".join(told.timeline)
    assert told.report.ok
    assert all(side in story for side in ("effect ", "state  ", "ledger ", "book   "))


def test_a_case_is_read_as_it_is_written() -> None:
    case = Case(seed=4, leases=60, only=(3, 7), limit=12)

    assert case_of(str(case), leases=1, faults="none") == case
    assert case_of("9", leases=5, faults="all") == Case(seed=9, leases=5)
    with pytest.raises(ValueError, match="unknown in --replay: sead"):
        case_of("sead=4", leases=1, faults="all")


def test_the_command_prints_one_object_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(leases=3, seed=2, faults="all", json_output=True)

    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (printed["orphans"], printed["duplicates"], printed["stuck"], printed["wrong_reason"]) == (0, 0, 0, 0)
    assert "max_unowned_seconds" in printed
