"""What caches promise is broken here on purpose, and the simulation has to report it."""

from dataclasses import replace

import pytest
from gpulease.domain.cache import taken
from gpulease.domain.lease import Reason
from gpulease.domain.record import Change
from gpulease.domain.transitions import cancel
from gpulease.ports import Deps
from gpulease.steps import attach_volume, close_lease, create_volume
from gpulease.steps.base import Outcome, StepCommand
from gpulease.steps.starting import start_release
from gpulease_local.simulate.crash import OneLease
from gpulease_local.simulate.workflows import by_name

CACHE = by_name("cache")


def rules() -> set[str]:
    """The names of what is reported of one cache and one lease."""
    return {problem.partition(":")[0] for problem in OneLease(CACHE).run().problems}


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


def test_a_volume_without_an_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease_local.simulate.crash.LIMIT_SECONDS", 300.0)

    def without_rows(lease_id: str, **fields: object) -> Change:
        return replace(Change(lease_id, **fields), resources=())  # type: ignore[arg-type]

    monkeypatch.setattr(create_volume, "Change", without_rows)

    assert "no_intent" in rules()
