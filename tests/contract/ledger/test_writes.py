"""What a write promises: all or nothing, only over what was read, only in the epoch it was decided for."""

from collections.abc import Callable
from datetime import datetime

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.errors import InputInvalid, LeaseConflict, LeaseExists, LeaseNotFound, LeaseSuperseded, LedgerUnavailable
from gpulease.ports import Change, LeaseRecord, Ledger

from tests.support.ledger_samples import a_lease, a_resource, an_event
from tests.support.ledger_stores import Fault, Store

ID = "l-aaaaaaaaaaaa"
THREADS = 8


def everything(ledger: Ledger) -> tuple[LeaseRecord, list[str]]:
    """The lease and the kinds of its events."""
    return ledger.load(ID), [event.kind for event in ledger.events(ID).items]


def test_a_new_lease_reads_back_as_it_was_given(ledger: Ledger) -> None:
    lease = a_lease(running_at=datetime.fromisoformat("2026-07-01T14:00:00.000001+02:00"))

    ledger.create_lease(lease, [an_event(kind="requested")], b"#!/bin/sh\n\x00\xff")

    record, kinds = everything(ledger)
    assert record.lease == lease.model_copy(update={"version": 1})
    assert record.resources == ()
    assert kinds == ["requested"]
    assert ledger.start_script(ID) == b"#!/bin/sh\n\x00\xff"


@pytest.mark.parametrize("lease_id", [ID, "", "x" * 5000, "a\ud800", "l-aaaaaaaaaaab#", "ключ"])
def test_a_lease_that_is_not_there_is_not_found(ledger: Ledger, lease_id: str) -> None:
    ledger.create_lease(a_lease("l-aaaaaaaaaaab"))

    with pytest.raises(LeaseNotFound):
        ledger.load(lease_id)
    with pytest.raises(LeaseNotFound):
        ledger.start_script(lease_id)
    assert ledger.events(lease_id).items == ()


def test_rows_of_a_lease_that_is_not_there_do_not_make_it_found(ledger: Ledger) -> None:
    ledger.commit(Change(ID, resources=(a_resource(),), events=(an_event(),)))

    with pytest.raises(LeaseNotFound):
        ledger.load(ID)
    with pytest.raises(LeaseNotFound):
        ledger.start_script(ID)


def test_a_lease_without_a_start_script_has_an_empty_one(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())

    assert ledger.start_script(ID) == b""


def test_a_taken_id_is_refused_and_nothing_is_written(ledger: Ledger) -> None:
    ledger.create_lease(a_lease(), [an_event(kind="first")], b"first")

    with pytest.raises(LeaseExists):
        ledger.create_lease(a_lease(owner="bob"), [an_event(kind="second")], b"second")

    record, kinds = everything(ledger)
    assert (record.lease.owner, record.lease.version, kinds) == ("ada", 1, ["first"])
    assert ledger.start_script(ID) == b"first"


def test_each_write_raises_the_version_by_one(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    for expected in (1, 2, 3):
        lease = ledger.load(ID).lease
        assert lease.version == expected
        ledger.commit(Change(ID, lease.model_copy(update={"name": f"name {expected}"})))

    assert ledger.load(ID).lease.name == "name 3"


def test_resources_are_read_with_their_lease_in_order_of_attempts(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    ledger.create_lease(a_lease("l-aaaaaaaaaaab"))
    ledger.commit(Change("l-aaaaaaaaaaab", resources=(a_resource("l-aaaaaaaaaaab"),)))
    for attempt in (10, 2, 1):
        ledger.commit(Change(ID, resources=(a_resource(attempt=attempt),)))

    record = ledger.load(ID)

    assert [resource.attempt for resource in record.resources] == [1, 2, 10]
    assert record.resources[0] == a_resource(version=1)


@pytest.mark.parametrize("stale", ["lease", "resource", "new resource"])
def test_one_stale_row_stops_the_whole_change(store: Store, stale: str) -> None:
    ledger = store.ledger()
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=(a_resource(),)))
    before = everything(ledger)
    lease, resource, new = before[0].lease, before[0].resources[0], a_resource(attempt=2)
    if stale == "lease":
        lease = lease.model_copy(update={"version": 7})
    elif stale == "resource":
        resource = resource.model_copy(update={"version": 7})
    else:
        new = a_resource(attempt=2, version=3)

    with pytest.raises(LeaseConflict):
        ledger.commit(Change(ID, lease, (resource, new), (an_event(),), epoch=1))

    assert everything(ledger) == before
    assert everything(store.ledger()) == before


def test_version_zero_means_that_the_row_must_not_exist(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=(a_resource(),)))

    with pytest.raises(LeaseConflict):
        ledger.commit(Change(ID, a_lease()))
    with pytest.raises(LeaseConflict):
        ledger.commit(Change(ID, resources=(a_resource(address="192.0.2.1"),)))


def test_a_change_may_raise_the_epoch_it_was_decided_in(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    lease = ledger.load(ID).lease

    ledger.commit(Change(ID, lease.model_copy(update={"epoch": 2, "state": LeaseState.RELEASING}), epoch=1))

    assert ledger.load(ID).lease.epoch == 2


CHANGES: dict[str, Callable[[LeaseRecord], Change]] = {
    "lease": lambda r: Change(ID, r.lease, epoch=1),
    "resource": lambda r: Change(ID, None, r.resources, epoch=1),
    "new resource": lambda r: Change(ID, resources=(a_resource(attempt=2),), epoch=1),
    "event": lambda r: Change(ID, events=(an_event(),), epoch=1),
    "all": lambda r: Change(ID, r.lease, r.resources, (an_event(),), epoch=1),
    "nothing": lambda r: Change(ID, epoch=1),
    "stale too": lambda r: Change(ID, r.lease.model_copy(update={"version": 1}), r.resources, epoch=1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_written_for_an_epoch_that_is_over(ledger: Ledger, what: str) -> None:
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=(a_resource(),)))
    lease = ledger.load(ID).lease
    ledger.commit(Change(ID, lease.model_copy(update={"epoch": 2}), epoch=1))
    before = everything(ledger)

    with pytest.raises(LeaseSuperseded):
        ledger.commit(CHANGES[what](before[0]))

    assert everything(ledger) == before


@pytest.mark.parametrize("what", [name for name in CHANGES if name != "stale too"])
def test_a_change_in_its_own_epoch_is_written(ledger: Ledger, what: str) -> None:
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=(a_resource(),)))

    ledger.commit(CHANGES[what](ledger.load(ID)))


def test_facts_are_recorded_whatever_the_epoch(ledger: Ledger) -> None:
    ledger.create_lease(a_lease(epoch=5))

    ledger.commit(Change(ID, resources=(a_resource(),), events=(an_event(kind="seen"),)))

    record, kinds = everything(ledger)
    assert len(record.resources) == 1
    assert kinds == ["seen"]


def test_an_epoch_of_a_lease_that_is_not_there_is_over(ledger: Ledger) -> None:
    with pytest.raises(LeaseSuperseded):
        ledger.commit(Change(ID, resources=(a_resource(),), epoch=1))


def test_a_hundred_rows_go_together_and_one_more_is_refused(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    events = tuple(an_event(seconds=n) for n in range(99))

    ledger.commit(Change(ID, events=events, epoch=1))

    assert len(ledger.events(ID, limit=200).items) == 99
    with pytest.raises(InputInvalid):
        ledger.commit(Change(ID, events=(*events, an_event()), epoch=1))
    assert len(ledger.events(ID, limit=200).items) == 99


@pytest.mark.parametrize(
    "change",
    [
        Change(ID, a_lease("l-aaaaaaaaaaab")),
        Change(ID, resources=(a_resource("l-aaaaaaaaaaab"),)),
        Change(ID, events=(an_event("l-aaaaaaaaaaab"),)),
        Change(ID, resources=(a_resource(), a_resource())),
        Change(ID, a_lease(owner="")),
        Change("", a_lease("")),
    ],
    ids=["other lease", "other resource", "other event", "twice", "no owner", "no id"],
)
def test_rows_that_do_not_belong_together_are_refused(ledger: Ledger, change: Change) -> None:
    with pytest.raises(InputInvalid):
        ledger.commit(change)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("lease", Change(ID, a_lease(updated_at=datetime(2026, 7, 1), version=1))),  # noqa: DTZ001 - the point
        ("lease", Change(ID, a_lease(state="asleep", version=1))),
        ("lease", Change(ID, a_lease(reason_detail="x" * 400_000, version=1))),
        ("resources", Change(ID, resources=(a_resource(status=None),))),
        ("events", Change(ID, events=(an_event(at=None),))),
    ],
    ids=["no zone", "no such state", "too large", "no number", "no time"],
)
def test_what_could_not_be_read_back_is_not_written(ledger: Ledger, field: str, change: Change) -> None:
    ledger.create_lease(a_lease())
    before = everything(ledger)

    with pytest.raises(InputInvalid) as error:
        ledger.commit(change)

    assert error.value.field == field
    assert everything(ledger) == before


def test_the_largest_ordinary_lease_is_stored(ledger: Ledger) -> None:
    attempts = a_lease().attempts * 50
    ledger.create_lease(a_lease(attempts=attempts, warnings=("w" * 500,) * 100), (), b"s" * 32 * 1024)

    assert len(ledger.load(ID).lease.attempts) == 50


# --- answers that were lost (case C74) --------------------------------------------------------------------------------

WRITES: dict[str, Callable[[LeaseRecord], Change]] = {
    "lease": lambda r: Change(ID, r.lease),
    "lease in its epoch": lambda r: Change(ID, r.lease, epoch=1),
    "epoch raised": lambda r: Change(ID, r.lease.model_copy(update={"epoch": 2}), epoch=1),
    "resource": lambda r: Change(ID, resources=r.resources),
    "new resource": lambda r: Change(ID, resources=(a_resource(attempt=2),)),
    "new resource in its epoch": lambda r: Change(ID, resources=(a_resource(attempt=2),), epoch=1),
    "event": lambda r: Change(ID, events=(an_event(),)),
    "events in their epoch": lambda r: Change(ID, events=(an_event(), an_event()), epoch=1),
    "all": lambda r: Change(
        ID, r.lease, (*r.resources, a_resource(attempt=2)), (an_event(), an_event(seconds=1)), epoch=1
    ),
}


def after_faults(store: Store, faulty: Ledger, make: Callable[[LeaseRecord], Change]) -> tuple[object, ...]:
    """Commit with faults; versions and number of events then, for comparison with those of a commit without."""
    record = faulty.load(ID)
    faulty.commit(make(record))
    record, kinds = everything(store.ledger())
    return record.lease.version, record.lease.epoch, [(r.attempt, r.version) for r in record.resources], kinds


def prepare(store: Store) -> None:
    """A lease with one resource."""
    ledger = store.ledger()
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=(a_resource(),)))


@pytest.mark.parametrize("what", WRITES)
def test_a_write_whose_answer_was_lost_counts_as_won_and_happens_once(store: Store, what: str) -> None:
    prepare(store)
    record = store.ledger().load(ID)
    change = WRITES[what](record)
    versions = {resource.attempt: resource.version for resource in record.resources}
    versions |= {resource.attempt: resource.version + 1 for resource in change.resources}
    lease = record.lease if change.lease is None else change.lease.model_copy(update={"version": 2})
    expected = lease.version, lease.epoch, sorted(versions.items()), [event.kind for event in change.events]

    found = after_faults(store, store.faulty(Fault.NOT_WRITTEN, Fault.ANSWER_LOST), WRITES[what])

    assert found == expected


def test_a_new_lease_whose_answer_was_lost_exists_once_and_is_ours(store: Store) -> None:
    store.faulty(Fault.ANSWER_LOST).create_lease(a_lease(), [an_event(kind="requested")], b"script")

    record, kinds = everything(store.ledger())
    assert (record.lease.version, kinds) == (1, ["requested"])
    with pytest.raises(LeaseExists):
        store.faulty(Fault.NOT_WRITTEN, Fault.ANSWER_LOST).create_lease(a_lease())


def test_a_lone_new_lease_whose_answer_was_lost_is_ours(store: Store) -> None:
    store.faulty(Fault.ANSWER_LOST).create_lease(a_lease())

    assert store.ledger().load(ID).lease.version == 1


@pytest.mark.parametrize("what", ["lease", "all"])
def test_without_tokens_a_lost_answer_would_look_like_a_conflict(store: Store, what: str) -> None:
    prepare(store)

    with pytest.raises(LeaseConflict):
        after_faults(store, store.without_tokens(Fault.ANSWER_LOST), WRITES[what])


def test_a_real_conflict_stays_one_after_faults(store: Store) -> None:
    prepare(store)
    stale = store.ledger().load(ID)
    store.ledger().commit(Change(ID, stale.lease))

    with pytest.raises(LeaseConflict):
        store.faulty(Fault.NOT_WRITTEN, Fault.NOT_WRITTEN).commit(Change(ID, stale.lease))


def test_a_store_that_never_answers_is_unavailable_and_is_asked_a_bounded_number_of_times(store: Store) -> None:
    prepare(store)
    ledger = store.faulty(*[Fault.NOT_WRITTEN] * 100)
    lease = ledger.load(ID).lease

    with pytest.raises(LedgerUnavailable):
        ledger.commit(Change(ID, lease))

    assert store.ledger().load(ID).lease.version == 1
