"""Pauses after 429, and how slots move behind them."""

from datetime import UTC, datetime, timedelta

from gpulease.domain.gate import LONGEST_PAUSE, Lane, Pause, pause_after, pause_of, pause_text

START = datetime(2026, 1, 5, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_the_lanes_together_leave_room_for_lists() -> None:
    assert sum(lane.share for lane in Lane) < 0.8
    assert Lane.CHANGE.spacing_seconds(30) > 1 / 8


def test_a_pause_is_as_long_as_the_provider_says() -> None:
    pause = pause_after(None, at(0), 10)

    assert pause == Pause(at(0), at(10))
    assert pause.left(at(4)) == timedelta(seconds=6)
    assert not pause.left(at(10))


def test_without_retry_after_pauses_grow_while_it_goes_on_refusing() -> None:
    pause, lengths = None, []
    now = at(0)

    for _ in range(8):
        pause = pause_after(pause, now, 0)
        lengths.append((pause.until - now).total_seconds())
        now = pause.until + timedelta(seconds=1)

    assert lengths == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_refusal_long_after_the_last_one_begins_anew() -> None:
    assert pause_after(Pause(at(0), at(60)), at(200), 0) == Pause(at(200), at(202))


def test_refusals_of_calls_that_were_on_their_way_do_not_make_it_longer() -> None:
    pause = Pause(at(0), at(8))

    assert pause_after(pause, at(0.3), 0) == pause
    assert pause_after(pause, at(1), 5) == pause
    assert pause_after(pause, at(1), 10) == Pause(at(0), at(11))


def test_slots_move_behind_a_pause_in_their_order_and_at_their_distance() -> None:
    pause = Pause(at(10), at(40))

    assert [pause.moved(at(s)) for s in (9, 11, 11.5, 20)] == [at(40), at(41), at(41.5), at(50)]


def test_a_pause_of_a_wrong_clock_binds_nobody() -> None:
    assert not Pause(at(3600), at(3610)).left(at(0))
    assert Pause(at(0), at(0) + LONGEST_PAUSE).left(at(0)) == LONGEST_PAUSE


def test_a_pause_reads_back_as_written() -> None:
    pause = Pause(at(0.25), at(7.5))

    assert pause_of(pause_text(pause)) == pause
