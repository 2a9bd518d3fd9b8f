"""An account that was taken out of the settings, or misspelt there: nothing final is decided about its machines."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.api.pausing import pause
from gpulease.api.problems import Problem
from gpulease.domain.agent import AgentRecord, reported
from gpulease.domain.idle import Action
from gpulease.domain.record import LeaseRecord
from gpulease.errors import InputInvalid
from gpulease.pause_facts import mode_of
from gpulease.steps import limits

from tests.support.pause_records import LEASE, later, running


class Deps:
    """A deployment whose settings do not know the lease's account; every write is refused."""

    def __init__(self, agent: AgentRecord) -> None:
        self.agents = SimpleNamespace(load=lambda lease_id: agent)
        self.policy = SimpleNamespace(agent_url="https://agents.invalid")
        self.log = SimpleNamespace(warning=lambda *what, **facts: None)
        self.providers = SimpleNamespace(get=self._unknown)
        self.ledger = SimpleNamespace(commit=self._refused, load=lambda lease_id: running())

    @staticmethod
    def _unknown(account: str) -> None:
        raise InputInvalid("no such account", field="providers")

    @staticmethod
    def _refused(change: Any) -> None:
        raise AssertionError(f"decided: {change}")


def idle_agent() -> AgentRecord:
    row = AgentRecord(lease_id=LEASE, attempt=1, token_sha256="0" * 64)
    for minute in range(120):
        row = reported(row, later(minutes=minute), {})
    return row


def test_an_idle_machine_is_looked_at_again_and_not_given_back() -> None:
    deps: Any = Deps(idle_agent())

    verdict = limits.act(running(), deps, later(minutes=119, seconds=30))

    assert verdict is not None and verdict.action is Action.NONE
    assert verdict.at is not None and verdict.at - later(minutes=119) < timedelta(minutes=10)


def test_a_pause_with_a_cache_is_refused_and_does_not_become_the_machines_end() -> None:
    deps: Any = Deps(idle_agent())
    record = running()
    with_cache = record.lease.model_copy(update={"cache_id": "c-aaaaaaaaaaaa"})
    record = LeaseRecord(with_cache, record.resources)

    assert mode_of(record, deps) is None
    with pytest.raises(Problem):
        pause(record, deps, "")
