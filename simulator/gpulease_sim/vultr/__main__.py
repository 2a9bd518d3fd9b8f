"""`python -m gpulease_sim.vultr`: the simulated Vultr on a port of this computer."""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

from gpulease_sim.vultr.cloud import VultrCloud
from gpulease_sim.vultr.codec import changed_settings, dumped, loaded
from gpulease_sim.vultr.server import serve
from gpulease_sim.vultr.settings import Settings
from gpulease_sim.vultr.state_file import StateFile
from gpulease_sim.wall_clock import ScaledClock


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted; prints the base URL once it can be called."""
    parser = argparse.ArgumentParser(prog="gpulease_sim.vultr", description=__doc__)
    parser.add_argument("--port", type=int, default=18080, help="0 picks a free one")
    parser.add_argument("--time-scale", type=float, default=1.0, help="how many simulated seconds pass in a real one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", metavar="FILE", help="keep the account in this file; it survives a kill")
    parser.add_argument("--settings", metavar="JSON", default="{}", help="other values for fields of Settings")
    given = parser.parse_args(argv)
    state = StateFile(given.state) if given.state else None
    clock = _clock(state, given.time_scale)
    change = json.loads(given.settings)
    kept = state.read_settings() if state else None
    settings = changed_settings(kept or Settings(), change) if change else None
    cloud = VultrCloud(clock, given.seed, settings, state)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serve(cloud, port=given.port, clock=clock) as server:
        print(f"{server.url}/v2", flush=True)
        stop.wait()
    if state:
        state.close()
    return 0


def _clock(state: StateFile | None, scale: float) -> ScaledClock:
    kept = state.read_note("clock") if state else None
    clock = ScaledClock.from_now(scale) if kept is None else loaded(ScaledClock, kept)
    if clock.scale != scale:
        clock = clock.rescaled(scale)
    if state:
        state.write_note("clock", dumped(clock))
    return clock


if __name__ == "__main__":
    sys.exit(main())
