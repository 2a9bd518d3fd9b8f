"""How long it takes until a model is loaded: with and without a cache, on a new machine and on one that is resumed.

Run: ``make bench``, or ``python -m bench.bench_cache [--json] [--leases 5] [--gigabytes 16.06] [--network 250]``.

Measured, in virtual time through the real stack and agents on simulated machines: from the request (`up` or `resume`)
to `running`, which is the machine's boot as the simulator draws it, our own turns and the volume's attaching. Medians.
Calculated: bytes by a rate. A rate is a provider's limit or somebody's measurement, never a promise; what is compiled
after loading is left out, though it lies in the same directories.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpulease.domain.lease import LeaseState
from gpulease.domain.policy import Signal
from gpulease_local.simulate.virtual import VirtualStack
from gpulease_local.simulate.workloads import DAY, Session, Workload
from gpulease_sim.vultr import Settings

MIB = 2**20
WEIGHTS_GIGABYTES = 16.06
"""8.03 billion parameters of two bytes: https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct"""
LIMIT_SECONDS = 3600.0
SETTLED_SECONDS = 300.0
LEASES = 5


@dataclass(frozen=True)
class Rates:
    """MiB per second at which weights are read."""

    network: float = 250.0
    """That model came in 61 s from Hugging Face to a machine with an L40S at AWS:
    https://tensorfuse.io/docs/blogs/reducing_gpu_cold_start (read in a stored copy)."""
    vultr_volume: float = 400.0
    """The limit of an NVMe block, the sort that caches are made of where there is one:
    https://docs.vultr.com/support/products/storage/what-are-the-performance-expectations-for-block-storage"""
    aws_fast_volume: float = 400.0
    """Of a gp3 volume that is paid to give it (`cache create --throughput 400`)."""
    aws_volume: float = 125.0
    """Of a gp3 volume as it is made unless more is paid for; caches and root disks are such volumes:
    https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""


@dataclass(frozen=True)
class Start:
    """One way to a loaded model."""

    provider: str
    how: str
    ready_seconds: float
    """Median from the request to `running`."""
    slowest_seconds: float
    weights_seconds: float
    compared: float = 1.0
    """Until the model is loaded, to the same on a new machine without a cache."""

    @property
    def loaded_seconds(self) -> float:
        """From the request until the model is loaded."""
        return self.ready_seconds + self.weights_seconds


@dataclass(frozen=True)
class Place:
    """Where machines and caches are asked for."""

    provider: str
    cache: Mapping[str, Any]
    machine: Mapping[str, Any]


PLACES = (
    Place("vultr", {"region": "ewr"}, {"gpu": ["L40S"], "regions": ["ewr"], "plan_kinds": ["vm"]}),
    Place(
        "aws", {"region": "us-east-1", "zone": "us-east-1a"}, {"gpu": ["L4"], "gpu_count": 1, "regions": ["us-east-1"]}
    ),
)
IN_USE = Workload("in use", (Session(0.0, 30 * DAY, Signal.GPU),))


# --- what is measured -------------------------------------------------------------------------------------------------


class World:
    """One stack in virtual time with agents on its machines, and one user."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.stack = VirtualStack(
            seed=seed,
            settings=Settings(capacity={"*/*": 100}),
            providers=(place.provider,),
            workload_of=lambda name: IN_USE,
        ).load()

    def up(self, *, cache: bool) -> tuple[str, float]:
        """A lease and the seconds until it ran."""
        request: dict[str, Any] = {"name": "box", "providers": [self.place.provider], **self.place.machine}
        if cache:
            request["cache"] = {"name": "models", "mounts": ["/root/.cache"]}
        asked = self.stack.clock.time()
        lease = self.stack.up(**request)
        return lease, self._until_running(lease, asked)

    def make_cache(self) -> None:
        """The cache, empty and available."""
        wanted = {"name": "models", "size_gb": 100, "provider": self.place.provider, **self.place.cache}
        self.stack.api("POST", "/v1/caches", wanted)
        self._wait(lambda: self.stack.api("GET", "/v1/caches/models")["state"] == "available", "the cache")

    def pause_and_resume(self, lease: str) -> float:
        """Pause it, and the seconds that its resume took."""
        self.stack.run_for(SETTLED_SECONDS)
        self.stack.api("POST", f"/v1/leases/{lease}/pause")
        self._wait(lambda: self.stack.lease(lease).state is LeaseState.PAUSED, "the pause")
        self.stack.run_for(SETTLED_SECONDS)
        asked = self.stack.clock.time()
        self.stack.api("POST", f"/v1/leases/{lease}/resume")
        return self._until_running(lease, asked)

    def _until_running(self, lease: str, asked: float) -> float:
        self._wait(lambda: self.stack.lease(lease).state is LeaseState.RUNNING, lease)
        ready_at = self.stack.lease(lease).ready_at
        if ready_at is None:
            raise AssertionError(f"{lease} runs and was never ready")
        return ready_at.timestamp() - asked

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        if not self.stack.run_until(done, limit_seconds=LIMIT_SECONDS, step_seconds=5.0):
            raise AssertionError(f"{what} took longer than {LIMIT_SECONDS:.0f} s: {self.stack.log.errors[-3:]}")


def times(place: Place, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Seconds from request to running, by what was asked for: "new", "cached", "resumed"."""
    found: dict[str, list[float]] = {"new": [], "cached": [], "resumed": []}
    for seed in seeds:
        world = World(place, seed)
        try:
            found["new"].append(world.up(cache=False)[1])
        finally:
            world.stack.close()
        world = World(place, seed)
        try:
            world.make_cache()
            lease, seconds = world.up(cache=True)
            found["cached"].append(seconds)
            found["resumed"].append(world.pause_and_resume(lease))
        finally:
            world.stack.close()
    return found


# --- what follows from it ---------------------------------------------------------------------------------------------

HOW = {"new": "new machine, no cache", "cached": "new machine, its cache"}
FAST = "new machine, a cache of {:g} MiB/s"
RESUMED = {"vultr": "resume: new machine, its cache", "aws": "resume: the stopped machine"}


def starts(provider: str, found: Mapping[str, Sequence[float]], rates: Rates, gigabytes: float) -> list[Start]:
    """All ways at one provider; the first is what the others are compared with."""
    volume = rates.vultr_volume if provider == "vultr" else rates.aws_volume
    made: list[Start] = []
    ways = [(HOW.get(kind, RESUMED[provider]), kind, rates.network if kind == "new" else volume) for kind in found]
    if provider == "aws" and "cached" in found:
        # The same machine and the same attaching: speed changes what is read, and nothing before.
        ways.insert(2, (FAST.format(rates.aws_fast_volume), "cached", rates.aws_fast_volume))
    for how, kind, rate in ways:
        seconds, read = found[kind], gigabytes * 1e9 / MIB / rate
        start = Start(provider, how, statistics.median(seconds), max(seconds), read)
        first = made[0] if made else start
        made.append(Start(**{**asdict(start), "compared": start.loaded_seconds / first.loaded_seconds}))
    return made


def lines(made: Sequence[Start], rates: Rates, gigabytes: float, leases: int) -> list[str]:
    """The table."""
    said = [
        f"{gigabytes:g} GB of weights; MiB per second: {', '.join(f'{k} {v:g}' for k, v in asdict(rates).items())}; "
        f"medians of {leases} leases, seconds from the request",
        f"  {'':40} {'running':>8} {'(slowest)':>10} {'weights':>8} {'loaded':>8} {'compared':>9}",
    ]
    for start in made:
        name, slowest = f"{start.provider}, {start.how}", f"({start.slowest_seconds:.0f})"
        figures = f"{start.weights_seconds:8.0f} {start.loaded_seconds:8.0f} {start.compared:9.2f}"
        said.append(f"  {name:40} {start.ready_seconds:8.0f} {slowest:>10} {figures}")
    said.append(
        "  weights come quicker from a volume than from the network where that gives less than the volume's rate"
    )
    return said


def main(arguments: list[str]) -> int:
    """Measure and print."""
    usual = Rates()
    parser = argparse.ArgumentParser(prog="bench_cache", description="Cold starts with and without a cache.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--leases", type=int, default=LEASES)
    parser.add_argument("--gigabytes", type=float, default=WEIGHTS_GIGABYTES)
    for name, value in asdict(usual).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=value, help="MiB per second")
    given = parser.parse_args(arguments)
    rates = Rates(**{name: getattr(given, name) for name in asdict(usual)})
    made: list[Start] = []
    for place in PLACES:
        made += starts(place.provider, times(place, range(1, given.leases + 1)), rates, given.gigabytes)
    if given.json:
        rows = [{**asdict(start), "loaded_seconds": start.loaded_seconds} for start in made]
        print(json.dumps({"rates": asdict(rates), "gigabytes": given.gigabytes, "starts": rows}, indent=1))
    else:
        print("\n".join(lines(made, rates, given.gigabytes, given.leases)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
