"""The demo's second act: a lease with a cache goes idle, is paused, comes back with its data on another machine, and is
given back; its cache stays.

Real agents run on its machines (`demo_machines.py`). Invariant: that the data survived is told by the second machine's
own start script, which reads what the first one's wrote, and by the provider's book, which knows two machines and one
volume.
"""

import json
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import Client
from gpulease_cli.views import LeaseView
from gpulease_sim.vultr import Settings
from gpulease_sim.vultr.settings import with_boot_seconds

from gpulease_local.books import MACHINES
from gpulease_local.demo_machines import DemoMachines
from gpulease_local.server import LocalServer, Options

TIME_SCALE = 20.0
"""A machine has ten simulated minutes to become ready: on a busy computer its agent must be up within half a minute."""
BOOT_SECONDS = 20.0
IDLE_SECONDS = 60
LIMIT_SECONDS = 120.0
READ_LIMIT_SECONDS = 20.0
CACHE = "models"
MOUNT = "/root/.cache"
PLACE = {"provider": "vultr", "region": "ewr"}
SCRIPT = """#!/bin/sh
# The machine is a folder here: its root is what stands before the script's own path.
cache="${0%/var/lib/gpulease/start-script}/root/.cache"
if [ -f "$cache/weights" ]; then
  { echo "read back: $(cat "$cache/weights")"; } > "$cache/second-start"
else
  echo "weights of $$ at $(date +%s)" > "$cache/weights"
fi
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Act:
    """What became of it."""

    paused: int = 0
    resumed: int = 0
    data_kept: bool = False
    released: int = 0
    machines: int = 0
    """In the provider's book."""
    billed: int = 0
    """Still billed at the end besides the cache."""
    cache_price: str = ""
    """Per month; empty = the cache is not there."""

    @property
    def line(self) -> str:
        """One line, the same in every good run but for the price."""
        data = "kept" if self.data_kept else "LOST"
        cache = f"kept at ${self.cache_price} per month" if self.cache_price else "LOST"
        return (
            f"idle: paused={self.paused} resumed={self.resumed} data={data} machines={self.machines} "
            f"released={self.released} billed_at_provider={self.billed} cache={cache}"
        )

    @property
    def good(self) -> bool:
        counts = (self.paused, self.resumed, self.released, self.machines, self.billed)
        return counts == (1, 1, 1, 2, 0) and self.data_kept and bool(self.cache_price)


class OutOfTime(Exception):
    """It did not come that far."""


class IdleAct:
    """One run over a started server with agents."""

    def __init__(self, server: LocalServer, machines: DemoMachines, say: Say) -> None:
        self._server, self._machines, self._say = server, machines, say
        content = json.loads((server.public_folder / "api.json").read_text(encoding="utf-8"))
        self._client = Client(content["url"], content["token"])
        self._told = 0
        self._lease_id = ""
        self._give_up = monotonic() + LIMIT_SECONDS

    def play(self) -> Act:
        """From the cache to the end of the lease."""
        client = self._client
        client.create_cache({"name": CACHE, "size_gb": 50, **PLACE})
        self._wait_for_cache()
        price = client.cache(CACHE).price_per_month_usd
        self._say(f"cache {CACHE}: 50 GB at vultr/ewr, ${price} per month, used or not")
        lease = client.create_lease(self._request(), idempotency_key="demo-idle")
        self._lease_id = lease.id
        first = self._until("running")
        self._say(f"idle: running at {first.address}; nothing uses it, so it will be paused")
        self._until("paused")
        written = self._on_volume("weights")
        self._say(f"idle: paused; its cache holds {written.strip()!r}")
        client.resume(lease.id)
        # Its clock runs fast: without this it would be idle again while it is looked at.
        client.keep(lease.id, 24 * 3600)
        second = self._until("running")
        self._say(f"idle: running again at {second.address}, on another machine")
        read_back = self._until_read("second-start")
        self._say(f"idle: its start script says {read_back.strip()!r}")
        client.release(lease.id)
        self._until("released")
        return self._judged(kept=bool(written) and read_back == f"read back: {written}")

    def _request(self) -> dict[str, Any]:
        return {
            "name": "idle",
            "gpu": ["L40S"],
            "providers": [PLACE["provider"]],
            "regions": [PLACE["region"]],
            "cache": {"name": CACHE, "mounts": [MOUNT]},
            # The computer that plays the machines has sessions and connections of its own.
            "policy": {"idle": {"after_seconds": IDLE_SECONDS, "signals": ["gpu", "busy"]}},
            "start_script": SCRIPT,
        }

    def _judged(self, *, kept: bool) -> Act:
        cloud = self._server.cloud
        if cloud is None:
            raise RuntimeError("the demo needs the simulated provider")
        book = cloud.book_objects()
        machines = [each for each in book if each.kind in MACHINES]
        cache = next((each for each in self._client.caches() if each.name == CACHE and each.state == "available"), None)
        events = [event.kind for event in self._client.all_events(self._lease_id)]
        return Act(
            paused=events.count("paused"),
            resumed=events.count("resume_requested"),
            data_kept=kept,
            released=events.count("released"),
            machines=len(machines),
            billed=sum(each.destroyed is None for each in machines),
            cache_price=str(cache.price_per_month_usd) if cache is not None else "",
        )

    # --- waiting ---

    def _wait_for_cache(self) -> None:
        self._until_true(
            lambda: any(each.name == CACHE and each.state == "available" for each in self._client.caches())
        )

    def _until(self, state: str) -> LeaseView:
        found: list[LeaseView] = []

        def reached() -> bool:
            lease = self._client.lease(self._lease_id)
            self._tell()
            found.append(lease)
            return lease.state == state

        self._until_true(reached)
        return found[-1]

    def _tell(self) -> None:
        events = list(self._client.all_events(self._lease_id))
        for event in events[self._told :]:
            self._say(f"idle      {event.text}")
        self._told = len(events)

    def _until_read(self, name: str) -> str:
        """What the start script wrote; empty when it does not come soon."""
        end = monotonic() + READ_LIMIT_SECONDS
        while not (text := self._on_volume(name)) and monotonic() < end:
            sleep(0.1)
        return text

    def _until_true(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if monotonic() > self._give_up:
                raise OutOfTime
            sleep(0.1)

    def _on_volume(self, name: str) -> str:
        """A file of the cache, read from the folder that is its volume."""
        records = self._server.stack.deps.ledger.open_resources()
        for resource in records:
            file = self._machines.volume(resource.provider_id or "-") / "files" / MOUNT.lstrip("/") / name
            if resource.kind == "volume" and file.is_file():
                return file.read_text(encoding="utf-8")
        return ""


def play(say: Say, *, break_cache: bool = False) -> Act:
    """The act in a server and a folder of its own. `break_cache`: what was written is lost, to see that it is told."""
    with tempfile.TemporaryDirectory(prefix="gpulease-demo-") as folder:
        machines = DemoMachines(Path(folder), clock_speed=TIME_SCALE, forgetful=break_cache)
        url = f"http://127.0.0.1:{_free_port()}"
        options = Options(
            port=int(url.rpartition(":")[2]),
            data_dir=Path(folder) / "local",
            home=Path(folder),
            time_scale=TIME_SCALE,
            agent_url=url,
            simulator=with_boot_seconds(Settings(requests_per_second=None), BOOT_SECONDS),
            guests=machines,
        )
        server = LocalServer(options, {})
        loop = threading.Thread(target=server.run, name="engine")
        loop.start()
        act = IdleAct(server, machines, say)
        try:
            return act.play()
        except OutOfTime:
            say(f"gave up after {LIMIT_SECONDS:g} s")
            return Act()
        finally:
            server.stopping.set()
            loop.join()
            server.close()
            machines.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
