"""The comparison with other products: what counts as falling short, and that a harness' figures arrive as they are."""

import sys
from pathlib import Path

import pytest

from bench.peers import harness, model
from bench.peers.model import Leaks, Left, Product, Ready, Situation, Spread, Taken
from bench.peers.report import lines, shortcomings

TAKEN = Taken.now()
FIGURES = {
    "dstack": "0.0.1",
    "leaks": {
        "A": {
            "what": "creates executed, answered 500",
            "shown_before_delete": "1 x terminated (no_offers)",
            "shown_after_delete": "1 x terminated (no_offers)",
            "terminated_after_s": 0.1,
            "servers_created": 4,
            "servers_left": 4,
            "vpcs_left": 1,
        }
    },
}


def situation(left: Left, *, ended: float | None = 1.0, later: Left | None = None) -> Situation:
    return Situation("A", "a", 1, left, "1 x running", "1 x released", ended, later=later)


def product(*situations: Situation, ready: tuple[Ready, ...] = ()) -> Product:
    return Product("gpulease", "1", ready, leaks=Leaks(TAKEN, situations))


def test_nothing_left_is_no_shortcoming() -> None:
    assert shortcomings(product(situation(Left(0, 0), later=Left(0, 0))), 5) == []


def test_a_machine_that_is_left_although_shown_as_released_is_a_shortcoming() -> None:
    assert len(shortcomings(product(situation(Left(1, 0))), 5)) == 1


def test_a_shared_network_may_end_after_its_leases_but_not_stay() -> None:
    assert shortcomings(product(situation(Left(0, 1), later=Left(0, 0))), 5) == []
    assert len(shortcomings(product(situation(Left(0, 1), later=Left(0, 1))), 5)) == 1


def test_what_is_left_and_still_shown_as_billed_is_none_until_the_half_hour_is_over() -> None:
    assert shortcomings(product(situation(Left(1, 0), ended=None, later=Left(0, 0))), 5) == []
    assert len(shortcomings(product(situation(Left(1, 0), ended=None, later=Left(1, 0))), 5)) == 1


def test_the_slowest_machine_decides_whether_ready_was_shown_in_time() -> None:
    ready = Ready(TAKEN, "no private network", Spread.of([0.1]), Spread.of([1, 2, 6]))

    assert shortcomings(product(ready=(ready,)), 5) and not shortcomings(product(ready=(ready,)), 6)


def test_figures_are_kept_as_they_were(tmp_path: Path) -> None:
    results = model.empty().with_product(product(situation(Left(2, 1), later=Left(0, 0))))

    model.write(results, tmp_path / "figures.json")

    assert model.read(tmp_path / "figures.json") == results


def test_the_figures_of_a_harness_are_shown_beside_ours(tmp_path: Path) -> None:
    _write_harness(tmp_path, f"file.write(json.dumps({FIGURES!r}))")

    theirs = harness.measure(Product(harness.NAME), "leaks", tmp_path, Path(sys.executable), 1, long=False)

    text = "\n".join(lines(model.empty().with_product(theirs).with_product(product()), "gpulease", harness.NAME))
    assert theirs.version == FIGURES["dstack"]
    assert theirs.leaks is not None and theirs.leaks.situations[0].left == Left(4, 1)
    assert "created 4 machines; left 4 machines, 1 network, 0.1 s after giving back" in text
    assert "1 x terminated (no_offers)" in text


def test_a_harness_that_fails_is_no_result(tmp_path: Path) -> None:
    _write_harness(tmp_path, "sys.exit(1)")

    with pytest.raises(harness.HarnessFailed):
        harness.measure(Product(harness.NAME), "leaks", tmp_path, Path(sys.executable), 1, long=False)


def _write_harness(folder: Path, action: str) -> None:
    """A stand-in that first makes sure that it was given a simulator, as the real one does."""
    (folder / "run.py").write_text(
        "import json, sys, urllib.request\n"
        "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "origin = given['--vultr-url'].removesuffix('/v2')\n"
        "urllib.request.urlopen(origin + '/_control/book').close()\n"
        "with open(given['--json'], 'w') as file:\n"
        f"    {action}\n",
        encoding="utf-8",
    )
