"""What agents told: one row per lease, each write on condition of the version that was read, on both stores."""

import threading
from functools import partial

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.policy import Signal
from gpulease.errors import InputInvalid, LeaseConflict, LedgerUnavailable
from gpulease.ledger.dynamo_agents import DynamoAgentStore
from gpulease.ledger.sqlite import SqliteFile
from gpulease.ledger.sqlite_agents import SqliteAgentStore
from gpulease.ports import AgentStore, Ledger
from gpulease.runtime.world import RandomIds

from tests.support.ledger_samples import a_lease, at
from tests.support.ledger_stores import (
    DynamoStore,
    Fault,
    ScriptedClient,
    SqliteStore,
    Store,
    client_error,
    hooked_connect,
)

LEASE = "l-aaaaaaaaaaaa"


def agents_of(store: Store) -> AgentStore:
    """As another worker would open it."""
    if isinstance(store, DynamoStore):
        return DynamoAgentStore(store.client, store.table, ids=RandomIds(), sleep=store.pauses.append)
    assert isinstance(store, SqliteStore)
    return SqliteAgentStore(store.path)


@pytest.fixture
def agents(store: Store) -> AgentStore:
    return agents_of(store)


def a_record(**changes: object) -> AgentRecord:
    record = AgentRecord(
        lease_id=LEASE,
        attempt=1,
        token_sha256="0" * 64,
        first_report_at=at(10),
        last_report_at=at(70),
        activity_at={Signal.GPU: at(60), Signal.SSH: at(5)},
        gpus=8,
        gpu_models=("NVIDIA A100-SXM4-80GB",),
        host_keys=("ssh-ed25519 AAAA root@m",),
        mounted=("/root/.cache",),
        problems=("the cache could not be saved: naïve ünïcode",),
    )
    return record.model_copy(update=changes)


def test_no_row_is_known_at_first(agents: AgentStore) -> None:
    assert agents.load(LEASE) is None
    assert agents.load("") is None


def test_a_row_is_read_as_it_was_written(store: Store, agents: AgentStore) -> None:
    saved = agents.save(a_record())

    assert saved == a_record(version=1)
    assert agents_of(store).load(LEASE) == saved
    assert agents.load("l-bbbbbbbbbbbb") is None


def test_a_stale_write_is_refused_and_changes_nothing(agents: AgentStore) -> None:
    first = agents.save(a_record())
    second = agents.save(first.model_copy(update={"quiet_reports": 1}))

    for stale in (a_record(), first.model_copy(update={"quiet_reports": 7})):
        with pytest.raises(LeaseConflict):
            agents.save(stale)

    assert agents.load(LEASE) == second


def test_a_row_that_was_never_stored_cannot_be_replaced(agents: AgentStore) -> None:
    with pytest.raises(LeaseConflict):
        agents.save(a_record(version=3))

    assert agents.load(LEASE) is None


def test_what_could_not_be_stored_is_refused(agents: AgentStore) -> None:
    for wrong in (a_record(lease_id=""), a_record(problems=("x" * 500_000,))):
        with pytest.raises(InputInvalid):
            agents.save(wrong)


@pytest.mark.parametrize("stored_before", [False, True])
def test_of_many_who_write_at_once_one_is_kept(store: Store, agents: AgentStore, stored_before: bool) -> None:
    start = agents.save(a_record()) if stored_before else a_record()
    won: list[int] = []
    lost: list[int] = []

    def write(number: int) -> None:
        try:
            agents_of(store).save(start.model_copy(update={"quiet_reports": 100 + number}))
        except LeaseConflict:
            lost.append(number)
        else:
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [winner] = won
    stored = agents.load(LEASE)
    assert len(lost) == 7
    assert stored is not None
    assert (stored.quiet_reports, stored.version) == (100 + winner, start.version + 1)


def test_readers_and_writers_in_a_race_lose_no_report(store: Store, agents: AgentStore) -> None:
    agents.save(a_record())

    def count(times: int) -> None:
        mine = agents_of(store)
        done = 0
        while done < times:
            read = mine.load(LEASE)
            assert read is not None
            try:
                mine.save(read.model_copy(update={"quiet_reports": read.quiet_reports + 1}))
            except LeaseConflict:
                continue
            done += 1

    threads = [threading.Thread(target=count, args=(5,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    stored = agents.load(LEASE)
    assert stored is not None
    assert stored.quiet_reports == 20


def test_an_agents_row_is_no_part_of_its_lease(store: Store, agents: AgentStore, ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    agents.save(a_record())

    record = ledger.load(LEASE)

    assert (record.lease.id, record.resources) == (LEASE, ())
    assert ledger.events(LEASE).items == ()
    assert [lease.id for lease in ledger.leases_of(None).items] == [LEASE]
    assert list(ledger.open_resources()) == []
    assert ledger.due(at(10**6)) == [LEASE]


def test_a_write_whose_answer_was_lost_is_recognised_in_sqlite(store: Store) -> None:
    if not isinstance(store, SqliteStore):
        pytest.skip("the same for DynamoDB is the next test")
    faults = [Fault.NONE, Fault.ANSWER_LOST]
    file = SqliteFile(store.path, connect=partial(hooked_connect, faults, lambda sql: sql))
    agents = SqliteAgentStore(file)

    saved = agents.save(a_record())

    assert agents_of(store).load(LEASE) == saved


def test_a_write_whose_answer_was_lost_is_recognised_in_dynamodb(dynamo: DynamoStore) -> None:
    lost = [True]

    def after(operation: str, request: object, answer: object) -> None:
        if operation == "put_item" and lost:
            lost.pop()
            raise client_error("InternalServerError", 500)

    client = ScriptedClient(dynamo.client, after=after)
    agents = DynamoAgentStore(client, dynamo.table, ids=RandomIds(), sleep=dynamo.pauses.append)

    saved = agents.save(a_record())

    assert agents.load(LEASE) == saved
    assert client.calls.count("put_item") == 2


def test_a_report_costs_one_read_and_one_write(dynamo: DynamoStore) -> None:
    client = ScriptedClient(dynamo.client)
    agents = DynamoAgentStore(client, dynamo.table, ids=RandomIds(), sleep=dynamo.pauses.append)
    agents.save(a_record())
    client.calls.clear()

    read = agents.load(LEASE)
    assert read is not None
    agents.save(read.model_copy(update={"quiet_reports": 1}))

    assert client.calls == ["batch_get_item", "put_item"]


def test_a_store_that_does_not_answer_says_so(dynamo: DynamoStore) -> None:
    def before(operation: str, request: object) -> None:
        raise client_error("ThrottlingException")

    client = ScriptedClient(dynamo.client, before=before)
    agents = DynamoAgentStore(client, dynamo.table, ids=RandomIds(), sleep=dynamo.pauses.append)

    with pytest.raises(LedgerUnavailable):
        agents.load(LEASE)
    with pytest.raises(LedgerUnavailable):
        agents.save(a_record())
