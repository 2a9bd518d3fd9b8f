"""A simulated provider in another process of this computer (`gpulease simulator vultr`), named by its address.

Its machines have no real network, so whether SSH answers is asked of the simulator, and the clock is the simulator's:
both sides must agree on how fast time runs. Invariant: only loopback is ever asked, and only on the control routes.
"""

import json
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

TIMEOUT_SECONDS = 5.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_MAX_BYTES = 64 * 1024


def is_loopback(url: str) -> bool:
    """Whether an address stays on this computer."""
    return urlsplit(url).hostname in _LOOPBACK


@dataclass(frozen=True, slots=True)
class SimulatorTime:
    """The simulator's clock at the moment it was asked: epoch seconds, and how fast it runs."""

    now: float
    scale: float


class RemoteSimulator:
    """The control routes at the origin of `url` (Vultr's base ends in /v2 there)."""

    def __init__(self, url: str) -> None:
        if not is_loopback(url):
            raise ValueError(f"{url} is not on this computer")
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        # A proxy of the environment cannot reach this computer's loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def time(self) -> SimulatorTime | None:
        """Its clock, or None when what answers there (if anything) is not our simulator."""
        try:
            answer = self._get("clock", {})
            return SimulatorTime(float(answer["now"]), float(answer["time_scale"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ssh_open(self, address: str, port: int) -> bool:
        """Whether the simulated host accepts connections; an unreachable simulator is a closed port."""
        try:
            return self._get("ssh", {"address": address, "port": str(port)}).get("open") is True
        except (OSError, ValueError):
            return False

    def _get(self, route: str, query: dict[str, str]) -> dict[str, Any]:
        url = f"{self._origin}/_control/{route}" + (f"?{urlencode(query)}" if query else "")
        with self._opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            value = json.loads(answer.read(_MAX_BYTES))
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value
