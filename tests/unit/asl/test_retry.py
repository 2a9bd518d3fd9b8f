"""How long a retry waits, and which errors an entry takes."""

import random

import pytest
from gpulease_local.asl.retry import Retrier, matches


def dice() -> random.Random:
    """Return seeded dice."""
    return random.Random(1)  # noqa: S311 - jitter, not secrets


def test_delays_grow_by_the_backoff_rate() -> None:
    retrier = Retrier(("A",), interval_seconds=3, backoff_rate=2.0)

    delays = [retrier.delay_seconds(attempt, dice()) for attempt in range(4)]

    assert delays == [3.0, 6.0, 12.0, 24.0]


def test_delays_stop_at_max_delay() -> None:
    retrier = Retrier(("A",), interval_seconds=3, backoff_rate=10.0, max_delay_seconds=60)

    assert [retrier.delay_seconds(attempt, dice()) for attempt in (1, 2, 9000)] == [30.0, 60.0, 60.0]


def test_full_jitter_spreads_over_the_whole_delay() -> None:
    retrier = Retrier(("A",), interval_seconds=100, full_jitter=True)
    rng = dice()

    delays = [retrier.delay_seconds(0, rng) for _ in range(500)]

    assert all(0.0 <= delay <= 100.0 for delay in delays)
    assert min(delays) < 5.0
    assert max(delays) > 95.0


@pytest.mark.parametrize(
    ("error_equals", "error", "taken"),
    [
        ("A", "A", True),
        ("A", "B", False),
        ("States.ALL", "A", True),
        ("States.ALL", "States.Timeout", True),
        ("States.ALL", "States.Runtime", False),
        ("States.ALL", "States.DataLimitExceeded", False),
        ("States.TaskFailed", "A", True),
        ("States.TaskFailed", "States.Timeout", False),
        ("States.TaskFailed", "States.Runtime", False),
    ],
)
def test_which_errors_an_entry_takes(error_equals: str, error: str, taken: bool) -> None:
    assert matches((error_equals,), error) is taken
