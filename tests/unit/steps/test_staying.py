"""Several looks within one call: how long it goes on, and what ends it."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.errors import LedgerUnavailable, ProviderFacts, ProviderUnavailable
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.steps.base import Outcome
from gpulease.steps.staying import CALLS_AT_ONCE, look_again

START = datetime(2026, 1, 5, tzinfo=UTC)
MOST_SECONDS = 45.0


class World:
    """Deps, as far as staying needs them; time passes only by waiting."""

    def __init__(self, most_seconds: float = MOST_SECONDS) -> None:
        self.at = START
        self.slept: list[float] = []
        self.shared: Any = SqliteSharedReads()
        self.clock = SimpleNamespace(now=lambda: self.at)
        self.waits = SimpleNamespace(most_seconds=most_seconds, sleep=self._sleep)
        self.looks = 0

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)

    def look(self, *outcomes: Outcome) -> Outcome:
        """One outcome after the other; the last one for ever."""
        self.looks += 1
        return outcomes[min(self.looks, len(outcomes)) - 1]


WAITING = Outcome("waiting", 4)


def stay(world: Any, *outcomes: Outcome, again: str = "waiting") -> Outcome:
    return look_again(lambda: world.look(*outcomes), world, again=again)


def test_a_call_looks_again_until_there_is_something_to_say() -> None:
    world = World()

    outcome = stay(world, WAITING, WAITING, Outcome("active"))

    assert outcome.outcome == "active"
    assert world.slept == [4, 4]


def test_a_call_ends_before_its_time_is_over() -> None:
    world = World()

    outcome = stay(world, WAITING)

    assert outcome == WAITING
    assert sum(world.slept) <= MOST_SECONDS < sum(world.slept) + 4


def test_the_time_of_the_looks_counts_as_well() -> None:
    world = World()

    def slow() -> Outcome:
        world.at += timedelta(seconds=30)
        return WAITING

    look_again(slow, world)  # type: ignore[arg-type]

    assert world.slept == [4]


def test_a_long_pause_is_left_to_the_state_machine() -> None:
    world = World()

    outcome = stay(world, WAITING, Outcome("waiting", 30))

    assert outcome.wait_seconds == 30
    assert world.slept == [4]


def test_what_another_step_goes_on_with_is_not_waited_for() -> None:
    world = World()

    stay(world, Outcome("done", 5, may_stay=False), again="done")

    assert world.slept == []


def test_one_look_is_all_where_nobody_may_wait() -> None:
    world = World(most_seconds=0.0)
    world.shared = None

    assert stay(world, WAITING) == WAITING
    assert world.looks == 1


def test_a_failure_of_a_later_look_is_a_failure_of_the_call() -> None:
    world = World()

    def failing() -> Outcome:
        if world.slept:
            raise ProviderUnavailable(ProviderFacts(provider="vultr", message="no answer"))
        return WAITING

    with pytest.raises(ProviderUnavailable):
        look_again(failing, world)  # type: ignore[arg-type]


def test_few_calls_wait_at_the_same_time_however_many_there_are() -> None:
    world = World()
    ends: list[datetime] = []
    most = 0

    for _ in range(400):
        moment = world.at
        stay(world, WAITING)
        if world.at > moment:
            ends.append(world.at)
        world.at = moment + timedelta(seconds=0.5)
        most = max(most, sum(end > world.at for end in ends))

    assert most == CALLS_AT_ONCE


def test_a_call_does_not_wait_where_the_queue_cannot_be_read() -> None:
    world = World()
    world.shared = SimpleNamespace(reserve=_raising)

    assert stay(world, WAITING) == WAITING
    assert world.slept == []


def _raising(*_: object) -> None:
    raise LedgerUnavailable("no answer")
