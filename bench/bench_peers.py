"""gpulease and dstack side by side: `make bench-peers`.

dstack's server is driven by a harness that is no part of this project (`PEERS`, see docs/peers.md), gpulease by
`bench/peers`, both against `gpulease_sim.vultr` over HTTP, one after the other. Prints one table; `--json` keeps the
figures, and what is in that file already is not measured again. Takes about an hour with `--long`, else 35 minutes.
Ends with an error when gpulease leaves anything behind or is shown as running more than five seconds after active.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from bench.peers import figures, harness, model, situations  # noqa: E402
from bench.peers.model import Leaks, Product, Results, Situation, Taken  # noqa: E402
from bench.peers.report import lines, shortcomings  # noqa: E402

OURS = "gpulease"
MEASURES = ("ready", "idle", "leaks")
READY_LIMIT_SECONDS = 5.5
"""Five seconds, and the half second that asking the API every 0.2 s and a shared computer add."""


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return the exit status: 0, 1 when gpulease falls short, 2 when something could not run."""
    given = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    results = model.read(given.json) if given.json and given.json.exists() else model.empty()

    def keep(product: Product) -> None:
        nonlocal results
        results = results.with_product(product)
        if given.json:
            model.write(results, given.json)

    status = 0
    try:
        for name in given.measure or MEASURES:
            if given.only != harness.NAME:
                _measure_ours(results.product(OURS), name, given, keep)
            if given.only != OURS:
                _measure_theirs(results, name, given, keep)
    except (harness.HarnessFailed, RuntimeError, OSError) as error:
        print(f"bench_peers: {error}", file=sys.stderr)
        status = 2
    print("\n".join(lines(results, OURS, harness.NAME)))
    found = shortcomings(results.product(OURS), READY_LIMIT_SECONDS)
    for line in found:
        print(f"gpulease falls short: {line}", file=sys.stderr)
    return status or (1 if found else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench_peers", description=__doc__)
    parser.add_argument("--harness", type=Path, help="folder with run.py of the other product's harness")
    parser.add_argument("--harness-python", type=Path, help="interpreter with that harness' requirements")
    parser.add_argument("--only", choices=(OURS, harness.NAME))
    parser.add_argument("--measure", action="append", choices=MEASURES, help="may be repeated; default: all")
    parser.add_argument("--n", type=int, default=10, help="repetitions of ready")
    parser.add_argument("--minutes", type=int, default=1, help="how long idle is watched, at most 3")
    parser.add_argument("--long", action="store_true", help="also the destroy that is refused for long (15 min more)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep figures here, and go on from those in it")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure_theirs(results: Results, name: str, given: argparse.Namespace, keep: Callable[[Product], None]) -> None:
    product = results.product(harness.NAME)
    if getattr(product, name):
        return
    if given.harness is None or given.harness_python is None:
        raise RuntimeError(f"{harness.NAME} needs --harness and --harness-python (`make bench-peers` gives both)")
    _say(f"{harness.NAME}: {name}")
    n = given.minutes if name == "idle" else given.n
    keep(harness.measure(product, name, given.harness, given.harness_python, n, long=given.long))


def _measure_ours(product: Product, name: str, given: argparse.Namespace, keep: Callable[[Product], None]) -> None:
    product = replace(product, version=version("gpulease"))
    if name == "leaks":
        _play(product, given.long, keep)
    elif name == "idle" and product.idle is None:
        _say(f"{OURS}: idle")
        keep(replace(product, idle=figures.idle(given.minutes)))
    elif name == "ready":
        for network in (False, True)[len(product.ready) :]:
            _say(f"{OURS}: ready, {'in a network' if network else 'no network'}")
            product = replace(product, ready=(*product.ready, figures.ready(given.n, network=network)))
            keep(product)


def _play(product: Product, long: bool, keep: Callable[[Product], None]) -> None:
    """Each situation is kept as soon as it was played."""
    leaks = product.leaks or Leaks(Taken.now(), ())
    for key in situations.names(long=long):
        if leaks.get(key) is None:
            _say(f"{OURS}: situation {key}")
            played: Situation = situations.play(key)
            _say(f"  {played}")
            order = situations.names(long=True)
            all_played = sorted((*leaks.situations, played), key=lambda each: order.index(each.key))
            leaks = replace(leaks, situations=tuple(all_played))
            keep(replace(product, leaks=leaks))


if __name__ == "__main__":
    sys.exit(main())
