"""What reports make of the agent's row, and how soon the next one should come."""

from datetime import UTC, datetime, timedelta

import pytest
from gpulease.domain.agent import (
    REPORT_EVERY_SECONDS,
    REPORT_SOON_SECONDS,
    AgentRecord,
    is_silent,
    last_activity,
    report_every_seconds,
    reported,
)
from gpulease.domain.policy import Signal

T0 = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
NEW = AgentRecord(lease_id="l-a", attempt=1, token_sha256="")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_a_signal_is_dated_by_our_clock_from_how_long_ago_it_was() -> None:
    row = reported(NEW, at(0), {Signal.GPU: 25.0})

    assert row.activity_at == {Signal.GPU: at(-25)}
    assert (row.first_report_at, row.last_report_at) == (at(0), at(0))


def test_a_report_that_comes_late_or_twice_takes_nothing_back() -> None:
    row = reported(NEW, at(60), {Signal.SSH: 0.0})

    again = reported(row, at(60), {Signal.SSH: 40.0})

    assert again.activity_at == row.activity_at


def test_nothing_is_dated_ahead() -> None:
    assert reported(NEW, at(0), {Signal.BUSY: -3600.0}).activity_at == {Signal.BUSY: at(0)}


def test_quiet_reports_are_counted_in_a_row() -> None:
    row = NEW
    for minute, signals in enumerate(({}, {}, {Signal.GPU: 10.0}, {}, {})):
        row = reported(row, at(60 * (minute + 1)), signals)

    assert row.quiet_reports == 2


def test_what_was_in_use_between_two_reports_makes_the_second_one_not_quiet() -> None:
    row = reported(NEW, at(0), {})

    assert reported(row, at(60), {Signal.CONNECTIONS: 55.0}).quiet_reports == 0
    assert reported(row, at(60), {Signal.CONNECTIONS: 65.0}).quiet_reports == 2


def test_only_the_signals_asked_for_count() -> None:
    row = reported(NEW, at(0), {Signal.GPU: 100.0, Signal.SSH: 5.0})

    assert last_activity(row, (Signal.GPU,)) == at(-100)
    assert last_activity(row, (Signal.BUSY,)) is None


def test_silent_is_who_has_reported_and_missed_two() -> None:
    row = reported(NEW, at(0), {})

    assert not is_silent(NEW, at(9999))
    assert not is_silent(row, at(2 * REPORT_EVERY_SECONDS + 20))
    assert is_silent(row, at(3 * REPORT_EVERY_SECONDS))


@pytest.mark.parametrize(
    ("quiet", "due", "seconds"),
    [
        (True, 170, REPORT_SOON_SECONDS),
        (True, -5, REPORT_SOON_SECONDS),
        (True, 200, REPORT_EVERY_SECONDS),
        (True, None, REPORT_EVERY_SECONDS),
        (False, 10, REPORT_EVERY_SECONDS),
    ],
)
def test_reports_come_sooner_when_a_decision_about_a_quiet_machine_is_near(
    quiet: bool, due: float | None, seconds: int
) -> None:
    row = reported(NEW, at(0), {} if quiet else {Signal.GPU: 0.0})

    assert report_every_seconds(row, at(due) if due is not None else None, at(0)) == seconds
