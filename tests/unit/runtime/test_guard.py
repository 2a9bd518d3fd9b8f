"""What stands in front of an account: pauses that all workers keep, circuits, and calls passed on untouched."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gpulease.domain.observation import Absent
from gpulease.domain.resource import ResourceKind
from gpulease.errors import (
    LedgerUnavailable,
    ProviderBusy,
    ProviderError,
    ProviderFacts,
    ProviderThrottled,
    ProviderUnavailable,
)
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import Ref, SharedReads
from gpulease.runtime.guard import GuardedProvider

HERE = Ref(ResourceKind.INSTANCE, "ewr", "m", "id-1", "vm")
THERE = Ref(ResourceKind.INSTANCE, "ams", "m", "id-2", "vm")


@dataclass
class Clock:
    at: datetime = datetime(2026, 1, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Scripted:
    """An adapter whose next answers are given; then all is well."""

    name: str = "vultr"
    account: str = "vultr"
    capabilities: Any = None
    visibility_window_seconds: float = 120.0
    answers: list[Exception] = field(default_factory=list)
    calls: int = 0

    def observe(self, ref: Ref) -> Absent:
        self.calls += 1
        if self.answers:
            raise self.answers.pop(0)
        return Absent("by_id")

    destroy = observe


class Quiet:
    def info(self, event: str, **facts: object) -> None: ...

    warning = error = info


class Lost:
    """A shared store that nobody can reach."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def fail(*args: object, **more: object) -> Any:
            raise LedgerUnavailable("down")

        return fail


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def adapter() -> Scripted:
    return Scripted()


def guarded(adapter: Any, clock: Clock, shared: SharedReads | None = None) -> GuardedProvider:
    return GuardedProvider(adapter, shared=shared or SqliteSharedReads(), clock=clock, log=Quiet())


def throttled(retry_after: float = 0.0) -> ProviderThrottled:
    return ProviderThrottled(ProviderFacts("vultr", "slow down", status=429, retry_after_seconds=retry_after))


def no_answer() -> ProviderUnavailable:
    return ProviderUnavailable(ProviderFacts("vultr", "connection closed"))


def refused(provider: GuardedProvider, ref: Ref = HERE) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        provider.observe(ref)
    return caught.value


def test_a_429_keeps_every_worker_of_the_account_away_as_long_as_the_provider_asks(
    adapter: Scripted, clock: Clock
) -> None:
    shared = SqliteSharedReads()
    one, other = guarded(adapter, clock, shared), guarded(adapter, clock, shared)
    adapter.answers = [throttled(10)]

    assert refused(one).facts.retry_after_seconds == 10
    clock.advance(4)
    told = refused(other, THERE)

    assert isinstance(told, ProviderThrottled)
    assert told.facts.retry_after_seconds == 6
    assert adapter.calls == 1
    clock.advance(6)
    assert isinstance(other.observe(THERE), Absent)


def test_without_retry_after_each_refusal_doubles_the_pause(adapter: Scripted, clock: Clock) -> None:
    provider = guarded(adapter, clock)
    adapter.answers = [throttled() for _ in range(4)]

    pauses = []
    for _ in range(4):
        pauses.append(refused(provider).facts.retry_after_seconds)
        clock.advance(pauses[-1])

    assert pauses == [2, 4, 8, 16]


def test_five_calls_without_an_answer_shut_their_region_and_no_other(adapter: Scripted, clock: Clock) -> None:
    provider = guarded(adapter, clock)
    adapter.answers = [no_answer() for _ in range(5)]
    for _ in range(5):
        assert isinstance(refused(provider), ProviderUnavailable)

    told = refused(provider)

    assert isinstance(told, ProviderThrottled)
    assert told.reason == "circuit_open"
    assert "connection closed" in str(told)
    assert provider.shut_for_seconds("ewr") == told.facts.retry_after_seconds == 15
    assert adapter.calls == 5
    assert provider.shut_for_seconds("ams") == 0
    provider.observe(THERE)


def test_the_finer_reason_stays_when_the_place_is_filled_in() -> None:
    error = ProviderThrottled(ProviderFacts("vultr", "", reason="circuit_open")).at(region="ewr")

    assert error.reason == "circuit_open"


def test_after_its_time_one_call_is_let_through(adapter: Scripted, clock: Clock) -> None:
    provider = guarded(adapter, clock)
    adapter.answers = [no_answer() for _ in range(6)]
    for _ in range(5):
        refused(provider)

    clock.advance(15)
    assert isinstance(refused(provider), ProviderUnavailable)
    assert provider.shut_for_seconds("ewr") == 30
    clock.advance(30)
    provider.destroy(HERE)

    assert provider.shut_for_seconds("ewr") == 0


@pytest.mark.parametrize("answer", [ProviderBusy(ProviderFacts("vultr", "locked")), throttled(1)])
def test_a_refusal_is_an_answer(adapter: Scripted, clock: Clock, answer: ProviderError) -> None:
    provider = guarded(adapter, clock)
    adapter.answers = [*(no_answer() for _ in range(4)), answer, *(no_answer() for _ in range(4))]

    for _ in range(9):
        refused(provider)
        clock.advance(1)

    assert provider.shut_for_seconds("ewr") == 0


def test_a_call_that_was_never_made_says_nothing_of_the_region(adapter: Scripted, clock: Clock) -> None:
    provider = guarded(adapter, clock)
    unmade = ProviderThrottled(ProviderFacts("vultr", "another worker is reading it", retry_after_seconds=2))
    adapter.answers = [*(no_answer() for _ in range(4)), unmade, no_answer()]

    for _ in range(6):
        refused(provider)

    assert provider.shut_for_seconds("ewr") == 15
    assert refused(provider).reason == "circuit_open", "and nobody was told to pause"


def test_giving_back_does_not_depend_on_the_shared_store(adapter: Scripted, clock: Clock) -> None:
    provider = guarded(adapter, clock, Lost())
    adapter.answers = [throttled(5)]

    assert refused(provider).facts.retry_after_seconds == 5
    provider.destroy(HERE)

    assert adapter.calls == 2


def test_stock_that_another_worker_read_does_not_open_a_shut_region(adapter: Scripted, clock: Clock) -> None:
    provider = guarded(adapter, clock)
    adapter.live = lambda offer: offer  # type: ignore[attr-defined]
    adapter.answers = [no_answer() for _ in range(5)]
    offer: Any = type("Offer", (), {"region": "ewr"})()

    for turn in range(5):
        refused(provider)
        if turn < 4:
            provider.live(offer)

    assert provider.shut_for_seconds("ewr") == 15
