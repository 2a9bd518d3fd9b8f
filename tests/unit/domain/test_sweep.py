"""The rules of the sweep, without a provider and without a ledger."""

from datetime import timedelta
from typing import Any

import pytest
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.resource import ReleaseProgress, Resource, ResourceKind, ResourceState, marker_for
from gpulease.domain.sweep import (
    LOOKS_APART,
    MAX_SIGHTINGS,
    Judgement,
    Look,
    SweepState,
    in_turn,
    incomplete,
    judge,
    named_by,
    needs_alarm,
    stood_still_since,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledger_samples import a_resource, at

DEPLOYMENT = "test"
V = 120.0
FRESH = SweepState(account="vultr", region="ewr")


def shown(provider_id: str, resource: str = "l-bbbbbbbbbbbb.instance.1", **changes: Any) -> Observation:
    values: dict[str, Any] = {
        "kind": ResourceKind.INSTANCE,
        "provider_id": provider_id,
        "region": "ewr",
        "marker": marker_for(DEPLOYMENT, resource),
        "condition": Condition.READY,
        "words": "active",
        "created_at": at(-1000),
        **changes,
    }
    return Observation(**values)


def held(provider_id: str, lease: str = "l-aaaaaaaaaaaa", **changes: Any) -> Resource:
    values: dict[str, Any] = {
        "provider_id": provider_id,
        "state": ResourceState.HELD,
        "held_at": at(-1000),
        "account": "vultr",
        **changes,
    }
    return a_resource(lease, **values)


def look(seconds: float, *things: Observation, account: str = "vultr") -> Look:
    return Look(
        deployment=DEPLOYMENT,
        account=account,
        at=at(seconds),
        window_seconds=V,
        shown={each.provider_id: each for each in things},
    )


def looks(times: list[float], things: list[Observation], rows: list[Resource]) -> Judgement:
    state, judgement = FRESH, Judgement(FRESH)
    for seconds in times:
        judgement = judge(look(seconds, *things), iter(rows), state)
        state = judgement.state
    return judgement


@pytest.mark.parametrize(
    ("times", "acts"),
    [
        ([0], False),
        ([0, 300], True),
        ([0, 59], False),
        ([0, 59, 61], True),
        ([0, 30, 59], False),
        ([0, 300, 600], True),
    ],
)
def test_two_looks_a_minute_apart_are_needed_in_both_directions(times: list[float], acts: bool) -> None:
    judgement = looks(times, [shown("stranger")], [held("gone")])

    assert bool(judgement.take_up) is acts
    assert bool(judgement.confirm) is acts


def test_looks_must_be_in_a_row() -> None:
    first = judge(look(0, shown("x")), [held("y")], FRESH).state
    between = judge(look(300, shown("y")), [held("y")], first).state
    assert (between.unowned, between.missing) == ((), ())

    again = judge(look(600, shown("x")), [held("y")], between)

    assert (again.take_up, again.confirm) == ((), ())


def test_a_look_that_failed_neither_confirms_nor_refutes() -> None:
    first = judge(look(0, shown("x")), [], FRESH).state
    failed = incomplete(incomplete(first, "503"), "503")
    assert failed.unowned == first.unowned
    assert failed.last_complete_at == first.last_complete_at
    assert failed.incomplete_runs == 2

    then = judge(look(600, shown("x")), [], failed)

    assert [each.provider_id for each in then.take_up] == ["x"]
    assert (then.state.incomplete_runs, then.state.last_error) == (0, "")


@pytest.mark.parametrize(
    ("row", "unowned"),
    [
        (held("x"), False),
        (held("x", state=ResourceState.RELEASING), False),
        (held("x", state=ResourceState.INTENDED), False),
        (held("x", account="another-key-of-the-same-account"), False),
        (held("x", state=ResourceState.RELEASED), True),
        (held("", state=ResourceState.INTENDED, marker=shown("x").marker), False),
        (held("", state=ResourceState.RELEASING, marker=shown("x").marker), False),
        (held("", state=ResourceState.RELEASED, marker=shown("x").marker), True),
        (held("y"), True),
    ],
)
def test_what_an_open_resource_or_an_open_intent_holds_is_owned(row: Resource, unowned: bool) -> None:
    judgement = judge(look(0, shown("x"), shown("y", "l-aaaaaaaaaaaa.instance.1")), [row], FRESH)

    assert ("x" in {each.provider_id for each in judgement.state.unowned}) is unowned


@pytest.mark.parametrize(("age", "acts"), [(-1000, True), (-50, True), (200, False), (None, True), (10**6, True)])
def test_older_than_v_by_the_providers_clock_or_by_ours(age: float | None, acts: bool) -> None:
    """A clock that runs ahead protects nothing for ever: after V in our own sight it counts as old."""
    thing = shown("x", created_at=None if age is None else at(age))
    times = [0.0, 300.0] if acts else [0.0, 70.0]

    assert bool(looks(times, [thing], []).take_up) is acts


@pytest.mark.parametrize("held_seconds", [-1000, -121, -119, 0, 50])
def test_what_is_younger_than_v_is_not_missing(held_seconds: float) -> None:
    judgement = judge(look(0), [held("x", held_at=at(held_seconds))], FRESH)

    assert bool(judgement.state.missing) is (held_seconds <= -V)


@pytest.mark.parametrize("state", [ResourceState.INTENDED, ResourceState.RELEASING, ResourceState.RELEASED])
def test_only_what_is_held_can_be_missing(state: ResourceState) -> None:
    assert judge(look(0), [held("x", state=state)], FRESH).state.missing == ()


def test_another_accounts_machine_is_not_missing_here() -> None:
    assert judge(look(0), [held("x", account="research")], FRESH).state.missing == ()


def test_the_exempt_and_the_unreadable_are_seen_and_never_taken_up() -> None:
    things = [shown("kept", exempt=True), shown("torn", "nonsense"), shown("other", kind=ResourceKind.NETWORK)]

    judgement = looks([0, 300, 600, 900], things, [])

    assert judgement.take_up == ()
    assert {each.provider_id: (each.exempt, each.readable) for each in judgement.state.unowned} == {
        "kept": (True, True),
        "torn": (False, False),
        "other": (False, False),
    }


@pytest.mark.parametrize(
    ("text", "lease"),
    [
        ("gpulease:test:l-aaaaaaaaaaaa.instance.1", "l-aaaaaaaaaaaa"),
        ("gpulease:test:l-aaaaaaaaaaaa.network.12.3", "l-aaaaaaaaaaaa"),
        ("gpulease:test:n-aaaaaaaaaaaa.network.1", "n-aaaaaaaaaaaa"),
        ("gpulease:test:l-aaaaaaaaaaaa.instance.0", None),
        ("gpulease:test:l-aaaaaaaaaaaa.instance.1 ", None),
        ("gpulease:test:l-aaaaaaaaaaa.instance.1", None),
        ("gpulease:test:l-aaaaaaaaaaaa.car.1", None),
        ("gpulease:test2:l-aaaaaaaaaaaa.instance.1", None),
        ("gpulease:tes:l-aaaaaaaaaaaa.instance.1", None),
        ("GPULEASE:test:l-aaaaaaaaaaaa.instance.1", None),
        (" gpulease:test:l-aaaaaaaaaaaa.instance.1", None),
        ("gpulease:test:", None),
        ("gpulease:keep", None),
        ("", None),
    ],
)
def test_a_marker_names_a_lease_of_this_deployment_or_nothing(text: str, lease: str | None) -> None:
    named = named_by(text, DEPLOYMENT)

    assert (named.lease_id if named else None) == lease


def test_without_a_deployment_nothing_is_ours() -> None:
    assert named_by("gpulease::l-aaaaaaaaaaaa.instance.1", "") is None


def test_a_release_that_nobody_works_on_is_named() -> None:
    turns = {"l-aaaaaaaaaaaa": -1000.0, "l-bbbbbbbbbbbb": -10.0}
    rows = [
        held(
            f"p-{lease}",
            lease,
            state=ResourceState.RELEASING,
            release=ReleaseProgress(requested_at=at(-2000), next_try_at=at(turn)),
        )
        for lease, turn in turns.items()
    ]

    assert judge(look(0), rows, FRESH).overdue == ("l-aaaaaaaaaaaa",)


def test_sightings_are_bounded_and_the_oldest_stay() -> None:
    first = looks([0], [shown("zz-first")], [])
    many = [shown(f"x-{number:04}") for number in range(MAX_SIGHTINGS + 7)]

    state = judge(look(300, shown("zz-first"), *many), [], first.state).state

    assert (len(state.unowned), state.left_out) == (MAX_SIGHTINGS, 8)
    assert state.unowned[0].provider_id == "zz-first"


def test_machines_are_confirmed_before_networks() -> None:
    rows = [held("n", id="l-aaaaaaaaaaaa.network.1", kind=ResourceKind.NETWORK), held("m")]

    assert [each.kind for each in looks([0, 300], [], rows).confirm] == [ResourceKind.INSTANCE, ResourceKind.NETWORK]


@pytest.mark.parametrize(
    ("runs", "alarmed", "now", "wanted"),
    [(2, None, 0, False), (3, None, 0, True), (4, 0, 600, False), (9, 0, 3600, True)],
)
def test_the_alarm_comes_after_three_runs_and_then_every_hour(
    runs: int, alarmed: float | None, now: float, wanted: bool
) -> None:
    state = FRESH.model_copy(update={"incomplete_runs": runs, "alarmed_at": None if alarmed is None else at(alarmed)})

    assert needs_alarm(state, at(now)) is wanted


def test_the_longest_unseen_place_comes_first() -> None:
    states = [
        SweepState(account="vultr", region="new"),
        SweepState(account="vultr", region=""),
        SweepState(account="vultr", region="late", last_try_at=at(0)),
        SweepState(account="vultr", region="later", last_try_at=at(60)),
    ]

    assert [each.region for each in in_turn(reversed(states))] == ["new", "late", "later"]


def test_a_schedule_that_stood_still_is_noticed_by_the_newest_look() -> None:
    states = [FRESH.model_copy(update={"last_try_at": at(seconds)}) for seconds in (0, 5000)]

    assert stood_still_since(states, at(5300)) is None
    assert stood_still_since(states, at(7000)) == at(5000)
    assert stood_still_since([FRESH], at(0)) is None


@given(
    looks_=st.lists(
        st.tuples(
            st.integers(min_value=1, max_value=700),
            st.booleans(),
            st.sets(st.sampled_from(["a", "b", "c"])),
            st.sets(st.sampled_from(["a", "b", "c", "d"])),
        ),
        max_size=12,
    )
)
def test_nothing_is_acted_on_that_was_not_so_in_two_looks_in_a_row(
    looks_: list[tuple[int, bool, set[str], set[str]]],
) -> None:
    """Against the rule said plainly: of the complete looks, the last ones in a row that all say so span a minute."""
    state, now = FRESH, 0.0
    history: list[tuple[float, set[str], set[str]]] = []
    for gap, fails, there, owned in looks_:
        now += gap
        if fails:
            state = incomplete(state, "503")
            continue
        rows = [held(name, f"l-{name * 12}") for name in sorted(owned)]
        things = [shown(name, f"l-{name * 12}.instance.1") for name in sorted(there)]
        judgement = judge(look(now, *things), rows, state)
        state = judgement.state
        history.append((now, there - owned, owned - there))

        for name in {each.provider_id for each in judgement.take_up}:
            assert _span(history, 1, name) >= LOOKS_APART
        for lease in {each.lease_id for each in judgement.confirm}:
            assert _span(history, 2, lease[2]) >= LOOKS_APART
        acted = {each.provider_id for each in judgement.take_up}
        assert acted == {n for n in there - owned if _span(history, 1, n) >= LOOKS_APART}


def _span(history: list[tuple[float, set[str], set[str]]], place: int, name: str) -> timedelta:
    times = []
    for entry in reversed(history):
        if name not in entry[place]:  # type: ignore[operator]
            break
        times.append(entry[0])
    return timedelta(seconds=times[0] - times[-1]) if times else timedelta(0)
