"""Windows are states of the clock in their own zone: cases C65 to C67 and what else cron can be asked."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from gpulease.domain import windows
from gpulease.domain.policy import Keep, Window
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

CENTRAL = ZoneInfo("US/Central")
NEW_YORK = ZoneInfo("America/New_York")
WORKDAYS = Window(keep=Keep.WARM, start="0 6 * * 1-5", end="0 22 * * 1-5", timezone="US/Central")


def in_zone(zone: ZoneInfo, year: int, month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=zone).astimezone(UTC)


@pytest.mark.parametrize(
    ("local", "inside"),
    [
        ((2026, 11, 27, 6, 5), True),
        ((2026, 11, 27, 5, 59), False),
        ((2026, 11, 27, 21, 59), True),
        ((2026, 11, 27, 22, 0), False),
        ((2026, 11, 29, 23, 0), False),
        ((2026, 11, 28, 12, 0), False),
    ],
)
def test_c65_day_and_hour_are_those_of_the_windows_own_zone(
    local: tuple[int, int, int, int, int], inside: bool
) -> None:
    """Friday 06:05 in US/Central is Saturday in Melbourne: no other zone is asked."""
    assert windows.is_inside(WORKDAYS, in_zone(CENTRAL, *local)) is inside


@pytest.mark.parametrize("second", [0, 30])
def test_c66_a_stop_just_before_midnight_is_due_from_then_on(second: int) -> None:
    stop = Window(keep=Keep.OFF, start="59 23 * * *", timezone="Europe/Berlin")
    ready = datetime(2026, 11, 30, 8, tzinfo=ZoneInfo("Europe/Berlin"))
    before = datetime(2026, 11, 30, 23, 55, tzinfo=ZoneInfo("Europe/Berlin"))

    assert windows.off_since((stop,), before, ready) is None
    at = datetime(2026, 11, 30, 23, 59, second, tzinfo=ZoneInfo("Europe/Berlin"))
    for late in (timedelta(0), timedelta(minutes=1), timedelta(minutes=6), timedelta(hours=9)):
        assert windows.off_since((stop,), at + late, ready) == datetime(2026, 11, 30, 22, 59, tzinfo=UTC)


def test_c66_a_window_may_end_at_midnight() -> None:
    night = Window(keep=Keep.OFF, start="0 20 * * *", end="0 0 * * *")

    assert windows.is_inside(night, datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    assert not windows.is_inside(night, datetime(2026, 12, 1, 0, 0, tzinfo=UTC))


def test_c67_a_stop_time_that_does_not_exist_comes_at_the_first_moment_after_it_and_once() -> None:
    stop = Window(keep=Keep.OFF, start="30 2 * * *", timezone="America/New_York")
    ready = in_zone(NEW_YORK, 2026, 3, 7, 12)

    assert windows.off_since((stop,), in_zone(NEW_YORK, 2026, 3, 8, 1, 59), ready) is None
    due = windows.off_since((stop,), in_zone(NEW_YORK, 2026, 3, 8, 3, 0), ready)
    assert due == datetime(2026, 3, 8, 7, 0, tzinfo=UTC)
    assert windows.off_since((stop,), in_zone(NEW_YORK, 2026, 3, 8, 23, 0), ready) == due
    assert windows.following("30 2 * * *", "America/New_York", due) == in_zone(NEW_YORK, 2026, 3, 9, 2, 30)


def test_c67_times_that_exist_twice_count_once_the_first_time() -> None:
    off = Window(keep=Keep.OFF, start="30 1 * * *", end="45 1 * * *", timezone="America/New_York")
    first, fold = in_zone(NEW_YORK, 2026, 11, 1, 1, 30), timedelta(hours=1)

    assert first == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert windows.is_inside(off, first)
    assert not windows.is_inside(off, first + timedelta(minutes=15))
    assert not windows.is_inside(off, first + fold)
    assert windows.last("30 1 * * *", "America/New_York", first + fold + timedelta(minutes=5)) == first


def test_c67_the_next_planned_time_is_told_with_its_offset_and_the_wall_clock_stays() -> None:
    stop = Window(keep=Keep.OFF, start="0 22 * * *", timezone="America/New_York")

    before = windows.next_change((stop,), in_zone(NEW_YORK, 2026, 10, 31, 12))
    after = windows.next_change((stop,), in_zone(NEW_YORK, 2026, 11, 1, 12))

    assert before is not None and after is not None
    assert before.text() == "keep off from 2026-10-31 22:00 -04:00 (America/New_York)"
    assert after.text() == "keep off from 2026-11-01 22:00 -05:00 (America/New_York)"


def test_a_machine_started_inside_an_off_window_stays_until_the_next_one() -> None:
    night = Window(keep=Keep.OFF, start="0 20 * * *", end="0 6 * * *")
    started = datetime(2026, 11, 30, 21, tzinfo=UTC)

    assert windows.off_since((night,), started + timedelta(hours=3), started) is None
    assert windows.off_since((night,), datetime(2026, 12, 1, 20, 0, tzinfo=UTC), started) is not None


def test_what_a_window_paused_comes_back_at_its_end_and_what_its_user_paused_does_not() -> None:
    night = Window(keep=Keep.OFF, start="0 20 * * *", end="0 6 * * *")
    paused = datetime(2026, 11, 30, 20, 0, 30, tzinfo=UTC)
    morning = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)

    assert windows.on_since((night,), morning - timedelta(minutes=1), paused, by_window=True) is None
    assert windows.on_since((night,), morning, paused, by_window=True) == morning
    assert windows.on_since((night,), morning, paused, by_window=False) is None


def test_a_window_that_keeps_warm_brings_back_what_was_idle_unless_another_keeps_it_off() -> None:
    monday = in_zone(CENTRAL, 2026, 11, 30, 6, 0)
    idle_since_friday = in_zone(CENTRAL, 2026, 11, 27, 23, 0)
    holiday = Window(keep=Keep.OFF, start="0 0 30 11 *", end="0 0 1 12 *", timezone="US/Central")

    assert windows.on_since((WORKDAYS,), monday, idle_since_friday, by_window=False) == monday
    assert windows.on_since((WORKDAYS, holiday), monday, idle_since_friday, by_window=False) is None


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus'"),
        ({"timezone": "../etc/passwd"}, "timezone: '../etc/passwd'"),
        ({"start": "61 * * * *"}, "start: '61 \\* \\* \\* \\*'"),
        ({"start": "0 0 0 6 * * 1"}, "five cron fields"),
        ({"end": "0 0 30 2 *"}, "end: '0 0 30 2 \\*'"),
        ({"end": "0 20 * * *"}, "end: '0 20 \\* \\* \\*' is the same moment as the start"),
        ({"start": "0 20 * * 1-5", "end": "00 20 * * *"}, "never is inside"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused_with_field_and_value(fields: dict[str, str], word: str) -> None:
    good = {"keep": "off", "start": "0 20 * * *", "end": "0 6 * * *", "timezone": "UTC"}

    with pytest.raises(ValidationError, match=word):
        Window.model_validate({**good, **fields})


def test_an_end_that_meets_only_some_beginnings_is_an_end() -> None:
    """On Mondays it is over as it begins; on other days it lasts until then."""
    week = Window(keep=Keep.OFF, start="0 20 * * *", end="0 20 * * 1")

    assert windows.is_inside(week, datetime(2026, 12, 2, 12, tzinfo=UTC))


def test_the_next_time_that_lets_a_machine_run_is_not_inside_of_another_window() -> None:
    night = Window(keep=Keep.OFF, start="0 20 * * *", end="0 6 * * *")
    longer = Window(keep=Keep.OFF, start="0 22 * * *", end="0 9 * * *")
    now = datetime(2026, 11, 30, 23, tzinfo=UTC)

    found = windows.next_on((night, longer), now, by_window=True)

    assert found is not None and found.at == datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert windows.next_on((night, longer), now, by_window=False) is None


def test_a_warm_window_needs_an_end() -> None:
    with pytest.raises(ValidationError, match="needs an end"):
        Window(keep=Keep.WARM, start="0 6 * * *")


@given(
    st.integers(0, 2 * 365 * 1440),
    st.sampled_from(["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_the_last_time_is_never_ahead_and_less_than_two_days_back(
    minutes: int, zone: str, hour: int, minute: int
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    expression = f"{minute} {hour} * * *"

    last = windows.last(expression, zone, now)

    assert now - timedelta(hours=49) < last <= now
    assert windows.following(expression, zone, last) > now or windows.last(expression, zone, now) == last
    assert windows.following(expression, zone, now) > now
