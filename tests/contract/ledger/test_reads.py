"""What a read promises: pages neither skip nor repeat, cursors open nothing, all that is due and all that is open."""

import base64
import json
from itertools import pairwise

import pytest
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.resource import ResourceState
from gpulease.errors import InputInvalid
from gpulease.ledger import codec
from gpulease.ports import Change, Ledger
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ledger_samples import NOW, a_lease, a_resource, an_event, at
from tests.support.ledger_stores import Store

ID = "l-aaaaaaaaaaaa"


def all_events(ledger: Ledger, limit: int) -> list[str]:
    """The kinds of all events, read in pages of this size."""
    kinds: list[str] = []
    cursor = None
    while True:
        page = ledger.events(ID, cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        kinds += [event.kind for event in page.items]
        cursor = page.cursor
        if cursor is None:
            return kinds


def all_leases(ledger: Ledger, owner: str | None, limit: int, states: tuple[LeaseState, ...] = ()) -> list[Lease]:
    """All leases of the owner, read in pages of this size."""
    leases: list[Lease] = []
    cursor = None
    while True:
        page = ledger.leases_of(owner, states=states, cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        leases += page.items
        cursor = page.cursor
        if cursor is None:
            return leases


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_of_events_neither_skip_nor_repeat(ledger: Ledger, limit: int) -> None:
    ledger.create_lease(a_lease(), [an_event(kind="e0"), an_event(kind="e1")])
    ledger.commit(Change(ID, events=tuple(an_event(seconds=0, kind=f"e{n}") for n in (2, 3, 4))))
    ledger.commit(Change(ID, events=(an_event(seconds=0.000001, kind="e5"),)))
    ledger.commit(Change(ID, events=(an_event(seconds=1, kind="e6"),)))
    ledger.create_lease(a_lease("l-aaaaaaaaaaab"), [an_event("l-aaaaaaaaaaab", kind="of another lease")])

    assert all_events(ledger, limit) == [f"e{n}" for n in range(7)]


def test_events_are_told_oldest_first_whenever_they_were_written(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    for seconds in (5, 1, 3):
        ledger.commit(Change(ID, events=(an_event(seconds=seconds, kind=f"at_{seconds}"),)))

    events = ledger.events(ID).items

    assert [event.kind for event in events] == ["at_1", "at_3", "at_5"]
    assert all(earlier.seq < later.seq for earlier, later in pairwise(events))


def test_a_page_goes_on_where_it_stopped_when_events_come_in_between(ledger: Ledger) -> None:
    ledger.create_lease(a_lease(), [an_event(kind="first"), an_event(kind="second")])
    page = ledger.events(ID, limit=1)

    ledger.commit(Change(ID, events=(an_event(kind="third"),)))

    rest = ledger.events(ID, cursor=page.cursor)
    assert [event.kind for event in rest.items] == ["second", "third"]


def test_an_event_reads_back_as_it_was_given_but_for_its_place(ledger: Ledger) -> None:
    event = an_event(facts={"text": "ü", "n": 1, "x": 0.5, "yes": True, "none": None})
    ledger.create_lease(a_lease(), [event])

    (found,) = ledger.events(ID).items

    assert found.seq
    assert found.model_copy(update={"seq": ""}) == event


# --- listings ---------------------------------------------------------------------------------------------------------


def fill(ledger: Ledger, leases: int = 9) -> None:
    """Leases of two owners, in threes of one age; every third is released."""
    for n in range(leases):
        ledger.create_lease(
            a_lease(
                f"l-{n}",
                owner="ada" if n % 2 else "bob",
                created_at=at(n // 3),
                state=LeaseState.RELEASED if n % 3 == 0 else LeaseState.RUNNING,
            )
        )


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_leases_are_listed_newest_first_in_pages_that_neither_skip_nor_repeat(ledger: Ledger, limit: int) -> None:
    fill(ledger)

    assert [lease.id for lease in all_leases(ledger, "ada", limit)] == ["l-7", "l-5", "l-3", "l-1"]
    assert [lease.id for lease in all_leases(ledger, None, limit)] == [f"l-{n}" for n in range(8, -1, -1)]
    assert all_leases(ledger, "eve", limit) == []
    assert all_leases(ledger, "", limit) == []


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_listing_may_ask_for_states(ledger: Ledger, limit: int) -> None:
    fill(ledger)

    released = all_leases(ledger, None, limit, (LeaseState.RELEASED,))
    both = all_leases(ledger, "bob", limit, (LeaseState.RELEASED, LeaseState.RUNNING))

    assert [lease.id for lease in released] == ["l-6", "l-3", "l-0"]
    assert [lease.id for lease in both] == ["l-8", "l-6", "l-4", "l-2", "l-0"]
    assert all_leases(ledger, "ada", limit, (LeaseState.PAUSED,)) == []


def test_a_listing_shows_leases_as_they_are_now(ledger: Ledger) -> None:
    fill(ledger, 3)
    record = ledger.load("l-1")
    ledger.commit(Change("l-1", record.lease.model_copy(update={"state": LeaseState.RELEASED})))

    assert all_leases(ledger, "ada", 10, (LeaseState.RUNNING,)) == []
    (lease,) = all_leases(ledger, "ada", 10)
    assert (lease.state, lease.version) == (LeaseState.RELEASED, 2)


def test_a_page_goes_on_where_it_stopped_when_leases_come_in_between(ledger: Ledger) -> None:
    fill(ledger, 4)
    page = ledger.leases_of(None, limit=2)

    ledger.create_lease(a_lease("l-new", created_at=at(100)))

    assert [lease.id for lease in ledger.leases_of(None, cursor=page.cursor).items] == ["l-1", "l-0"]


# --- cursors ----------------------------------------------------------------------------------------------------------


def packed(value: object) -> str:
    """As a cursor is packed."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


PLACE = f"{codec.time_text(NOW)}#l-3"
BAD_CURSORS = [
    "",
    "!",
    "a",
    "AAAA",
    "\u00e9",
    "\ud800",
    "A" * 100_000,
    packed(None),
    packed([]),
    packed("l"),
    packed({"0": "l", "1": "ada", "2": PLACE}),
    packed(["l", "ada", 5]),
    packed(["l", "ada", None]),
    packed(["l", "ada", "x"]),
    packed(["l", "ada", PLACE, "more"]),
    packed(["l", "ada", PLACE + "\x00"]),
    packed(["l", "ada", PLACE + "\ud800"]),
    packed(["l", "ada", PLACE + "x" * 2000]),
    packed(["l", "bob", PLACE]),
    packed(["l", None, PLACE]),
    packed(["e", "ada", PLACE]),
    packed([[[[[[]]]]]]),
    base64.urlsafe_b64encode(b"[" * 3000).decode(),
    packed(["l", "ada", PLACE]) + "\n",
]


@pytest.mark.parametrize("cursor", BAD_CURSORS, ids=range(len(BAD_CURSORS)))
def test_what_is_no_cursor_of_this_listing_is_refused(ledger: Ledger, cursor: str) -> None:
    fill(ledger)

    with pytest.raises(InputInvalid) as error:
        ledger.leases_of("ada", cursor=cursor)
    assert error.value.field == "cursor"
    with pytest.raises(InputInvalid) as error:
        ledger.events("ada", cursor=cursor)
    assert error.value.field == "cursor"


def test_a_cursor_of_one_owner_does_not_serve_another(ledger: Ledger) -> None:
    fill(ledger)
    of_ada, of_all = ledger.leases_of("ada", limit=1).cursor, ledger.leases_of(None, limit=1).cursor

    for owner, cursor in (("bob", of_ada), (None, of_ada), ("ada", of_all)):
        with pytest.raises(InputInvalid):
            ledger.leases_of(owner, cursor=cursor)


def test_a_forged_place_shows_nobody_else_s_leases(ledger: Ledger) -> None:
    fill(ledger)
    far = codec.lease_cursor("ada", f"{codec.time_text(at(10_000))}#l-8")

    assert {lease.owner for lease in ledger.leases_of("ada", cursor=far).items} == {"ada"}


def test_a_forged_place_in_the_events_of_a_lease_shows_no_other_lease_s(ledger: Ledger) -> None:
    ledger.create_lease(a_lease(), [an_event()])
    ledger.create_lease(a_lease("l-aaaaaaaaaaab"), [an_event("l-aaaaaaaaaaab")])

    for place in ("#0", "#" + "f" * 40, "#00##", "#1#2#3"):
        page = ledger.events(ID, cursor=codec.event_cursor(ID, codec.time_text(NOW) + place))
        assert {event.lease_id for event in page.items} <= {ID}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cursor=st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_text_is_refused_as_a_cursor(ledger: Ledger, cursor: str) -> None:
    with pytest.raises(InputInvalid):
        ledger.leases_of("ada", cursor=cursor)
    with pytest.raises(InputInvalid):
        ledger.events(ID, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_nothing_is_refused(ledger: Ledger, limit: int) -> None:
    for read in (ledger.leases_of, ledger.events):
        with pytest.raises(InputInvalid) as error:
            read("ada", limit=limit)
        assert error.value.field == "limit"
    with pytest.raises(InputInvalid):
        ledger.due(NOW, limit=limit)


# --- what is due ------------------------------------------------------------------------------------------------------


def test_due_is_what_must_be_looked_at_by_now_the_most_overdue_first(ledger: Ledger) -> None:
    for n in range(20):
        ledger.create_lease(a_lease(f"l-{n:02}", next_check_at=at((n * 7) % 20)))
    ledger.create_lease(a_lease("l-never", next_check_at=None))

    assert ledger.due(at(-0.000001)) == []
    assert ledger.due(at(0)) == ["l-00"]
    assert ledger.due(at(9.5)) == [f"l-{(n * 3) % 20:02}" for n in range(10)]
    assert ledger.due(at(100), limit=3) == ["l-00", "l-03", "l-06"]
    assert len(ledger.due(at(100))) == 20


def test_a_check_that_moves_or_ends_is_no_longer_due(ledger: Ledger) -> None:
    ledger.create_lease(a_lease(next_check_at=at(0)))
    for later in (at(50), None):
        lease = ledger.load(ID).lease
        ledger.commit(Change(ID, lease.model_copy(update={"next_check_at": later})))
        assert ledger.due(at(10)) == []

    assert ledger.due(at(10_000)) == []


# --- what is open -----------------------------------------------------------------------------------------------------


def test_open_resources_are_all_that_are_not_released(ledger: Ledger) -> None:
    places = [("vultr", "ewr"), ("vultr", "ams"), ("aws", "us-east-1"), ("vultr-2", "ewr")]
    for n, (provider, region) in enumerate(places):
        ledger.create_lease(a_lease(f"l-{n}"))
        resources = tuple(
            a_resource(f"l-{n}", attempt, provider=provider, region=region, state=state)
            for attempt, state in enumerate(ResourceState)
        )
        ledger.commit(Change(f"l-{n}", resources=resources))

    def found(provider: str | None = None, region: str | None = None) -> list[tuple[str, str]]:
        resources = list(ledger.open_resources(provider=provider, region=region))
        assert {resource.state for resource in resources} <= set(ResourceState) - {ResourceState.RELEASED}
        return sorted((resource.provider, resource.region) for resource in resources)

    assert found() == sorted(places * 3)
    assert found("vultr") == sorted(places[:2] * 3)
    assert found("vultr", "ewr") == places[:1] * 3
    assert found(region="ewr") == sorted([places[0], places[3]] * 3)
    assert found("vultr", "us-east-1") == []


def test_a_released_resource_is_no_longer_open_and_may_be_opened_again(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=(a_resource(),)))
    for state, expected in ((ResourceState.RELEASED, 0), (ResourceState.RELEASING, 1)):
        (resource,) = ledger.load(ID).resources
        ledger.commit(Change(ID, resources=(resource.model_copy(update={"state": state}),)))
        assert len(list(ledger.open_resources())) == expected


def test_open_resources_are_read_over_many_portions(store: Store) -> None:
    ledger = store.ledger()
    wanted = set()
    for n in range(12):
        lease_id = f"l-{n:03}"
        resources = tuple(a_resource(lease_id, attempt) for attempt in range(1, 91))
        ledger.commit(Change(lease_id, resources=resources))
        wanted |= {resource.id for resource in resources}

    found = [resource.id for resource in ledger.open_resources()]

    assert len(found) == len(wanted)
    assert set(found) == wanted


def test_writing_goes_on_while_open_resources_are_read(ledger: Ledger) -> None:
    ledger.create_lease(a_lease())
    ledger.commit(Change(ID, resources=tuple(a_resource(attempt=attempt) for attempt in range(1, 6))))

    for resource in ledger.open_resources():
        released = resource.model_copy(update={"state": ResourceState.RELEASED})
        ledger.commit(Change(ID, resources=(released,)))

    assert list(ledger.open_resources()) == []
