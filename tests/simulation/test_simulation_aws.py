"""Whole leases on AWS and on both providers under everything that can go wrong; and laws broken there on purpose, which
the simulation has to report. Small: a life on AWS takes three times as long to simulate as one on Vultr."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.lease import Reason
from gpulease.domain.observation import Observation
from gpulease.domain.record import Change
from gpulease.pause_facts import machine_held
from gpulease.ports import Deps, Ref
from gpulease.providers.aws.machines import Machines
from gpulease.providers.aws.views import MARKER_TAG, observed_instance
from gpulease.steps import create_instance, giving_back, poll_stopped, stop_instance
from gpulease.steps.base import Outcome, StepCommand
from gpulease.steps.pausing import note_stopped
from gpulease_local.simulate.audit import audit
from gpulease_local.simulate.crash import OneLease
from gpulease_local.simulate.report import Report
from gpulease_local.simulate.run import simulate
from gpulease_local.simulate.scenario import wishes
from gpulease_local.simulate.shrinking import Case, case_of
from gpulease_local.simulate.virtual import DEPLOYMENT, Fire, VirtualStack
from gpulease_local.simulate.workflows import by_name, workflows_of
from gpulease_local.world import DepsClock

SPOT = by_name("aws_spot")
"""The shortest life."""


def assert_right(report: Report) -> None:
    assert report.suspects == []
    assert report.ok
    assert report.max_unowned_seconds <= report.unowned_limit_seconds


@pytest.mark.parametrize("provider", ["aws", "mixed"])
def test_with_all_faults_nothing_is_left_doubled_stuck_or_misnamed(provider: str) -> None:
    report = simulate(leases=14, seed=7, faults="all", provider=provider)

    assert_right(report)
    assert len(report.misfortunes) > 15, "the weather was too fine to prove anything"
    assert report.strangers_untouched > 10
    assert report.pauses > 0


def test_with_agents_on_the_machines_too() -> None:
    """Reports make leases ready and keep them in use, and what is planned waits for caches to be saved."""
    case = Case(seed=9, leases=14, provider="mixed", agents=True)
    simulation = case.simulation()
    try:
        report = simulation.run()
        kinds = {event.kind for lease in simulation.stack.leases() for event in simulation.stack.events(lease.id)}
    finally:
        simulation.stack.close()

    assert_right(report)
    assert report.leases_with_cache > 0 and "cache_saved" in kinds
    assert case_of(str(case), leases=1, faults="none") == case


def test_with_the_faults_of_the_account_and_its_api_everything_ends_well() -> None:
    report = simulate(leases=10, seed=4, faults="default", provider="aws")

    assert_right(report)
    assert report.spot > 0


def test_the_same_seed_gives_the_same_history() -> None:
    first, again = (simulate(leases=3, seed=4, faults="all", provider="aws") for _ in range(2))

    assert first.digest == again.digest
    assert first.misfortunes == again.misfortunes


def test_users_of_both_providers_pause_and_use_caches_of_one_zone() -> None:
    wanted = wishes(200, 1, "mixed")

    providers = {tuple(wish.request["providers"]) for wish in wanted}
    caches = {wish.cache["provider"]: wish.cache.get("zone", "") for wish in wanted if wish.cache is not None}
    assert providers == {("aws",), ("vultr",), ()}
    assert caches["aws"].startswith("us-") and caches["vultr"] == ""
    assert {wish.request.get("spot") for wish in wanted} >= {"spot", "on-demand", "any", None}
    assert sum(bool(wish.pauses) for wish in wanted) > 20


def test_what_is_wanted_at_vultr_does_not_depend_on_aws() -> None:
    assert [wish.request for wish in wishes(50, 3)] == [wish.request for wish in wishes(50, 3, "vultr")]
    assert not any("providers" in wish.request or "spot" in wish.request for wish in wishes(50, 3))


def test_a_case_names_its_provider() -> None:
    case = Case(seed=4, leases=60, provider="mixed", only=(3,), limit=12)

    assert case_of(str(case), leases=1, faults="none") == case
    assert case_of("9", leases=5, faults="all", provider="aws").provider == "aws"


def test_crash_points_can_be_narrowed_to_a_provider() -> None:
    both, aws = workflows_of("mixed"), workflows_of("aws")

    assert {each.name for each in aws} < {each.name for each in both}
    assert [each for each in both if each.aws is None] == list(workflows_of("vultr"))
    assert all(each.aws is not None for each in aws)


def test_a_machine_that_nobody_holds_is_an_orphan() -> None:
    stack = VirtualStack(providers=("aws",)).load()
    try:
        lease_id = stack.up(name="one", gpu=["L4"])
        stack.run_for(600)
        records = [stack.record(lease_id)]
        now = DepsClock(stack.clock).now()
        assert audit(stack.clouds, records, now).orphans == ()
        [held] = [thing for thing in stack.clouds.things() if thing.kind == "instance"]
        [disk] = stack.clouds.parts_of(held.markers[0])[:1]

        stray = stack.clouds.named("aws").plant(held, f"gpulease:{DEPLOYMENT}:l-zzzzzzzzzzzz.instance.1")
        stack.run_for(60)

        now = DepsClock(stack.clock).now()
        assert set(audit(stack.clouds, records, now).orphans) >= {stray}
        assert {held.id, disk.id} <= set(audit(stack.clouds, [], now).orphans), (
            "also the disk, once nobody has its machine"
        )
    finally:
        stack.close()


# --- broken on purpose ------------------------------------------------------------------------------------------------


def rules(name: str) -> set[str]:
    """What is reported of one life."""
    return {problem.partition(":")[0] for problem in OneLease(by_name(name)).run().problems}


def few_leases() -> Report:
    """Two leases among strangers, with nothing going wrong."""
    return simulate(leases=2, seed=2, faults="all", limit=0, provider="aws")


def test_nothing_is_reported_while_the_laws_are_kept() -> None:
    assert rules(SPOT.name) == rules("pause_stops") == rules("aws_cache") == set()
    assert_right(few_leases())


def test_law_1_a_launch_without_an_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease_local.simulate.crash.LIMIT_SECONDS", 120.0)
    monkeypatch.setattr(create_instance, "Change", lambda **fields: Change(**{**fields, "resources": ()}))

    assert "no_intent" in rules(SPOT.name)


def test_law_4_an_accepted_end_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = giving_back._learn

    def learn(*parts: Any) -> giving_back.Learned:
        learned = kept(*parts)
        return replace(learned, absent=learned.delete_accepted)

    monkeypatch.setattr(giving_back, "_learn", learn)
    monkeypatch.setattr(giving_back, "is_proven_gone", lambda progress: True)

    assert "closed_while_billed" in rules("aws_end_ignored_at_first")


def test_law_8_a_search_that_does_not_compare_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: Machines, ref: Ref) -> list[Observation]:
        marked = {"Name": "tag-key", "Values": [MARKER_TAG]}
        return [observed_instance(raw, ref.region, marker=ref.marker) for raw in self._listed([marked], ref.region)]

    monkeypatch.setattr(Machines, "find", find)

    assert "foreign_touched" in few_leases().violations


def test_law_11_a_pause_that_does_not_stop_the_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    def claimed(command: StepCommand, deps: Deps) -> Outcome:
        record = deps.ledger.load(command.lease_id)
        machine = machine_held(record)
        assert machine is not None
        note_stopped(record, machine, "stopping", Decimal("0.01"), deps)
        return Outcome("stopped")

    monkeypatch.setattr(stop_instance, "_stop", lambda *parts: Outcome("stopping"))
    monkeypatch.setattr(poll_stopped, "run", claimed)

    assert "paused_while_billed" in rules("pause_stops")


# --- what an end is told as -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by_hand", "hours_without_sweep", "reason"),
    [(True, 0, Reason.LOST), (False, 0, Reason.INTERRUPTED), (True, 2, Reason.LOST), (False, 2, Reason.LOST)],
)
def test_a_spot_machine_is_told_as_taken_back_only_where_the_provider_says_so(
    by_hand: bool, hours_without_sweep: int, reason: Reason
) -> None:
    """AWS forgets what ended, and why, after an hour: what is noticed later is not guessed."""
    blind = False

    def wrap_schedule(function: str, fire: Fire) -> Fire:
        return lambda: None if blind else fire()

    stack = VirtualStack(seed=5, providers=("aws",), wrap_schedule=wrap_schedule).load()
    try:
        lease_id = stack.up(name="one", gpu=["L4"], spot="spot")
        stack.run_for(600)
        [machine] = [thing.id for thing in stack.clouds.things() if thing.kind == "instance"]

        blind = hours_without_sweep > 0
        if by_hand:
            stack.aws.remove_by_hand(machine)
        else:
            stack.aws.reclaim(machine)
        stack.run_for(3600 * hours_without_sweep)
        blind = False
        stack.run_for(1200)

        assert stack.lease(lease_id).reason is reason
    finally:
        stack.close()
