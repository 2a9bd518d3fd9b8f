"""Many who join and leave one shared network at once, on both stores: whoever joins has a network that stays."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from types import SimpleNamespace
from typing import cast

import pytest
from gpulease.domain.lease import Attempt, Lease, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.shared_network import Place, is_open
from gpulease.domain.spec import LeaseSpec, NetworkScope, PrivateNetwork
from gpulease.errors import LeaseConflict
from gpulease.ports import Change, Deps, Ledger
from gpulease.steps.shared_network import join, leave, leave_unused, newest_holder
from gpulease_local.simulate.virtual import Silent

from tests.support.ledger_samples import a_lease, a_resource, an_offer, at
from tests.support.ledger_stores import Store

FORTY = 40
PLACE = Place("ada", "vultr", "ewr")
LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass
class Started:
    """`ports.Workflows` that remembers what was started."""

    names: list[str] = field(default_factory=list)

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        self.names.append(name)

    def is_running(self, machine: str, name: str) -> bool:
        return name in self.names


def deps_on(ledger: Ledger, workflows: Started) -> Deps:
    parts = SimpleNamespace(ledger=ledger, workflows=workflows, log=Silent(), clock=SimpleNamespace(now=lambda: at(0)))
    return cast(Deps, parts)


def provisioning(number: int) -> Lease:
    """A lease that is about to get its machine."""
    attempt = Attempt(number=1, offer=an_offer(), started_at=at(0), ready_deadline=at(3300))
    return a_lease(
        f"l-aaaaaaaaaa{LETTERS[number // 32]}{LETTERS[number % 32]}",
        state=LeaseState.PROVISIONING,
        attempts=(attempt,),
        spec=LeaseSpec(private_network=PrivateNetwork.REQUIRED, network_scope=NetworkScope.OWNER),
    )


def until_joined(lease_id: str, deps: Deps) -> LeaseRecord:
    """Join as the workflow does, which comes back after a pause when there were too many others."""
    while True:
        record = deps.ledger.load(lease_id)
        holder = join(record, record.lease.attempts[0], PLACE, deps)
        if holder is not None:
            return holder


def until_left(holder_id: str, lease: Lease, deps: Deps) -> None:
    """Leave as the workflow does, which tries again when it lost too often."""
    while True:
        try:
            leave(holder_id, frozenset({f"{lease.id}.instance.1"}), deps)
        except LeaseConflict:
            continue
        return


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0…count-1)` in threads that begin together."""
    barrier = Barrier(count)

    def begin(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, range(count)))


@pytest.fixture
def leases(ledger: Ledger) -> list[Lease]:
    """So many that wait for their network, and a few more."""
    made = [provisioning(number) for number in range(FORTY + 8)]
    for lease in made:
        ledger.create_lease(lease)
    return made


def test_forty_who_join_at_once_are_members_of_one_holder(store: Store, leases: list[Lease]) -> None:
    at_once(FORTY, lambda n: void(until_joined(leases[n].id, deps_on(store.ledger(), Started()))))

    holder = newest_holder(PLACE, store.ledger())
    assert holder is not None
    assert holder.lease.generation == 1
    assert sorted(holder.lease.members) == sorted(f"{lease.id}.instance.1" for lease in leases[:FORTY])


def test_forty_who_leave_while_others_join_leave_nobody_without_a_network(store: Store, leases: list[Lease]) -> None:
    for lease in leases[:FORTY]:
        until_joined(lease.id, deps_on(store.ledger(), Started()))
        machine = a_resource(lease.id, state=ResourceState.RELEASED, released_at=at(1))
        store.ledger().commit(change_of(lease, machine))
    opened = newest_holder(PLACE, store.ledger())
    assert opened is not None
    holder_id, workflows = opened.lease.id, Started()

    def come_or_go(number: int) -> None:
        deps = deps_on(store.ledger(), workflows)
        if number < FORTY:
            until_left(holder_id, leases[number], deps)
        else:
            until_joined(leases[number].id, deps)

    at_once(FORTY + 8, come_or_go)

    ledger = store.ledger()
    first = ledger.load(holder_id)
    newest = newest_holder(PLACE, ledger)
    assert newest is not None
    assert is_open(newest.lease)
    newcomers = sorted(f"{lease.id}.instance.1" for lease in leases[FORTY:])
    assert sorted(newest.lease.members) == newcomers
    if newest.lease.id == first.lease.id:
        assert workflows.names == []
    else:
        assert (first.lease.state, first.lease.members) == (LeaseState.RELEASING, ())
        assert workflows.names == [f"{first.lease.id}-release-2"]
    for lease in leases[FORTY:]:
        attachment = ledger.load(lease.id).lease.attempts[0].attachment
        assert attachment is not None
        assert attachment.holder_id == newest.lease.id


def test_the_last_to_leave_marks_the_network_in_the_same_write(store: Store, leases: list[Lease]) -> None:
    ledger, workflows = store.ledger(), Started()
    deps = deps_on(ledger, workflows)
    holder = until_joined(leases[0].id, deps).lease
    until_joined(leases[1].id, deps)
    network = a_resource(holder.id, id=f"{holder.id}.network.1", kind=ResourceKind.NETWORK, state=ResourceState.HELD)
    ledger.commit(change_of(holder, network))

    leave(holder.id, frozenset({f"{leases[0].id}.instance.1"}), deps)
    assert ledger.load(holder.id).resources[0].state is ResourceState.HELD

    leave(holder.id, frozenset({f"{leases[1].id}.instance.1"}), deps)
    record = ledger.load(holder.id)
    assert (record.lease.state, record.lease.epoch) == (LeaseState.RELEASING, 2)
    assert record.resources[0].state is ResourceState.RELEASING


def test_a_lease_leaves_when_its_machine_is_proven_gone_and_not_before(store: Store, leases: list[Lease]) -> None:
    ledger = store.ledger()
    deps = deps_on(ledger, Started())
    holder = until_joined(leases[0].id, deps).lease
    machine = a_resource(leases[0].id, state=ResourceState.RELEASING)
    ledger.commit(change_of(leases[0], machine))

    leave_unused(ledger.load(leases[0].id), deps)
    assert is_open(ledger.load(holder.id).lease)

    gone = ledger.load(leases[0].id).resources[0].model_copy(update={"state": ResourceState.RELEASED})
    ledger.commit(change_of(leases[0], gone))
    leave_unused(ledger.load(leases[0].id), deps)
    assert ledger.load(holder.id).lease.state is LeaseState.RELEASING
    # Once more changes nothing.
    leave_unused(ledger.load(leases[0].id), deps)


def change_of(lease: Lease, resource: Resource) -> Change:
    return Change(lease.id, resources=(resource,))


def void(_: object) -> None:
    """Throw a value away."""
