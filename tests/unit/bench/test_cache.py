"""Cold starts with and without a cache: what follows from rates by hand, and one lease's life at Vultr."""

import pytest

from bench.bench_cache import PLACES, Rates, lines, starts, times

RATES = Rates(network=100.0, vultr_volume=400.0, aws_fast_volume=400.0, aws_volume=50.0)
GIGABYTES = 400 * 2**20 / 1e9


def test_a_start_is_the_machine_and_then_the_weights_at_their_rate() -> None:
    new, cached, resumed = starts("vultr", {"new": [90, 96, 400], "cached": [97], "resumed": [49]}, RATES, GIGABYTES)

    assert (new.ready_seconds, new.slowest_seconds, new.weights_seconds) == pytest.approx((96, 400, 4))
    assert (cached.loaded_seconds, resumed.loaded_seconds) == pytest.approx((98, 50))
    assert [each.compared for each in (new, cached, resumed)] == pytest.approx([1.0, 0.98, 0.5])


def test_a_volume_slower_than_the_network_is_shown_as_what_it_is() -> None:
    new, cached, _, _ = starts("aws", {"new": [96], "cached": [96], "resumed": [50]}, RATES, GIGABYTES)

    assert cached.weights_seconds == 2 * new.weights_seconds
    assert cached.compared > 1
    assert lines([new, cached], RATES, GIGABYTES, 1)[3].endswith(f"{cached.compared:9.2f}")


def test_a_volume_that_is_paid_to_be_fast_is_a_row_of_its_own() -> None:
    new, cached, fast, resumed = starts("aws", {"new": [96], "cached": [97], "resumed": [50]}, RATES, GIGABYTES)

    assert (fast.how, fast.ready_seconds) == ("new machine, a cache of 400 MiB/s", cached.ready_seconds)
    assert (new.weights_seconds, cached.weights_seconds, fast.weights_seconds) == pytest.approx((4, 8, 1))
    assert resumed.how.startswith("resume")


def test_a_machine_with_a_cache_is_paused_and_comes_back() -> None:
    found = times(PLACES[0], [1])

    assert {kind: len(seconds) for kind, seconds in found.items()} == {"new": 1, "cached": 1, "resumed": 1}
    assert all(20 < seconds < 1800 for (seconds,) in found.values()), found
