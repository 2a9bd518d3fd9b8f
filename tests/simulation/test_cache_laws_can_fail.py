"""What caches promise is broken here on purpose, and the simulation has to report it."""

from dataclasses import replace

import pytest
from gpulease.domain.cache import taken
from gpulease.domain.lease import Reason
from gpulease.domain.record import Change
from gpulease.domain.transitions import cancel
from gpulease.ports import Deps
from gpulease.steps import attach_volume, close_lease, create_volume, mark_running, start_instance
from gpulease.steps.base import Outcome, StepCommand, ref_of
from gpulease.steps.starting import start_release
from gpulease_local.simulate.crash import OneLease
from gpulease_local.simulate.workflows import Workflow, by_name

CACHE = by_name("cache")


IN_VAIN = by_name("replace_comes_to_nothing_with_cache")


def rules(workflow: Workflow = CACHE) -> set[str]:
    """The names of what is reported of one cache and one lease."""
    return {problem.partition(":")[0] for problem in OneLease(workflow).run().problems}


def test_nothing_is_reported_while_the_promises_are_kept() -> None:
    assert rules() == set()


def test_a_cache_that_ends_with_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    closing = close_lease.run

    def both(command: StepCommand, deps: Deps) -> Outcome:
        lease = deps.ledger.load(command.lease_id).lease
        outcome = closing(command, deps)
        if lease.cache_id and outcome.outcome == "closed":
            cache = deps.ledger.load(lease.cache_id)
            deps.ledger.commit(cancel(cache, now=deps.clock.now(), reason=Reason.UNUSED))
            start_release(deps.ledger.load(lease.cache_id), deps)
        return outcome

    monkeypatch.setattr(close_lease, "run", both)

    assert "cache_lost" in rules()


def test_a_cache_that_counts_two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = attach_volume.run

    def crowd(command: StepCommand, deps: Deps) -> Outcome:
        cache = deps.ledger.load(deps.ledger.load(command.lease_id).lease.cache_id).lease
        if len(cache.members) == 1:
            two = taken(cache, cache.members[0], deps.clock.now())
            both = two.model_copy(update={"members": (*cache.members, "l-zzzzzzzzzzzz.instance.1")})
            deps.ledger.commit(Change(cache.id, lease=both))
        return asking(command, deps)

    monkeypatch.setattr(attach_volume, "run", crowd)
    monkeypatch.setattr("gpulease_local.simulate.crash.LIMIT_SECONDS", 400.0)

    assert "two_users" in rules()


def test_a_machine_that_runs_without_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_volume, "run", lambda command, deps: Outcome("attached"))

    assert "runs_without_cache" in rules()


def test_a_stopped_machine_that_starts_without_the_volume_it_had_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules(IN_VAIN) == set()
    monkeypatch.setattr(start_instance, "needs_volume", lambda attempt: False)

    assert "runs_without_cache" in rules(IN_VAIN)


def test_a_volume_that_is_taken_from_a_machine_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    marking = mark_running.run

    def taking(command: StepCommand, deps: Deps) -> Outcome:
        record = deps.ledger.load(command.lease_id)
        (volume,), (machine,) = deps.ledger.load(record.lease.cache_id).resources, record.resources
        deps.providers.get(volume.account).detach_volume(ref_of(volume), ref_of(machine))
        return marking(command, deps)

    monkeypatch.setattr(mark_running, "run", taking)

    assert "volume_while_used" in rules(by_name("aws_cache"))


def test_a_volume_without_an_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease_local.simulate.crash.LIMIT_SECONDS", 300.0)

    def without_rows(lease_id: str, **fields: object) -> Change:
        return replace(Change(lease_id, **fields), resources=())  # type: ignore[arg-type]

    monkeypatch.setattr(create_volume, "Change", without_rows)

    assert "no_intent" in rules()
