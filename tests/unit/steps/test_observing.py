"""How machines are looked at: one list for everybody, which proves presence and never absence."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.domain.gate import Lane, Pause, pause_key, pause_text
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.resource import Resource, ResourceKind, ResourceState, marker_for
from gpulease.errors import LedgerUnavailable, ProviderAuthFailed, ProviderFacts, ProviderThrottled, ProviderUnavailable
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import Policy, Ref
from gpulease.sharing import CLAIM_SECONDS
from gpulease.steps import observing

START = datetime(2026, 1, 5, tzinfo=UTC)


def machine(number: int, deployment: str = "dep1") -> Resource:
    resource_id = f"l-aaaaaaaaaaaa.instance.{number}"
    return Resource(
        id=resource_id,
        lease_id="l-aaaaaaaaaaaa",
        attempt=number,
        kind=ResourceKind.INSTANCE,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker=marker_for(deployment, resource_id),
        state=ResourceState.HELD,
        subkind="vm",
        intended_at=START,
        provider_id=f"id-{number}",
    )


def shown(resource: Resource, words: str = "pending", provider_id: str = "") -> Observation:
    return Observation(
        kind=resource.kind,
        provider_id=provider_id or resource.provider_id,
        region="ewr",
        marker=resource.marker,
        condition=Condition.PENDING,
        words=words,
        subkind="vm",
        created_at=START,
    )


@dataclass
class Account:
    """An adapter that shows what it is told to and counts."""

    name: str = "vultr"
    account: str = "vultr"
    capabilities: Any = field(default_factory=lambda: SimpleNamespace(requests_per_second=30.0))
    machines: list[Observation] = field(default_factory=list)
    lists: int = 0
    reads: int = 0
    failure: Exception | None = None

    def list_of(self, ref: Ref) -> str:
        return ref.subkind

    def list_machines(self, name: str) -> list[Observation]:
        self.lists += 1
        if self.failure is not None:
            raise self.failure
        return list(self.machines)

    def observe(self, ref: Ref) -> Observation | Absent:
        self.reads += 1
        return next((o for o in self.machines if o.provider_id == ref.provider_id), Absent("by_id"))

    def find(self, ref: Ref) -> list[Observation]:
        self.reads += 1
        return [o for o in self.machines if o.marker == ref.marker]


class World:
    """Deps, as far as looking needs them."""

    def __init__(self) -> None:
        self.at = START
        self.account = Account()
        self.shared: Any = SqliteSharedReads()
        self.clock = SimpleNamespace(now=lambda: self.at)
        self.providers = SimpleNamespace(get=lambda name: self.account)
        self.policy = Policy(deployment="dep1")
        self.log = SimpleNamespace(warning=lambda *args, **facts: None)

    def see(self, resource: Resource) -> Observation | Absent | None:
        deps: Any = self
        return observing.observe(deps, resource)

    def find(self, resource: Resource) -> list[Observation] | None:
        deps: Any = self
        return observing.find(deps, resource)

    def wait(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def world() -> World:
    return World()


def test_a_thousand_machines_are_seen_with_one_list_in_a_second(world: World) -> None:
    machines = [machine(n) for n in range(1000)]
    world.account.machines = [shown(each, f"words {each.id}") for each in machines]

    seen = [world.see(each) for each in machines]

    assert seen == world.account.machines
    assert (world.account.lists, world.account.reads) == (1, 0)


def test_after_a_second_the_next_one_reads_the_list_anew(world: World) -> None:
    world.account.machines = [shown(machine(1))]
    world.see(machine(1))

    world.wait(1.1)
    world.account.machines = [shown(machine(1), "active")]

    assert world.see(machine(1)) == shown(machine(1), "active")
    assert world.account.lists == 2


def test_a_machine_that_the_list_does_not_show_is_read_by_itself(world: World) -> None:
    world.account.machines = [shown(machine(1))]
    world.see(machine(1))

    assert isinstance(world.see(machine(2)), Absent)

    assert (world.account.lists, world.account.reads) == (1, 1)


def test_another_machine_under_the_same_marker_is_not_taken_for_it(world: World) -> None:
    world.account.machines = [shown(machine(1), provider_id="id-twin")]

    assert isinstance(world.see(machine(1)), Absent)


def test_found_by_marker_needs_no_read_and_not_found_does(world: World) -> None:
    lost = machine(1).model_copy(update={"provider_id": ""})
    world.account.machines = [shown(machine(1))]

    assert world.find(lost) == [shown(machine(1))]
    assert world.account.reads == 0

    assert world.find(machine(2)) == []
    assert world.account.reads == 1


@pytest.mark.parametrize("number", [1, 49, 50, 51, 200, 201, 999])
def test_chunks_hold_what_was_put_into_them_whatever_the_size(world: World, number: int) -> None:
    machines = [machine(n) for n in range(number)]
    world.account.machines = [shown(each) for each in machines]
    world.see(machines[0])
    world.account.machines = []

    assert [world.see(each) for each in machines] == [shown(each) for each in machines]
    assert world.account.lists == 1


def test_machines_of_other_deployments_are_not_kept(world: World) -> None:
    strangers = [shown(machine(n, "other1")) for n in range(500)]
    world.account.machines = [*strangers, shown(machine(1))]

    world.see(machine(1))

    assert world.shared.read("vultr/machines/vm").value == "1", "one chunk"


def test_a_list_that_fails_publishes_nothing_and_machines_are_read_directly(world: World) -> None:
    world.account.machines = [shown(machine(1))]
    world.account.failure = ProviderUnavailable(ProviderFacts("vultr", "502"))

    assert world.see(machine(1)) == shown(machine(1))

    assert world.shared.read("vultr/machines/vm") is None
    assert world.account.reads == 1


@pytest.mark.parametrize("kind", [ProviderAuthFailed, ProviderThrottled])
def test_a_refused_key_or_rate_is_told_and_not_got_around(world: World, kind: type[Exception]) -> None:
    world.account.failure = kind(ProviderFacts("vultr", "no"))

    with pytest.raises(kind):
        world.see(machine(1))

    assert world.account.reads == 0


def test_while_somebody_else_reads_the_list_the_last_one_has_to_do_for_half_a_minute(world: World) -> None:
    world.account.machines = [shown(machine(1), "old")]
    world.see(machine(1))
    world.wait(5)
    assert world.shared.claim("vultr/machines/vm", world.at, CLAIM_SECONDS)
    world.account.machines = [shown(machine(1), "new")]

    assert world.see(machine(1)) == shown(machine(1), "old")

    world.wait(26)
    assert world.shared.claim("vultr/machines/vm", world.at, CLAIM_SECONDS)
    assert world.see(machine(1)) == shown(machine(1), "new")
    assert (world.account.lists, world.account.reads) == (1, 1)


def test_reads_one_by_one_stay_within_their_share_of_the_rate(world: World) -> None:
    world.account.failure = ProviderUnavailable(ProviderFacts("vultr", "502"))
    machines = [machine(n) for n in range(100)]
    world.account.machines = [shown(each) for each in machines]

    seen = [world.see(each) for each in machines]

    assert 6 <= world.account.reads <= 8
    assert seen.count(None) == 100 - world.account.reads


def test_without_the_shared_store_machines_are_read_directly(world: World) -> None:
    def fail(*args: object, **more: object) -> Any:
        raise LedgerUnavailable("down")

    world.shared = SimpleNamespace(read=fail, claim=fail, publish=fail, reserve=fail)
    world.account.machines = [shown(machine(1))]

    assert world.see(machine(1)) == shown(machine(1))


def test_a_list_that_was_begun_before_a_delete_says_nothing_about_it(world: World) -> None:
    deps: Any = world
    account: Any = world.account
    world.account.machines = [shown(machine(1), "old")]
    world.see(machine(1))
    world.wait(0.5)
    deleted_at = world.at
    world.account.machines = [shown(machine(1), "going")]

    assert observing.listed(deps, account, machine(1), after=deleted_at) == [shown(machine(1), "going")]


@pytest.mark.parametrize(("ahead", "lists", "reads"), [(3, 1, 0), (10, 2, 4), (3600, 2, 0)])
def test_a_worker_whose_clock_is_far_ahead_costs_reads_and_misleads_nobody(
    world: World, ahead: float, lists: int, reads: int
) -> None:
    world.account.machines = [shown(machine(1))]
    world.wait(ahead)
    world.see(machine(1))

    world.wait(-ahead)
    seen = [world.see(machine(1)) for _ in range(5)]

    assert seen == [shown(machine(1))] * 5
    assert (world.account.lists, world.account.reads) == (lists, reads)


# --- turns ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def turn(world: World) -> Callable[..., observing.Turn]:
    deps: Any = world
    account: Any = world.account
    return lambda held=None, lane=Lane.CHANGE, calls=1.0: observing.take_turn_in(deps, account, lane, held, calls)


def test_what_is_due_within_a_second_need_not_wait_and_the_rest_comes_in_order(turn: Callable[..., Any]) -> None:
    turns = [turn() for _ in range(30)]

    assert [t.wait_seconds for t in turns[:8]] == [0] * 8
    assert [t.slot for t in turns] == sorted(t.slot for t in turns)
    assert turns[29].wait_seconds == 4


def test_a_held_slot_is_kept_and_honoured(world: World, turn: Callable[..., Any]) -> None:
    late = [turn() for _ in range(30)][-1]

    assert turn(held=late.slot).slot == late.slot
    world.wait(4)
    assert turn(held=late.slot).wait_seconds == 0


def test_lanes_do_not_hold_each_other_up(turn: Callable[..., Any]) -> None:
    for _ in range(1000):
        turn(lane=Lane.RELEASE, calls=2)

    assert turn().wait_seconds == 0


def test_slots_in_a_pause_move_behind_it_once(world: World, turn: Callable[..., Any]) -> None:
    held = [turn() for _ in range(30)][-1].slot
    pause = Pause(START, START + timedelta(seconds=20))
    world.shared.publish(pause_key("vultr"), pause_text(pause), START)

    moved = turn(held=held).slot
    fresh = turn()

    assert moved == pause.until + (held - START)
    assert turn(held=moved).slot == moved
    assert fresh.slot >= pause.until
