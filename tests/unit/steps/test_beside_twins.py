"""Steps beside late twins and beside facts that arrive in the middle: between what was read and what is written,
another worker has been there (law 9).
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.domain.lease import Attachment, Lease, LeaseKind, LeaseState, Reason
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.resource import BillingRule, ReleaseProgress, Resource, ResourceKind, ResourceState
from gpulease.domain.shared_network import uses_network
from gpulease.domain.spec import PrivateNetwork
from gpulease.errors import (
    CapacityRefused,
    InputInvalid,
    LeaseConflict,
    ProviderError,
    ProviderFacts,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import Change, InstanceRequest, LeaseRecord, Ledger, Policy, Ref
from gpulease.steps import attach_network, close_lease, create_instance, release_attempt, terminate_instance
from gpulease.steps.base import Outcome, StepCommand, fail_attempt
from gpulease.steps.facts import note_created
from gpulease.steps.starting import start_overdue_release
from gpulease_local.deps import NoWaits

from tests.support.ledger_samples import NOW, a_lease, a_resource, at

LEASE = "l-aaaaaaaaaaaa"


class Interrupted:
    """A ledger in which something else happens just before (or `after`) the first commit that `when` picks."""

    def __init__(self, inner: Ledger) -> None:
        self._inner = inner
        self.when: Callable[[Change], bool] = lambda change: False
        self.happens: Callable[[], Any] = lambda: None
        self.after = False

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        chosen = self.when(change)
        if chosen:
            self.when = lambda change: False
        if chosen and not self.after:
            self.happens()
        self._inner.commit(change)
        if chosen and self.after:
            self.happens()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Account:
    """An adapter that creates what it is asked for and remembers it."""

    name = account = "vultr"
    capabilities = SimpleNamespace(requests_per_second=30.0, create_timeout_seconds=60.0, max_user_data_bytes=65536)
    visibility_window_seconds = 120.0

    def __init__(self) -> None:
        self.created: list[str] = []
        self.refusal: Exception | None = None
        self.condition = Condition.PENDING

    def identity(self) -> str:
        """See `ports.Provider.identity`."""
        return "ours"

    def list_of(self, ref: Ref) -> str:
        """See `ports.Provider.list_of`."""
        return ""

    def observe(self, ref: Ref) -> Observation:
        """See `ports.Provider.observe`: it is always there."""
        return replace(shown(ref.marker), condition=self.condition)

    def attach_network(self, instance: Ref, network: Ref) -> None:
        """See `ports.Provider.attach_network`."""
        if self.refusal is not None:
            raise self.refusal

    def destroy(self, ref: Ref) -> None:
        """See `ports.Provider.destroy`: accepted, without effect."""

    def billing_rule(self, kind: ResourceKind) -> BillingRule:
        """See `ports.Provider.billing_rule`."""
        return BillingRule.STARTED_HOUR

    def create_instance(self, request: InstanceRequest) -> Observation:
        """See `ports.Provider.create_instance`."""
        if self.refusal is not None:
            raise self.refusal
        self.created.append(request.marker)
        return shown(request.marker)


class World:
    """Deps of steps, with nothing behind them but a ledger."""

    def __init__(self) -> None:
        self.at: datetime = NOW
        self.stored = SqliteLedger(":memory:")
        self.ledger = Interrupted(self.stored)
        self.account = Account()
        self.started: list[str] = []
        self.alarms: list[tuple[str, dict[str, Any]]] = []
        quiet = SimpleNamespace(info=_nothing, warning=_nothing, error=_nothing)
        self.deps: Any = SimpleNamespace(
            ledger=self.ledger,
            shared=SqliteSharedReads(),
            clock=SimpleNamespace(now=lambda: self.at),
            sweeps=SimpleNamespace(note_place=_nothing),
            providers=SimpleNamespace(get=self._account, shut_for_seconds=lambda account, region: 0.0),
            workflows=SimpleNamespace(start=lambda machine, name, lease_id, epoch: self.started.append(name)),
            policy=Policy(deployment="test"),
            log=quiet,
            notifier=SimpleNamespace(alarm=lambda name, text, facts: self.alarms.append((name, facts))),
            waits=NoWaits(),
        )

    def _account(self, name: str) -> Account:
        if name != self.account.account:
            raise InputInvalid(f"no provider account {name!r} is configured", field="providers")
        return self.account

    def has(self, lease: Lease, *resources: Resource) -> None:
        """Put a lease with resources into the ledger."""
        self.stored.create_lease(lease)
        if resources:
            self.stored.commit(Change(lease_id=lease.id, resources=resources))

    def record(self) -> LeaseRecord:
        """The lease as it is now."""
        return self.stored.load(LEASE)

    def run(self, step: Callable[[StepCommand, Any], Outcome], epoch: int = 1) -> Outcome:
        """One turn of a step."""
        return step(StepCommand(lease_id=LEASE, epoch=epoch), self.deps)


class _Killed(BaseException):
    """The process is gone."""


def _killed() -> None:
    raise _Killed


def _nothing(*_: object, **__: object) -> None:
    """For ports that nobody looks at here."""


def shown(marker: str) -> Observation:
    """A machine as its create call shows it."""
    return Observation(
        kind=ResourceKind.INSTANCE,
        provider_id="id-1",
        region="ewr",
        marker=marker,
        condition=Condition.PENDING,
        words="pending",
        subkind="bare_metal",
    )


@pytest.fixture
def world() -> World:
    return World()


def test_a_lease_is_not_closed_over_a_machine_that_appears_meanwhile(world: World) -> None:
    closed = a_resource(state=ResourceState.RELEASED, released_at=at(200), release_note="never appeared")
    world.has(a_lease(state=LeaseState.RELEASING, reason=Reason.USER, release_requested_at=NOW), closed)
    world.at = at(240)
    world.ledger.when = lambda change: change.lease is not None and change.lease.state is LeaseState.RELEASED
    world.ledger.happens = lambda: note_created(world.deps, LEASE, closed.id, shown(closed.marker))

    with pytest.raises(LeaseConflict):
        world.run(close_lease.run)

    [machine] = world.record().resources
    assert machine.state is ResourceState.RELEASING
    assert world.record().lease.state is LeaseState.RELEASING
    assert world.run(close_lease.run).outcome == "not_yet"


def test_nothing_is_created_for_an_attempt_that_a_twin_has_ended(world: World) -> None:
    world.has(a_lease(state=LeaseState.PROVISIONING))

    def twin() -> None:
        world.stored.commit(fail_attempt(world.record(), NOW, Reason.THROTTLED, "the region does not answer"))
        assert world.run(release_attempt.run).outcome == "next"

    world.ledger.when = lambda change: bool(change.resources)
    world.ledger.happens = twin

    outcome = world.run(create_instance.run)

    assert outcome.outcome == "unknown"
    assert world.account.created == []
    assert world.record().resources == ()


@pytest.mark.parametrize(("after", "told"), [(True, 1), (False, 2)], ids=["after-noting-it", "before-noting-it"])
def test_an_alarm_is_told_although_the_step_dies_where_it_notes_it(world: World, after: bool, told: int) -> None:
    progress = ReleaseProgress(requested_at=NOW, next_try_at=at(610), tries=3, looks=9)
    machine = a_resource(state=ResourceState.RELEASING, provider_id="id-1", status="pending", release=progress)
    world.has(a_lease(state=LeaseState.RELEASING, reason=Reason.USER), machine)
    world.ledger.when, world.ledger.happens, world.ledger.after = lambda change: bool(change.resources), _killed, after
    world.at = at(620)

    with pytest.raises(_Killed):
        world.run(terminate_instance.run)
    for seconds in (700, 800, 900):
        world.at = at(seconds)
        world.run(terminate_instance.run)

    assert [name for name, _ in world.alarms] == ["ReleaseStuck"] * told


def test_what_belongs_to_an_account_that_is_not_configured_holds_up_nothing_else(world: World) -> None:
    progress = ReleaseProgress(requested_at=NOW, next_try_at=NOW)
    sold = a_resource(state=ResourceState.RELEASING, provider_id="id-0", account="sold", release=progress)
    ours = a_resource(attempt=2, state=ResourceState.RELEASING, provider_id="id-1", release=progress)
    world.has(a_lease(state=LeaseState.RELEASING, reason=Reason.USER), sold, ours)
    for turn in range(200):
        world.at = at(5 * turn)
        world.run(terminate_instance.run)

    first, second = world.record().resources
    assert second.state is ResourceState.RELEASING and second.release is not None
    assert second.release.tries > 0
    assert first.state is ResourceState.RELEASING and first.release is not None
    assert "sold" in first.release.last_error
    assert {facts["reason"] for _, facts in world.alarms} == {"account_not_configured", "still_there"}


def test_a_refused_create_ends_its_attempt_although_the_lease_was_looked_at_meanwhile(world: World) -> None:
    world.has(a_lease(state=LeaseState.PROVISIONING))
    world.account.refusal = CapacityRefused(ProviderFacts("vultr", "sold out", status=400))
    world.ledger.when = lambda change: change.lease is not None and change.lease.attempts[0].reason is not None
    world.ledger.happens = lambda: world.stored.commit(
        Change(lease_id=LEASE, lease=world.record().lease.model_copy(update={"next_check_at": at(150)}))
    )

    outcome = world.run(create_instance.run)

    assert outcome.outcome == "failed"
    [attempt] = world.record().lease.attempts
    [intent] = world.record().resources
    assert attempt.reason is Reason.NO_CAPACITY
    assert (intent.state, intent.release_note) == (ResourceState.RELEASED, "refused: no_capacity")
    assert world.record().lease.next_check_at == at(150)


def test_a_machine_that_is_stuck_does_not_slow_down_another_of_its_lease(world: World) -> None:
    patient = ReleaseProgress(requested_at=NOW, next_try_at=at(3600), tries=50, looks=50, alarmed_at=at(600))
    soon = ReleaseProgress(requested_at=at(3590), next_try_at=at(3603), tries=1, looks=1)
    stuck = a_resource(state=ResourceState.RELEASING, provider_id="id-1", status="x", release=patient)
    other = a_resource(attempt=2, state=ResourceState.RELEASING, provider_id="id-2", status="x", release=soon)
    world.has(a_lease(state=LeaseState.RELEASING, reason=Reason.USER), stuck, other)
    world.at = at(3600)

    outcome = world.run(terminate_instance.run)

    first, second = world.record().resources
    assert first.release is not None and first.release.tries == 51
    assert second == other.model_copy(update={"version": 1})
    assert outcome.wait_seconds == 3


def test_a_release_that_was_started_again_in_vain_is_started_again_hours_later(world: World) -> None:
    progress = ReleaseProgress(requested_at=NOW, next_try_at=NOW, tries=1)
    leftover = a_resource(state=ResourceState.RELEASING, provider_id="id-1", release=progress)
    world.has(a_lease(state=LeaseState.RUNNING), leftover)

    for minutes in range(6, 9 * 60):
        assert start_overdue_release(world.record(), world.deps, at(60 * minutes))

    names = list(dict.fromkeys(world.started))
    hours = [(world.started.index(name) + 6) // 60 for name in names]
    assert hours == [0, 1, 2, 4, 8]


@pytest.mark.parametrize("lost", [ProviderUnavailable, ProviderUnexpected])
def test_an_attach_whose_answer_was_lost_may_have_been_carried_out(lost: type[ProviderError], world: World) -> None:
    network = a_resource("n-aaaaaaaaaaaa", kind=ResourceKind.NETWORK, state=ResourceState.HELD, provider_id="net-1")
    holder = a_lease("n-aaaaaaaaaaaa", kind=LeaseKind.NETWORK, state=LeaseState.RUNNING, attempts=())
    world.stored.create_lease(holder)
    world.stored.commit(Change(lease_id=holder.id, resources=(network,)))
    spec = a_lease().spec.model_copy(update={"private_network": PrivateNetwork.PREFERRED})
    attempt = a_lease().attempts[0].model_copy(update={"attachment": Attachment(holder_id=holder.id)})
    machine = a_resource(state=ResourceState.HELD, provider_id="id-1", status="active")
    world.has(a_lease(state=LeaseState.PROVISIONING, spec=spec, attempts=(attempt,)), machine)
    world.account.condition = Condition.READY
    world.account.refusal = lost(ProviderFacts("vultr", "no answer"))

    assert world.run(attach_network.run).outcome == "waiting"

    attachment = world.record().lease.attempts[0].attachment
    assert attachment is not None
    dropped = attempt.model_copy(update={"attachment": attachment.model_copy(update={"dropped": True})})
    assert uses_network(world.record(), dropped), "it leaves the network when it is gone, and not before"
