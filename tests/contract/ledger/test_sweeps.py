"""What sweeps remember: one state per account and region, each write on condition of the version that was read."""

import threading

import pytest
from gpulease.domain.resource import ResourceKind
from gpulease.domain.sweep import MAX_SIGHTINGS, Missing, SweepState, Unowned
from gpulease.errors import LeaseConflict, LedgerUnavailable
from gpulease.ledger.dynamo_sweeps import DynamoSweepStore
from gpulease.ledger.sqlite_sweeps import SqliteSweepStore
from gpulease.ports import Ledger, SweepStore

from tests.support.ledger_samples import a_lease, at
from tests.support.ledger_stores import DynamoStore, ScriptedClient, SqliteStore, Store, client_error


def sweeps_of(store: Store) -> SweepStore:
    """As another worker would open it."""
    if isinstance(store, DynamoStore):
        return DynamoSweepStore(store.client, store.table, sleep=store.pauses.append)
    assert isinstance(store, SqliteStore)
    return SqliteSweepStore(store.path)


@pytest.fixture
def sweeps(store: Store) -> SweepStore:
    return sweeps_of(store)


def a_state(**changes: object) -> SweepState:
    state = SweepState(
        account="vultr",
        region="ewr",
        last_try_at=at(10),
        last_complete_at=at(5),
        unowned=(
            Unowned(
                provider_id="p-1",
                kind=ResourceKind.INSTANCE,
                marker="gpulease:test:l-aaaaaaaaaaaa.instance.1",
                first_at=at(0),
                counted_at=at(0),
            ),
        ),
        missing=(
            Missing(
                resource_id="l-aaaaaaaaaaaa.instance.2",
                lease_id="l-aaaaaaaaaaaa",
                kind=ResourceKind.INSTANCE,
                first_at=at(0),
                counted_at=at(0),
            ),
        ),
    )
    return state.model_copy(update=changes)


def test_nothing_is_remembered_at_first(sweeps: SweepStore) -> None:
    assert sweeps.states() == []
    assert sweeps.load("vultr", "ewr") == SweepState(account="vultr", region="ewr")


def test_places_are_noted_once_and_stay(store: Store, sweeps: SweepStore) -> None:
    for region in ("ewr", "ord", "ewr"):
        sweeps.note_place("vultr", region)
    sweeps_of(store).note_place("vultr", "ewr")

    assert [(each.account, each.region, each.version) for each in sweeps_of(store).states()] == [
        ("vultr", "ewr", 1),
        ("vultr", "ord", 1),
    ]


def test_noting_a_place_does_not_forget_what_is_known_of_it(store: Store, sweeps: SweepStore) -> None:
    saved = sweeps.save(a_state())

    sweeps_of(store).note_place("vultr", "ewr")

    assert sweeps.load("vultr", "ewr") == saved


def test_a_state_is_read_as_it_was_written(store: Store, sweeps: SweepStore) -> None:
    saved = sweeps.save(a_state())

    assert saved == a_state(version=1)
    assert sweeps_of(store).load("vultr", "ewr") == saved
    assert sweeps_of(store).states() == [saved]


def test_a_stale_write_is_refused_and_changes_nothing(sweeps: SweepStore) -> None:
    first = sweeps.save(a_state())
    second = sweeps.save(first.model_copy(update={"incomplete_runs": 1}))

    for stale in (a_state(), first.model_copy(update={"incomplete_runs": 7})):
        with pytest.raises(LeaseConflict):
            sweeps.save(stale)

    assert sweeps.load("vultr", "ewr") == second


def test_of_many_who_claim_at_once_one_goes_on(store: Store, sweeps: SweepStore) -> None:
    start = sweeps.save(a_state())
    won: list[int] = []

    def claim(number: int) -> None:
        try:
            sweeps_of(store).save(start.model_copy(update={"last_try_at": at(100 + number)}))
        except LeaseConflict:
            return
        won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [winner] = won
    assert sweeps.load("vultr", "ewr").last_try_at == at(100 + winner)


def test_the_longest_state_fits(sweeps: SweepStore) -> None:
    one, other = a_state().unowned[0], a_state().missing[0]
    full = a_state(
        unowned=tuple(one.model_copy(update={"provider_id": f"{n:036}"}) for n in range(MAX_SIGHTINGS)),
        missing=tuple(other.model_copy(update={"resource_id": f"l-aaaaaaaaaaaa.instance.{n}"}) for n in range(400)),
    )

    assert sweeps.load("vultr", "ewr") != sweeps.save(full)
    assert len(sweeps.load("vultr", "ewr").unowned) == MAX_SIGHTINGS


def test_leases_and_sweeps_do_not_meet(store: Store, sweeps: SweepStore, ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    sweeps.save(a_state())

    assert [lease.id for lease in ledger.leases_of(None).items] == ["l-aaaaaaaaaaaa"]
    assert list(ledger.open_resources()) == []
    assert ledger.due(at(10**6)) == ["l-aaaaaaaaaaaa"]


def test_a_write_whose_answer_was_lost_is_recognised(dynamo: DynamoStore) -> None:
    lost = [True]

    def after(operation: str, request: object, answer: object) -> None:
        if operation == "put_item" and lost:
            lost.pop()
            raise client_error("InternalServerError", 500)

    client = ScriptedClient(dynamo.client, after=after)
    sweeps = DynamoSweepStore(client, dynamo.table, sleep=dynamo.pauses.append)

    saved = sweeps.save(a_state())

    assert sweeps.load("vultr", "ewr") == saved
    assert client.calls.count("put_item") == 2


def test_a_store_that_does_not_answer_says_so(dynamo: DynamoStore) -> None:
    def before(operation: str, request: object) -> None:
        raise client_error("ThrottlingException")

    sweeps = DynamoSweepStore(ScriptedClient(dynamo.client, before=before), dynamo.table, sleep=dynamo.pauses.append)

    for call in (sweeps.states, lambda: sweeps.load("vultr", "ewr"), lambda: sweeps.note_place("vultr", "ewr")):
        with pytest.raises(LedgerUnavailable):
            call()
