"""Both ledgers against a ledger of three dictionaries, through any sequence of writes that hypothesis thinks of."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gpulease.domain.event import Event
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.resource import Resource, ResourceState
from gpulease.errors import GpuleaseError, LeaseConflict, LeaseExists, LeaseNotFound, LeaseSuperseded
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ports import Change, Ledger
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support.ledger_samples import a_lease, a_resource, an_event, at
from tests.support.ledger_stores import DynamoStore, SqliteStore, Store
from tests.support.ministack import Ministack

LEASES = ("l-aaaaaaaaaaaa", "l-bbbbbbbbbbbb", "l-cccccccccccc")
OWNERS = ("ada", "bob")


class Model:
    """The contract of `ports.Ledger`, as plainly as it can be written."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.resources: dict[str, Resource] = {}
        self.events: dict[str, list[Event]] = {lease_id: [] for lease_id in LEASES}

    def create(self, lease: Lease, events: tuple[Event, ...]) -> None:
        """As `create_lease`."""
        if lease.id in self.leases:
            raise LeaseExists
        self.leases[lease.id] = lease.model_copy(update={"version": 1})
        self.events[lease.id] += events

    def commit(self, change: Change) -> None:
        """As `commit`."""
        stored = self.leases.get(change.lease_id)
        if change.epoch is not None and (stored is None or stored.epoch != change.epoch):
            raise LeaseSuperseded
        if change.lease is not None and change.lease.version != (stored.version if stored else 0):
            raise LeaseConflict
        for resource in change.resources:
            known = self.resources.get(resource.id)
            if resource.version != (known.version if known else 0):
                raise LeaseConflict
        if change.lease is not None:
            self.leases[change.lease_id] = change.lease.model_copy(update={"version": change.lease.version + 1})
        for resource in change.resources:
            self.resources[resource.id] = resource.model_copy(update={"version": resource.version + 1})
        self.events[change.lease_id] += change.events


def outcome(call: Callable[[], None]) -> type[GpuleaseError] | None:
    """How a call ended."""
    try:
        call()
    except GpuleaseError as error:
        return type(error)
    return None


lease_ids = st.sampled_from(LEASES)
moments = st.none() | st.integers(-5, 5).map(at)
wrong_by = st.sampled_from((0, 0, 0, 0, 1, -1))


class LedgerMachine(RuleBasedStateMachine):
    """Does everything twice, in a ledger and in the model, and compares."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.ledgers: list[Ledger] = [self.store.ledger(), self.store.ledger()]
        self.model = Model()
        self.moment = 0

    def now(self) -> float:
        """A later second each time."""
        self.moment += 1
        return self.moment

    @rule(
        lease_id=lease_ids,
        owner=st.sampled_from(OWNERS),
        epoch=st.integers(1, 3),
        check=moments,
        events=st.integers(0, 2),
        worker=st.integers(0, 1),
    )
    def create(self, lease_id: str, owner: str, epoch: int, check: object, events: int, worker: int) -> None:
        """Create a lease, or fail to."""
        seconds = self.now()
        lease = a_lease(lease_id, owner=owner, epoch=epoch, created_at=at(seconds), next_check_at=check)
        told = tuple(an_event(lease_id, seconds, f"created_{n}") for n in range(events))
        assert outcome(lambda: self.ledgers[worker].create_lease(lease, told)) == outcome(
            lambda: self.model.create(lease, told)
        )

    @rule(
        lease_id=lease_ids,
        with_lease=st.booleans(),
        attempts=st.sets(st.integers(1, 3), max_size=3),
        events=st.integers(0, 2),
        fenced=st.booleans(),
        raise_epoch=st.integers(0, 1),
        lease_wrong_by=wrong_by,
        resource_wrong_by=wrong_by,
        epoch_wrong_by=wrong_by,
        state=st.sampled_from(LeaseState),
        resource_state=st.sampled_from(ResourceState),
        check=moments,
        worker=st.integers(0, 1),
    )
    def commit(
        self,
        lease_id: str,
        with_lease: bool,
        attempts: set[int],
        events: int,
        fenced: bool,
        raise_epoch: int,
        lease_wrong_by: int,
        resource_wrong_by: int,
        epoch_wrong_by: int,
        state: LeaseState,
        resource_state: ResourceState,
        check: object,
        worker: int,
    ) -> None:
        """Write any of the rows, over what is there or over something else, in the right epoch or another."""
        seconds = self.now()
        stored = self.model.leases.get(lease_id, a_lease(lease_id, created_at=at(seconds)))
        lease = stored.model_copy(
            update={
                "version": max(0, stored.version + lease_wrong_by),
                "epoch": stored.epoch + raise_epoch,
                "state": state,
                "next_check_at": check,
            }
        )
        resources = []
        for attempt in sorted(attempts):
            fresh = a_resource(lease_id, attempt)
            known = self.model.resources.get(fresh.id, fresh)
            version = max(0, known.version + (resource_wrong_by if attempt == 2 else 0))
            region = "ewr" if attempt < 3 else "ams"
            resources.append(known.model_copy(update={"version": version, "state": resource_state, "region": region}))
        change = Change(
            lease_id,
            lease if with_lease else None,
            tuple(resources),
            tuple(an_event(lease_id, seconds, f"committed_{n}") for n in range(events)),
            stored.epoch + epoch_wrong_by if fenced else None,
        )
        assert outcome(lambda: self.ledgers[worker].commit(change)) == outcome(lambda: self.model.commit(change))

    @invariant()
    def records_are_the_same(self) -> None:
        """Leases, resources and events."""
        for lease_id in LEASES:
            for ledger in self.ledgers:
                events = [event.model_copy(update={"seq": ""}) for event in ledger.events(lease_id, limit=1000).items]
                assert events == self.model.events[lease_id]
                if lease_id not in self.model.leases:
                    with pytest.raises(LeaseNotFound):
                        ledger.load(lease_id)
                    continue
                record = ledger.load(lease_id)
                assert record.lease == self.model.leases[lease_id]
                mine = [r for r in self.model.resources.values() if r.lease_id == lease_id]
                assert list(record.resources) == sorted(mine, key=lambda r: r.attempt)

    @invariant()
    def listings_are_the_same(self) -> None:
        """By owner and state, what is due, what is open."""
        ledger = self.ledgers[0]
        newest_first = sorted(self.model.leases.values(), key=lambda lease: lease.created_at, reverse=True)
        assert list(ledger.leases_of(None).items) == newest_first
        running = (LeaseState.RUNNING, LeaseState.RELEASED)
        for owner in OWNERS:
            found = ledger.leases_of(owner, states=running, limit=1)
            expected = [lease for lease in newest_first if lease.owner == owner and lease.state in running]
            assert list(found.items) == expected[:1]
        checks = [(lease.next_check_at, lease.id) for lease in newest_first if lease.next_check_at is not None]
        assert ledger.due(at(0)) == [lease_id for moment, lease_id in sorted(checks) if moment <= at(0)]
        still_open = [r for r in self.model.resources.values() if r.state is not ResourceState.RELEASED]
        for region in ("ewr", "ams", None):
            found_open = sorted(r.id for r in ledger.open_resources(provider="vultr", region=region))
            assert found_open == sorted(r.id for r in still_open if region in (None, r.region))


def run(stores: Callable[[], Store], examples: int, steps: int, *, shrink: bool = True) -> None:
    """Run the machine, each example on its own store. Without `shrink` a failure is told sooner and in more steps."""

    class Machine(LedgerMachine):
        def __init__(self) -> None:
            self.store = stores()
            super().__init__()

        def teardown(self) -> None:
            if isinstance(self.store, DynamoStore):
                self.store.close()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sqlite_does_what_the_model_does(tmp_path: Path) -> None:
    run(lambda: SqliteStore(tmp_path), examples=50, steps=20)


def test_dynamo_does_what_the_model_does(ministack: Ministack) -> None:
    run(lambda: DynamoStore(ministack), examples=8, steps=12)


def test_a_ledger_that_does_not_compare_versions_is_found_out(tmp_path: Path) -> None:
    class Broken(SqliteStore):
        def ledger(self) -> SqliteLedger:
            """Without its conditions."""
            return self.without_conditions()

    with pytest.raises(AssertionError):
        run(lambda: Broken(tmp_path), examples=60, steps=25, shrink=False)
