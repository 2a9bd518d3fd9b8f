"""When a stopped machine's volume is detached, by single turns: only at rest, once, and never late."""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.domain.cache import cache_owner
from gpulease.domain.cache_spec import CacheSpec
from gpulease.domain.lease import Attempt, Lease, LeaseKind, LeaseState, Reason, VolumeAttachment
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.policy import Capacity
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import BillingRule, Resource, ResourceKind, ResourceState
from gpulease.domain.resume import kept_before, new_machine
from gpulease.domain.spec import LeaseSpec
from gpulease.errors import ProviderBusy, ProviderFacts, ProviderUnavailable
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import Ref
from gpulease.steps.base import Outcome
from gpulease.steps.handing_over import hand_over

from tests.support.pause_records import LEASE, NOW, OFFER, after, later, resuming

CACHE, VOLUME = "c-aaaaaaaaaaaa", "vol-1"
BEGAN = later(hours=2)


def a_cache() -> tuple[Lease, Resource]:
    lease = Lease(
        id=CACHE,
        owner=cache_owner("ada"),
        name="models",
        spec=LeaseSpec(),
        state=LeaseState.RUNNING,
        epoch=1,
        created_at=NOW,
        updated_at=NOW,
        kind=LeaseKind.CACHE,
        cache=CacheSpec(
            user="ada", account="aws", provider="aws", region="us-east-1", size_gb=50, expire_after_seconds=None
        ),
        members=(f"{LEASE}.instance.1",),
    )
    volume = Resource(
        id=f"{CACHE}.volume.1",
        lease_id=CACHE,
        attempt=1,
        kind=ResourceKind.VOLUME,
        provider="aws",
        account="aws",
        region="us-east-1",
        marker=f"{CACHE}.volume.1",
        state=ResourceState.HELD,
        intended_at=NOW,
        provider_id=VOLUME,
        billing=BillingRule.PER_SECOND,
        attached_to=f"{LEASE}.instance.1",
    )
    return lease, volume


def a_replacement() -> LeaseRecord:
    """A lease whose stopped machine holds its cache, and that has chosen an offer for a new one."""
    record = resuming(Capacity.REPLACE)
    had = VolumeAttachment(holder_id=CACHE, ever_accepted=True, attached_at=NOW)
    given = record.lease.attempts[0].model_copy(update={"volume": had})
    record = LeaseRecord(record.lease.model_copy(update={"attempts": (given,)}), record.resources)
    record = after(record, new_machine(record, BEGAN, Reason.NO_CAPACITY, "none"))
    fresh = Attempt(number=2, offer=OFFER, started_at=BEGAN, ready_deadline=BEGAN + timedelta(minutes=15))
    lease = record.lease.model_copy(update={"attempts": (*record.lease.attempts, fresh), "cache_id": CACHE})
    return LeaseRecord(lease, record.resources)


class Account:
    """An adapter with one volume and one machine."""

    name = account = "aws"
    capabilities = SimpleNamespace(requests_per_second=30.0)

    def __init__(self) -> None:
        self.machine: Condition | None = Condition.STOPPED
        self.holder = "i-1"
        self.detached: list[tuple[str, str]] = []
        self.answer: Exception | None = None

    def observe(self, ref: Ref) -> Observation | Absent:
        """See `ports.Provider.observe`."""
        if ref.kind is ResourceKind.VOLUME:
            seen = Observation(ref.kind, VOLUME, "us-east-1", ref.marker, Condition.READY, "in-use", attached=True)
            return replaced(seen, attached_to=self.holder)
        if self.machine is None:
            return Absent("by_id: not found")
        return Observation(ref.kind, ref.provider_id, "us-east-1", ref.marker, self.machine, self.machine.value)

    def detach_volume(self, volume: Ref, instance: Ref) -> None:
        """See `ports.Provider.detach_volume`."""
        self.detached.append((volume.provider_id, instance.provider_id))
        if self.answer is not None:
            raise self.answer


def replaced(seen: Observation, **update: Any) -> Observation:
    return Observation(**{**{name: getattr(seen, name) for name in seen.__slots__}, **update})


class World:
    """Deps of one step."""

    def __init__(self) -> None:
        self.at: datetime = BEGAN
        self.ledger = SqliteLedger(":memory:")
        self.account = Account()
        self.on_commit: Callable[[], None] = lambda: None
        nothing = lambda *_, **__: None  # noqa: E731
        self.deps: Any = SimpleNamespace(
            ledger=self,
            shared=SqliteSharedReads(),
            clock=SimpleNamespace(now=lambda: self.at),
            providers=SimpleNamespace(get=lambda name: self.account),
            log=SimpleNamespace(info=nothing, warning=nothing, error=nothing),
            notifier=SimpleNamespace(alarm=nothing),
        )
        record, (cache, volume) = a_replacement(), a_cache()
        for lease, rows in ((record.lease, record.resources), (cache, (volume,))):
            self.ledger.create_lease(lease.model_copy(update={"version": 0}))
            self.ledger.commit(Change(lease.id, resources=tuple(r.model_copy(update={"version": 0}) for r in rows)))

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        self.ledger.commit(change)
        self.on_commit()

    def turn(self, seconds: float = 0) -> Outcome | None:
        """One look, so many seconds after the last."""
        self.at += timedelta(seconds=seconds)
        record = self.ledger.load(LEASE)
        kept = kept_before(record)
        assert kept is not None
        return hand_over(record, kept, self.ledger.load(CACHE), self.deps)

    @property
    def giving(self) -> VolumeAttachment:
        """Of the old machine's attempt."""
        volume = self.ledger.load(LEASE).lease.attempts[0].volume
        assert volume is not None
        return volume


def what(outcome: Outcome | None) -> str:
    return outcome.outcome if outcome is not None else "left"


def test_the_wish_and_the_ask_are_written_before_the_call() -> None:
    world = World()
    told: list[tuple[bool, int, int]] = []
    world.on_commit = lambda: told.append(
        (world.giving.hand_over_at is not None, world.giving.detach_tries, len(world.account.detached))
    )

    assert what(world.turn()) == "waiting"

    assert told == [(True, 0, 0), (True, 1, 0)]
    assert world.account.detached == [(VOLUME, "i-1")]
    assert world.giving.attached_at is None


@pytest.mark.parametrize("condition", [Condition.STOPPING, Condition.DELETING, Condition.FAILED, None])
def test_nothing_is_detached_from_what_is_not_seen_stopped(condition: Condition | None) -> None:
    world = World()
    world.account.machine = condition

    assert what(world.turn()) == "waiting"

    assert world.account.detached == []


@pytest.mark.parametrize("condition", [Condition.PENDING, Condition.READY])
def test_one_that_runs_is_known_as_running_so_that_it_is_stopped_again(condition: Condition) -> None:
    world = World()
    world.account.machine = condition

    assert what(world.turn()) == "failed"

    record = world.ledger.load(LEASE)
    assert record.lease.attempts[1].reason is Reason.CACHE_BUSY and record.resources[0].stopped_at is None
    assert world.account.detached == [] and world.giving.attached_at is not None, "not even wished for"


def test_a_detach_that_stood_still_is_not_sent_any_more() -> None:
    world = World()

    def stands_still() -> None:
        if world.giving.detach_tries:
            world.at += timedelta(seconds=30)

    world.on_commit = stands_still

    assert what(world.turn()) == "waiting"

    assert world.account.detached == []


def test_a_lost_answer_is_given_a_minute_and_a_refusal_ten_seconds() -> None:
    world = World()
    world.account.answer = ProviderUnavailable(ProviderFacts("aws", "lost"))
    world.turn()
    world.turn(30)
    assert len(world.account.detached) == 1
    world.account.answer = ProviderBusy(ProviderFacts("aws", "busy"))
    world.turn(31)
    assert len(world.account.detached) == 2

    world.turn(9)
    assert len(world.account.detached) == 2
    world.turn(2)

    assert len(world.account.detached) == 3


def test_it_is_left_when_read_as_free_twice_apart_and_not_before() -> None:
    world = World()
    world.turn()
    world.account.holder = ""

    outcomes = [what(world.turn(seconds)) for seconds in (4, 1, 2)]

    assert outcomes == ["waiting", "waiting", "left"]
    assert world.giving.left


def test_one_that_is_seen_attached_again_begins_anew() -> None:
    world = World()
    world.turn()
    world.account.holder = ""
    world.turn(4)
    world.account.holder = "i-1"
    world.turn(60)
    world.account.holder = ""

    assert what(world.turn(4)) == "waiting"
    assert not world.giving.left


def test_a_workflow_that_stood_still_before_its_first_look_asks_all_the_same() -> None:
    world = World()

    assert what(world.turn(3600)) == "waiting"

    assert world.account.detached == [(VOLUME, "i-1")]


def test_what_hangs_at_another_machine_is_left_there_until_patience_ends() -> None:
    world = World()
    world.account.holder = "i-9"

    assert what(world.turn()) == "waiting"
    assert what(world.turn(599)) == "waiting"
    assert what(world.turn(1)) == "failed"

    attempt = world.ledger.load(LEASE).lease.attempts[1]
    assert attempt.reason is Reason.CACHE_BUSY and "i-9" in attempt.detail
    assert world.account.detached == []
