"""gpulease as its user has it: `gpulease local --provider vultr` in a process of its own, asked over its API."""

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

from gpulease_cli.client import ApiUnreachable, Client
from gpulease_cli.views import LeaseView

from bench.peers.processes import Program, TookTooLong, clean_environment, wait_for
from bench.peers.simulated import PLANS, REGION

START_SECONDS = 120.0
_AT_ONCE = 8


@dataclass(frozen=True)
class Shown:
    """What the user sees of the leases: states with reasons, and texts that ask for attention."""

    states: str
    billed: str
    warnings: str


class Local:
    """One data folder; starts and ends the server over it."""

    def __init__(self, folder: Path, vultr_url: str) -> None:
        self._address = folder / "home" / "local" / "api.json"
        command = [sys.executable, "-m", "gpulease_cli", "local", "--provider", "vultr", "--vultr-url", vultr_url]
        env = clean_environment(GPULEASE_HOME=str(folder / "home"))
        self._program = Program([*command, "--port", "0"], folder / "gpulease.log", env)
        self.client = Client("http://127.0.0.1:1")
        self.start_seconds = 0.0
        self._asked = 0

    def __enter__(self) -> "Local":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Returns once it answers; how long that took is in `start_seconds`."""
        self._address.unlink(missing_ok=True)
        began = time.monotonic()
        self._program.start()
        wait_for("gpulease local", self._healthy, START_SECONDS, 0.05)
        self.start_seconds = time.monotonic() - began

    def end(self, how: Signals = SIGTERM) -> None:
        """By a signal."""
        self._program.end(how)

    def usage(self) -> tuple[float, float]:
        """(RSS in MiB, CPU seconds so far)."""
        return self._program.usage()

    def said(self) -> list[str]:
        """What it wrote on its terminal."""
        return self._program.output.read_text(encoding="utf-8", errors="replace").splitlines()

    def ask(self, *, network: bool, count: int = 1) -> None:
        """For so many machines at once."""
        numbers = range(self._asked, self._asked + count)
        self._asked += count
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda number: self._ask(number, network=network), numbers))

    def _ask(self, number: int, *, network: bool) -> None:
        request: dict[str, Any] = {"name": f"box-{number}", "regions": [REGION], "plans": list(PLANS)}
        request["private_network"] = "preferred" if network else "none"
        self._new_client().create_lease(request, idempotency_key=f"bench-peers-{number}")

    def leases(self) -> list[LeaseView]:
        """All that were ever asked for."""
        return list(self.client.leases())

    def newest(self) -> LeaseView:
        """The lease that was asked for last."""
        return next(self.client.leases())

    def wait_running(self, limit_seconds: float) -> None:
        """Until the newest lease runs. Raises TookTooLong; RuntimeError when it ends instead."""

        def runs() -> bool:
            lease = self.newest()
            if lease.released or lease.state == "releasing":
                raise RuntimeError(f"the lease ended: {lease.reason} {lease.reason_detail}")
            return lease.state == "running"

        wait_for("the lease running", runs, limit_seconds)

    def give_back(self, limit_seconds: float) -> float | None:
        """Everything. How long until all of it is shown as released; None: longer."""
        began = time.monotonic()
        for lease in self.leases():
            self.client.release(lease.id)
        try:
            wait_for("all released", lambda: all(each.released for each in self.leases()), limit_seconds)
        except TookTooLong:
            return None
        return round(time.monotonic() - began, 1)

    def shown(self) -> Shown:
        """As of now. Lists name no resources, so what is open is asked for by itself."""
        leases = [each if each.released else self.client.lease(each.id) for each in self.leases()]
        states = Counter(each.state + (f" ({each.reason})" if each.reason else "") for each in leases)
        billed = Counter(f"{each.kind} {each.state}" for lease in leases for each in lease.still_billed)
        warnings = sorted({text for lease in leases for text in lease.warnings})
        return Shown(_counted(states), _counted(billed), "; ".join(warnings))

    def _healthy(self) -> bool:
        self._program.check_alive()
        if not self._address.exists():
            return False
        self.client = self._new_client()
        try:
            return bool(self.client.health())
        except ApiUnreachable:
            return False

    def _new_client(self) -> Client:
        """One per thread."""
        content = json.loads(self._address.read_text(encoding="utf-8"))
        return Client(content["url"], content["token"])


def _counted(what: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(what.items()))
