"""Money, times and texts look right and carry no control characters."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from gpulease_cli import text

T = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("usd", "shown"),
    [("0", "$0.00"), ("0.004", "<$0.01"), ("0.005", "<$0.01"), ("0.01", "$0.01"), ("1234.5", "$1,234.50")],
)
def test_costs_are_shown_in_cents_and_never_as_nothing_when_they_are_something(usd: str, shown: str) -> None:
    assert text.cost(Decimal(usd)) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [("2.4", "$2.40"), ("2.397", "$2.397"), ("0.0532", "$0.0532"), ("12", "$12.00"), ("0.053250", "$0.0533")],
)
def test_prices_keep_the_digits_that_tell_them_apart(usd: str, shown: str) -> None:
    assert text.rate(Decimal(usd)) == shown


def test_unknown_money_is_a_dash() -> None:
    assert text.cost(None) == text.rate(None) == "-"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (-5, "0s"), (59.9, "59s"), (252, "4m12s"), (3 * 3600 + 300, "3h05m"), (2 * 86400 + 4 * 3600, "2d04h")],
)
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("words", "seconds"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("1d12h", 129600), (" 1H30M ", 5400)]
)
def test_durations_are_read_with_their_units(words: str, seconds: int) -> None:
    assert text.parse_duration(words) == seconds


@pytest.mark.parametrize("words", ["", "5", "2x", "m", "1.5h", "-1h", "1h 30", "9" * 30 + "d"])
def test_what_is_no_duration_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        text.parse_duration(words)


def test_texts_lose_their_control_characters() -> None:
    assert text.clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"


def test_between_needs_both_ends() -> None:
    assert text.between(T, T + timedelta(seconds=72)) == "1m12s"
    assert text.between(None, T) == "-"


def test_the_closest_word_is_found_whatever_its_case() -> None:
    assert text.closest("TRIAN", ["train", "serve"]) == "train"
    assert text.closest("zzz", ["train", "serve"]) is None
