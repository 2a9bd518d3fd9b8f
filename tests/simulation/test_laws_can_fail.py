"""Each law of the design is broken here on purpose, and the simulation has to report it: the proof that its checks can
fail. One rule or one step is replaced at a time; everything else stays as it is shipped.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpulease.api import give_back
from gpulease.domain import release, transitions
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind
from gpulease.ledger import sqlite
from gpulease.ports import Deps, InstanceRequest
from gpulease.providers.vultr.adapter import VultrProvider
from gpulease.steps import (
    base,
    check_leases,
    close_lease,
    create_instance,
    giving_back,
    losing,
    machine,
)
from gpulease.steps.base import Outcome, StepCommand
from gpulease_local.simulate.crash import OneLease, Point, Ran, Way
from gpulease_local.simulate.report import Report
from gpulease_local.simulate.run import simulate
from gpulease_local.simulate.workflows import Workflow, by_name
from gpulease_sim.vultr import MachineRule

PLAIN = by_name("expired")
"""A VM without a network; the shortest life."""
OWN_NETWORK = replace(
    by_name("vm_with_network"), request={**by_name("vm_with_network").request, "network_scope": "lease"}
)


def rules(ran: Ran) -> set[str]:
    """The names of what was reported."""
    return {problem.partition(":")[0] for problem in ran.problems}


def lived(workflow: Workflow, *points: Point) -> set[str]:
    """What is reported of one life."""
    return rules(OneLease(workflow, points).run())


def reported_somewhere(workflow: Workflow, way: Way, rule: str) -> bool:
    """Whether a cut at one of the first effects makes the simulation report it."""

    def runs() -> Iterator[set[str]]:
        for number in range(1, OneLease(workflow).run().effects + 1):
            yield lived(workflow, Point(number, way))

    return any(rule in found for found in runs())


def behaving(workflow: Workflow, **change: Any) -> Workflow:
    """The same life of a machine that behaves otherwise."""
    return replace(workflow, settings=replace(workflow.settings, rules=(MachineRule(change=change),)))


@pytest.mark.parametrize("workflow", [PLAIN, OWN_NETWORK, by_name("cancel_at_PollInstance")])
def test_nothing_is_reported_while_the_laws_are_kept(workflow: Workflow) -> None:
    assert lived(workflow) == set()


def test_law_1_a_create_without_an_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease_local.simulate.crash.LIMIT_SECONDS", 300.0)
    monkeypatch.setattr(create_instance, "Change", lambda **fields: Change(**{**fields, "resources": ()}))

    assert "no_intent" in lived(PLAIN)


def test_law_2_a_create_repeated_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = create_instance.run

    def run(command: StepCommand, deps: Deps) -> Outcome:
        record = deps.ledger.load(command.lease_id)
        open_ = [r for r in record.of_kind(ResourceKind.INSTANCE) if not r.provider_id]
        if record.lease.attempt is not None and open_:
            offer = record.lease.attempt.offer
            again = InstanceRequest(offer=offer, marker=open_[0].marker, label="again", user_data=b"")
            deps.providers.get(offer.provider).create_instance(again)
        return kept(command, deps)

    monkeypatch.setattr(create_instance, "run", run)

    assert reported_somewhere(PLAIN, Way.AFTER, "create_repeated")


def test_law_3_a_workflow_that_ignores_a_newer_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_before(command: StepCommand, deps: Deps, *states: LeaseState) -> LeaseRecord:
        record = deps.ledger.load(command.lease_id)
        if record.lease.epoch == command.epoch or not record.lease.attempts:
            return record
        open_again = record.lease.attempts[-1].model_copy(update={"ended_at": None, "reason": None})
        attempts = (*record.lease.attempts[:-1], open_again)
        before = {"state": LeaseState.PROVISIONING, "attempts": attempts, "epoch": command.epoch}
        return replace(record, lease=record.lease.model_copy(update=before))

    kept = sqlite.SqliteLedger.commit
    monkeypatch.setattr(sqlite.SqliteLedger, "commit", lambda self, change: kept(self, replace(change, epoch=None)))
    monkeypatch.setattr(create_instance, "load_current", as_before)

    assert "decided_too_late" in lived(by_name("cancel_at_CreateInstance"))


def test_law_4_an_accepted_delete_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = giving_back._learn

    def learn(*parts: Any) -> giving_back.Learned:
        learned = kept(*parts)
        return replace(learned, absent=learned.delete_accepted)

    monkeypatch.setattr(giving_back, "_learn", learn)
    monkeypatch.setattr(giving_back, "is_proven_gone", lambda progress: True)

    assert "closed_while_billed" in lived(PLAIN)


def test_law_4_an_error_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = giving_back._learn

    def learn(*parts: Any) -> giving_back.Learned:
        learned = kept(*parts)
        return replace(learned, absent=bool(learned.error))

    monkeypatch.setattr(giving_back, "_learn", learn)
    monkeypatch.setattr(giving_back, "is_proven_gone", lambda progress: True)

    assert "closed_while_billed" in lived(by_name("release_refused_at_first"))


def test_law_4_an_empty_list_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(resource: Resource, progress: Any, provider: Any, deps: Deps) -> giving_back.Learned:
        return giving_back.Learned(absent=not provider.find(base.ref_of(resource)))

    monkeypatch.setattr(giving_back, "_learn", learn)
    monkeypatch.setattr(giving_back, "is_proven_gone", lambda progress: True)
    hidden = behaving(replace(PLAIN, cancel_at="WaitBeforePoll"), list_lag_seconds=30)

    assert "closed_while_billed" in lived(hidden)


def test_law_5_a_lease_closed_with_something_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: StepCommand, deps: Deps) -> Outcome:
        record = deps.ledger.load(command.lease_id)
        return kept(command, _Seeing(deps, replace(record, resources=())))

    kept = close_lease.run
    monkeypatch.setattr(close_lease, "run", run)
    monkeypatch.setattr("gpulease.steps.next_to_release.next_to_release", lambda record, now: release.NextRelease(None))

    assert "closed_while_billed" in lived(PLAIN)


class _Seeing:
    """The same parts, and a ledger that shows one record whatever is stored."""

    def __init__(self, deps: Deps, record: LeaseRecord) -> None:
        self._deps = deps
        self._record = record
        self.ledger = self

    def load(self, lease_id: str) -> LeaseRecord:
        return self._record

    def commit(self, change: Any) -> None:
        self._deps.ledger.commit(change)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._deps, name)


def test_law_6_the_network_before_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ORDER", tuple(reversed(release.ORDER)))
    monkeypatch.setattr(release, "_must_wait_for_machine", lambda resource, record: False)

    assert "network_before_machine" in lived(OWN_NETWORK)


def test_law_8_a_sweep_that_believes_its_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease.domain.sweep.LOOKS_NEEDED", 1)
    monkeypatch.setattr("gpulease.steps.sweep.LOOKS_APART", timedelta(0))
    monkeypatch.setattr(losing, "_exists", lambda deps, provider, resource: False)
    late = behaving(replace(by_name("cancel_at_MarkRunning"), cancel_at="", hold_seconds=900), list_lag_seconds=800)

    assert "wrong_reason" in lived(late)


def test_law_8_a_search_that_does_not_compare_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: VultrProvider, ref: Any) -> Any:
        return [seen for route in self._routes(ref) for seen in _everything(self, route, ref.marker)]

    monkeypatch.setattr(VultrProvider, "find", find)

    assert "foreign_touched" in few_leases().violations


def _everything(provider: VultrProvider, route: Any, marker: str) -> Any:
    from gpulease.providers.vultr.models import Machine
    from gpulease.providers.vultr.views import observed_machine

    listed = provider._client.listing(route.path, route.many, Machine)
    return [observed_machine(each, route, marker) for each in listed]


def few_leases() -> Report:
    """Four leases among strangers, with nothing going wrong."""
    return simulate(leases=4, seed=2, faults="all", limit=0)


def test_few_leases_among_strangers_end_well() -> None:
    report = few_leases()

    assert report.ok, report.suspects
    assert report.strangers_untouched > 5


def test_law_9_a_workflow_that_nobody_takes_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_leases, "check", lambda lease_id, deps: "")

    assert reported_somewhere(by_name("cancel_at_MarkRunning"), Way.ABORTED, "stuck")


def test_law_9_a_function_that_outlives_its_death(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = create_instance._send

    def send(*parts: Any) -> Outcome:
        try:
            return kept(*parts)
        except BaseException:
            return Outcome("unknown")

    monkeypatch.setattr(create_instance, "_send", send)

    assert reported_somewhere(by_name("cancel_at_PollInstance"), Way.AFTER, "kill_swallowed")


def test_a_404_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(record: LeaseRecord, attempt: Any, resource: Resource, *others: Any) -> machine.Seen:
        deps: Deps = others[-1]
        deps.ledger.commit(base.fail_attempt(record, deps.clock.now(), Reason.LOST, "404"))
        return machine.Seen("failed")

    monkeypatch.setattr(machine, "_absent", absent)
    fresh = behaving(by_name("cancel_at_MarkRunning"), get_lag_seconds=45, list_lag_seconds=45)

    assert "wrong_reason" in lived(fresh)


def test_an_end_that_is_written_down_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = release.released

    def released(resource: Resource, now: datetime, note: str) -> Resource:
        return kept(resource, now, note).model_copy(update={"released_at": resource.billed_from})

    monkeypatch.setattr(giving_back, "released", released)

    assert "cost_too_low" in few_leases().violations


def test_a_reason_that_nothing_speaks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = transitions.cancel
    monkeypatch.setattr(give_back, "cancel", lambda record, **said: kept(record, **{**said, "reason": Reason.LOST}))

    assert few_leases().wrong_reason > 0


def test_a_machine_that_goes_while_its_cache_is_being_saved() -> None:
    assert lived(replace(by_name("cache_saved_first"), saves_for=3600.0)) == {"cache_not_saved"}
