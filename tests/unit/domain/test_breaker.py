"""The circuit of one account and region."""

from datetime import UTC, datetime, timedelta

import pytest
from gpulease.domain.breaker import (
    FAILURES_TO_OPEN,
    FIRST_OPEN,
    LONGEST_OPEN,
    PROBE_PATIENCE,
    Circuit,
    answered,
    closed_for,
    failed,
    sending,
)

START = datetime(2026, 1, 5, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def opened(until: float = 0) -> Circuit:
    circuit = Circuit()
    for turn in range(FAILURES_TO_OPEN):
        circuit = failed(circuit, at(until - FAILURES_TO_OPEN + 1 + turn))
    return circuit


def test_a_circuit_stays_closed_while_calls_are_answered_now_and_then() -> None:
    circuit = Circuit()

    for turn in range(100):
        circuit = answered(circuit) if turn % FAILURES_TO_OPEN == 4 else failed(circuit, at(turn))

        assert not closed_for(circuit, at(turn))


def test_failures_that_are_far_apart_do_not_open_it() -> None:
    circuit = Circuit()

    for turn in range(50):
        circuit = failed(circuit, at(turn * 20))

    assert not closed_for(circuit, at(1000))


def test_five_failures_in_a_minute_open_it_for_fifteen_seconds() -> None:
    circuit = opened()

    assert closed_for(circuit, at(0)) == FIRST_OPEN
    assert closed_for(circuit, at(14.9)) > timedelta(0)
    assert not closed_for(circuit, at(15))


def test_half_open_lets_one_call_through_and_an_answer_closes_it() -> None:
    circuit = sending(opened(), at(15))

    assert closed_for(circuit, at(15)), "the second one waits"
    assert closed_for(answered(circuit), at(15)) == timedelta(0)
    assert failed(answered(circuit), at(16)).open_until is None, "it counts from one again"


def test_each_failed_probe_doubles_the_time_up_to_two_minutes() -> None:
    circuit, now, opens = opened(), 0.0, []

    for _ in range(6):
        opens.append(closed_for(circuit, at(now)).total_seconds())
        now += opens[-1]
        circuit = failed(sending(circuit, at(now)), at(now))

    assert opens == [15, 30, 60, 120, 120, 120]
    assert circuit.open_for == LONGEST_OPEN


def test_a_probe_that_never_came_back_is_forgotten() -> None:
    circuit = sending(opened(), at(15))

    assert not closed_for(circuit, at(15) + PROBE_PATIENCE)


@pytest.mark.parametrize("back", [60, 3600, 86_400])
def test_a_clock_that_is_set_back_shuts_nobody_out_for_longer_than_two_minutes(back: float) -> None:
    assert closed_for(opened(), at(-back)) <= LONGEST_OPEN
