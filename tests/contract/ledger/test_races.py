"""Several writers at once: exactly one wins, and no update is lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from gpulease.errors import LeaseConflict, LeaseExists, LeaseSuperseded
from gpulease.ports import Change, Ledger

from tests.support.ledger_samples import a_lease, a_resource, an_event
from tests.support.ledger_stores import Store

ID = "l-aaaaaaaaaaaa"
THREADS = 8


def race(ledgers: list[Ledger], claim: Callable[[int, Ledger], None]) -> list[int]:
    """Let every ledger make its claim at the same moment, and say whose claims were granted."""
    barrier = Barrier(len(ledgers))

    def run(number: int) -> bool:
        barrier.wait()
        try:
            claim(number, ledgers[number])
        except (LeaseConflict, LeaseSuperseded, LeaseExists):
            return False
        return True

    with ThreadPoolExecutor(len(ledgers)) as pool:
        return [number for number, won in enumerate(pool.map(run, range(len(ledgers)))) if won]


Claim = Callable[[int, Ledger], None]


def claim_lease(ledger: Ledger, lease_id: str) -> Claim:
    """Everybody writes the lease row as it reads now."""
    lease = ledger.load(lease_id).lease
    return lambda number, mine: mine.commit(Change(lease_id, lease.model_copy(update={"name": f"won by {number}"})))


def claim_epoch(ledger: Ledger, lease_id: str) -> Claim:
    """Everybody raises the epoch and writes an intent."""
    lease = ledger.load(lease_id).lease.model_copy(update={"epoch": 2})
    return lambda number, mine: mine.commit(
        Change(
            lease_id,
            lease.model_copy(update={"name": f"won by {number}"}),
            (a_resource(lease_id, status=f"won by {number}"),),
            (an_event(lease_id),),
            epoch=1,
        )
    )


def claim_intent(ledger: Ledger, lease_id: str) -> Claim:
    """Twins write the same intent, which is one row."""
    return lambda number, mine: mine.commit(
        Change(lease_id, resources=(a_resource(lease_id, status=f"won by {number}"),), epoch=1)
    )


def race_for(store: Store, ledgers: list[Ledger], make: Callable[[Ledger, str], Claim], lease_id: str) -> list[str]:
    """Race for a new lease, and say what is wrong with the end of it."""
    reader = store.ledger()
    reader.create_lease(a_lease(lease_id))
    winners = race(ledgers, make(reader, lease_id))
    if len(winners) != 1:
        return [f"{len(winners)} winners"]
    record = reader.load(lease_id)
    said = {record.lease.name, *(resource.status for resource in record.resources)} - {"training"}
    return [] if said == {f"won by {winners[0]}"} else [f"{winners[0]} won, the ledger says {said}"]


@pytest.mark.parametrize("make", [claim_lease, claim_epoch, claim_intent])
def test_of_eight_claims_at_once_exactly_one_is_granted(store: Store, make: Callable[[Ledger, str], Claim]) -> None:
    ledgers = [store.ledger() for _ in range(THREADS)]

    for turn in range(4):
        assert race_for(store, ledgers, make, f"l-turn{turn}") == []


def test_threads_may_share_one_ledger(store: Store) -> None:
    ledgers = [store.ledger()] * THREADS

    for turn in range(4):
        assert race_for(store, ledgers, claim_epoch, f"l-turn{turn}") == []


def test_the_race_would_show_a_ledger_that_does_not_compare_versions(store: Store) -> None:
    ledgers = [store.without_conditions() for _ in range(THREADS)]

    assert race_for(store, ledgers, claim_lease, "l-broken") == [f"{THREADS} winners"]


def test_of_eight_creations_with_one_id_exactly_one_is_granted(store: Store) -> None:
    ledgers = [store.ledger() for _ in range(THREADS)]

    winners = race(
        ledgers,
        lambda number, mine: mine.create_lease(a_lease(owner=f"owner-{number}"), [an_event()], b"%d" % number),
    )

    assert len(winners) == 1
    assert store.ledger().load(ID).lease.owner == f"owner-{winners[0]}"
    assert store.ledger().start_script(ID) == b"%d" % winners[0]
    assert len(store.ledger().events(ID).items) == 1


def test_writers_of_one_row_lose_no_update(store: Store) -> None:
    store.ledger().create_lease(a_lease(restarts=0))

    def add_five(ledger: Ledger) -> None:
        done = 0
        while done < 5:
            lease = ledger.load(ID).lease
            try:
                ledger.commit(Change(ID, lease.model_copy(update={"restarts": lease.restarts + 1})))
                done += 1
            except LeaseConflict:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_five, [store.ledger() for _ in range(4)]))

    assert store.ledger().load(ID).lease.restarts == 20
