"""The simulated Vultr in a process of its own, driven over its control routes.

Both products meet the same account: machines that are usable the moment they are active and gone the moment a delete
is accepted, no rate limit, room for many networks. So what is left or late is the control plane's own doing.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from bench.peers.model import Left
from bench.peers.processes import Program, wait_for

START_SECONDS = 60.0
_CALL_SECONDS = 30.0
_KIND = {
    "ok_seconds": 0,
    "slow_ok_probability": 0,
    "locked_seconds": 0,
    "lock_tail_seconds": 0,
    "ssh_seconds": 0,
    "destruction_seconds": 0,
    "destruction_get_error_probability": 0,
}
SETTINGS: Mapping[str, Any] = {"vm": _KIND, "metal": _KIND, "requests_per_second": None, "vpcs_per_region": 64}
REGION = "ewr"
PLANS = ("vcg-a100-12c-120g-80vram", "vbm-112c-2048gb-8-h100-gpu")
"""Two plans with a GPU in that region, both in the simulator's catalogue."""
LOCKED = "Unable to destroy server: Unable to remove VM: Server is currently locked"
_ROUTES = {"instance": "instances", "bare_metal": "bare-metals"}


@dataclass(frozen=True)
class Billed:
    """A line of the book; times are wall-clock seconds."""

    kind: str
    id: str
    label: str
    created: float
    active: float | None
    destroyed: float | None

    @property
    def machine(self) -> bool:
        """Else it is a network."""
        return self.kind != "vpc"


class Simulated:
    """Starts and restarts the simulator; the account outlives a restart, faults do not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = Program([], folder / "simulator.log")
        self._port = 0
        self._http = requests.Session()
        self._http.trust_env = False
        self._http.headers["Authorization"] = "Bearer sim-key"

    def __enter__(self) -> "Simulated":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.end()
        self._http.close()

    @property
    def url(self) -> str:
        """Where Vultr's API is."""
        return f"http://127.0.0.1:{self._port}/v2"

    def start(self, scale: float = 1.0) -> None:
        """Returns once it can be called. A restart stays at its port."""
        self._program.command = [
            *(sys.executable, "-m", "gpulease_sim.vultr", "--port", str(self._port), "--time-scale", str(scale)),
            *("--state", str(self._folder / "simulator.sqlite")),
            *("--settings", json.dumps(SETTINGS)),
        ]
        said = self._program.output.stat().st_size if self._program.output.exists() else 0
        self._program.start()
        wait_for("the simulator", lambda: self._says_where(said), START_SECONDS)

    def _says_where(self, after: int) -> bool:
        self._program.check_alive()
        line = self._program.output.read_text(encoding="utf-8")[after:].partition("\n")[0]
        if not line.startswith("http"):
            return False
        self._port = urlsplit(line).port or 0
        return True

    def restart(self, scale: float) -> None:
        """From now on time passes so much faster (or slower)."""
        self._program.end()
        self.start(scale)

    def control(self, route: str, body: Mapping[str, Any]) -> None:
        """Raises requests.HTTPError when the simulator refuses it."""
        origin = self.url.removesuffix("/v2")
        self._http.post(f"{origin}/_control/{route}", json=body, timeout=_CALL_SECONDS).raise_for_status()

    def reset(self, boot_seconds: float) -> None:
        """An empty account whose machines take so long (real time) to become active."""
        self.control("reset", {})
        self.boot_takes(boot_seconds)

    def boot_takes(self, seconds: float) -> None:
        """Of machines created from now on."""
        self.control("settings", {"boot_seconds": seconds})

    def set_faults(self, *faults: Mapping[str, Any]) -> None:
        """These and no others."""
        self.control("faults", {"faults": list(faults)})

    def book(self) -> list[Billed]:
        """Everything that was ever made, oldest first."""
        answer = self._http.get(f"{self.url.removesuffix('/v2')}/_control/book", timeout=_CALL_SECONDS)
        answer.raise_for_status()
        names = Billed.__dataclass_fields__
        return [Billed(**{name: each[name] for name in names}) for each in answer.json()["objects"]]

    def machines(self) -> list[Billed]:
        """Of the book."""
        return [each for each in self.book() if each.machine]

    def left(self) -> Left:
        """What is not destroyed."""
        open_ones = [each for each in self.book() if each.destroyed is None]
        return Left(sum(each.machine for each in open_ones), sum(not each.machine for each in open_ones))

    def paths_left(self) -> list[str]:
        """The API's paths of the machines that exist."""
        return [f"/{_ROUTES[each.kind]}/{each.id}" for each in self.machines() if each.destroyed is None]

    def delete_by_hand(self) -> None:
        """Every machine, as in the provider's console."""
        for path in self.paths_left():
            self._http.delete(self.url + path, timeout=_CALL_SECONDS).raise_for_status()
        wait_for("machines deleted by hand", lambda: not self.left().machines, 60)
