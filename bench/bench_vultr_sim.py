"""What a call to the simulated Vultr costs in process: simulations make thousands of them per second.

Run: ``python bench/bench_vultr_sim.py``. Prints microseconds per call; ends with an error when reading one
instance takes 100 µs or more.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "simulator")]

from gpulease_sim.vultr import Fault, Settings, VultrCloud  # noqa: E402

GET_LIMIT_MICROSECONDS = 100
MACHINES = 1_000
HEADERS = {"Authorization": "Bearer k", "Content-Type": "application/json"}
BODY = {"region": "ord", "plan": "vcg-l40s-16c-180g-48vram", "os_id": 1743, "label": "x", "tags": ["gpulease:d:1"]}


def microseconds(call: Callable[[], object], rounds: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return median(times) / 1000


def main() -> int:
    """Measure and print."""
    now = [1_790_000_000.0]
    cloud = VultrCloud(lambda: now[0], settings=Settings(requests_per_second=None))
    body = json.dumps(BODY).encode()
    create = microseconds(lambda: cloud.handle("POST", "/v2/instances", {}, HEADERS, body), MACHINES)
    now[0] += 300
    path = f"/v2/instances/{next(iter(cloud.account.machines))}"

    get = microseconds(lambda: cloud.handle("GET", path, {}, HEADERS), 5_000)
    page = microseconds(lambda: cloud.handle("GET", "/v2/instances", {"per_page": "100"}, HEADERS), 200)
    tagged = microseconds(lambda: cloud.handle("GET", "/v2/instances", {"tag": "none"}, HEADERS), 200)
    cloud.faults.add(*(Fault(method="DELETE", path=f"/none/{number}") for number in range(10)))
    faulty = microseconds(lambda: cloud.handle("GET", path, {}, HEADERS), 5_000)

    print(f"create one instance                  {create:8.1f} µs")
    print(f"get one instance                     {get:8.1f} µs")
    print(f"get one instance, 10 faults in force {faulty:8.1f} µs")
    print(f"list 100 of {MACHINES:,} instances          {page:8.1f} µs")
    print(f"list by a tag nobody has, of {MACHINES:,}   {tagged:8.1f} µs")
    return 0 if get < GET_LIMIT_MICROSECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
