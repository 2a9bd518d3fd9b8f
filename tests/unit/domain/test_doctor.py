"""Ledger and provider side by side, as a pure function."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.doctor import Finding, Group, PlaceView, Source, diagnose
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.resource import ReleaseProgress, Resource, ResourceKind, ResourceState, marker_for
from gpulease.domain.sweep import Missing, SweepState, Unowned

from tests.support.ledger_samples import NOW, a_resource, at

HERE = ("vultr", "ewr")


def held(provider_id: str, **changes: Any) -> Resource:
    return a_resource(**{"provider_id": provider_id, "state": ResourceState.HELD, "held_at": at(-1000), **changes})


def seen(provider_id: str, resource: str = "l-bbbbbbbbbbbb.instance.1", **changes: Any) -> Observation:
    values: dict[str, Any] = {
        "kind": ResourceKind.INSTANCE,
        "provider_id": provider_id,
        "region": "ewr",
        "marker": marker_for("test", resource),
        "condition": Condition.READY,
        "words": "active",
        **changes,
    }
    return Observation(**values)


def place(*things: Observation, live: bool = True, read_at: datetime = NOW, **state: Any) -> PlaceView:
    shown = {each.provider_id: each for each in things} if live else None
    return PlaceView(
        SweepState(account="vultr", region="ewr", **state),
        provider="vultr",
        window_seconds=120,
        shown=shown,
        read_at=read_at if live else None,
    )


def one(rows: list[Resource], where: PlaceView | None) -> Finding:
    [finding] = diagnose(rows, {HERE: where} if where else {}, "test")
    return finding


@pytest.mark.parametrize(
    ("where", "group", "there"),
    [
        (place(seen("x")), Group.HELD, True),
        (place(), Group.LOST, False),
        (place(read_at=at(-900)), Group.HELD, None),
        (place(live=False), Group.HELD, None),
        (None, Group.HELD, None),
    ],
)
def test_what_is_held_is_there_or_lost_or_not_known(where: PlaceView | None, group: Group, there: bool | None) -> None:
    finding = one([held("x")], where)

    assert (finding.group, finding.at_provider) == (group, there)
    assert finding.usd_per_hour == Decimal("23.920")


def test_the_last_sweeps_word_counts_where_nothing_was_read() -> None:
    row = held("x")
    missing = Missing(resource_id=row.id, lease_id=row.lease_id, kind=row.kind, first_at=at(-60), counted_at=at(-60))

    finding = one([row], place(live=False, missing=(missing,)))

    assert (finding.group, finding.since) == (Group.LOST, at(-60))


def test_what_is_on_its_way_out_tells_since_when_and_how_often() -> None:
    progress = ReleaseProgress(requested_at=at(-50), next_try_at=at(5), tries=4, last_error="locked")

    finding = one([held("x", state=ResourceState.RELEASING, release=progress)], place(seen("x")))

    assert (finding.group, finding.since, finding.tries, finding.last_error) == (
        Group.RELEASING, at(-50), 4, "locked",
    )  # fmt: skip


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("exempt", [True, False])
def test_what_nobody_holds_is_unowned_or_exempt(live: bool, exempt: bool) -> None:
    sighting = Unowned(
        provider_id="y",
        kind=ResourceKind.INSTANCE,
        marker=seen("y").marker,
        first_at=at(-300),
        counted_at=at(-300),
        exempt=exempt,
    )

    finding = one([], place(seen("y", exempt=exempt), live=live, unowned=(sighting,)))

    assert finding.group is (Group.EXEMPT if exempt else Group.UNOWNED)
    assert (finding.lease_id, finding.since) == ("l-bbbbbbbbbbbb", at(-300))


def test_what_an_intent_will_find_is_not_unowned() -> None:
    intent = a_resource("l-bbbbbbbbbbbb")

    assert [each.group for each in diagnose([intent], {HERE: place(seen("y"))}, "test")] == [Group.HELD]


def test_two_accounts_with_one_key_show_a_thing_once() -> None:
    other = PlaceView(SweepState(account="research", region="ewr"), "vultr", 120, {"y": seen("y")}, at(0))

    found = list(diagnose([], {HERE: place(seen("y")), ("research", "ewr"): other}, "test"))

    assert [each.provider_id for each in found] == ["y"]


@pytest.mark.parametrize(
    ("where", "source"),
    [
        (place(), Source.LIVE),
        (place(live=False, last_complete_at=at(-60)), Source.LAST_SWEEP),
        (place(live=False), Source.NEVER),
    ],
)
def test_each_place_says_where_its_side_comes_from(where: PlaceView, source: Source) -> None:
    assert where.source is source
