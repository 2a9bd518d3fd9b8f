"""Virtual time moves only when told to; code inside a call sees its own time pass."""

import pytest
from gpulease_local.asl import ScaledClock, VirtualClock


def test_a_call_sees_time_pass_while_the_loop_stands_still() -> None:
    clock = VirtualClock(100.0)

    clock.begin_call()
    clock.spend(2.5)
    inside = clock.time()
    spent = clock.end_call()

    assert (inside, spent, clock.time()) == (102.5, 2.5, 100.0)


def test_virtual_time_never_runs_backwards() -> None:
    clock = VirtualClock(100.0)

    with pytest.raises(RuntimeError, match="backwards"):
        clock.advance_to(99.0)


def test_the_loop_cannot_move_inside_a_call() -> None:
    clock = VirtualClock(100.0)
    clock.begin_call()

    with pytest.raises(RuntimeError, match="inside a call"):
        clock.advance_to(101.0)
    with pytest.raises(RuntimeError, match="already"):
        clock.begin_call()


def test_time_is_spent_only_inside_a_call() -> None:
    clock = VirtualClock()

    with pytest.raises(RuntimeError, match="no call"):
        clock.spend(1.0)
    with pytest.raises(RuntimeError, match="no call"):
        clock.end_call()


def test_a_scaled_clock_runs_faster_from_its_origin() -> None:
    wall = iter([50.0, 51.0, 53.0])
    clock = ScaledClock(scale=60.0, origin=1000.0, wall=lambda: next(wall))

    assert (clock.time(), clock.time()) == (1060.0, 1180.0)


def test_an_unscaled_clock_is_the_wall_clock() -> None:
    wall = iter([50.0, 51.5])
    clock = ScaledClock(wall=lambda: next(wall))

    assert clock.time() == 51.5
