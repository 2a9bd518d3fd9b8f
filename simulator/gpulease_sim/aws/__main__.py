"""`python -m gpulease_sim.aws`: the simulated AWS account on a port of this computer."""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

from gpulease_sim.aws.cloud import AwsCloud
from gpulease_sim.aws.codec import changed_settings
from gpulease_sim.aws.server import serve
from gpulease_sim.aws.settings import Settings
from gpulease_sim.wall_clock import ScaledClock


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted; prints the endpoint's URL once it can be called."""
    parser = argparse.ArgumentParser(prog="gpulease_sim.aws", description=__doc__)
    parser.add_argument("--port", type=int, default=18081, help="0 picks a free one")
    parser.add_argument("--time-scale", type=float, default=1.0, help="how many simulated seconds pass in a real one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", metavar="JSON", default="{}", help="other values for fields of Settings")
    given = parser.parse_args(argv)
    clock = ScaledClock.from_now(given.time_scale)
    cloud = AwsCloud(clock, given.seed, changed_settings(Settings(), json.loads(given.settings)))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serve(cloud, port=given.port, clock=clock) as server:
        print(server.url, flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
