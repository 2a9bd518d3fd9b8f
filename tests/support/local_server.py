"""A `gpulease local` in a process of its own, which tests can kill as hard as the system can."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from gpulease.ledger.sqlite import SqliteLedger
from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import Client
from gpulease_local.books import Comparison, all_records, compare
from gpulease_local.home import kept_deployment
from gpulease_local.world import continued_clock
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.state_file import StateFile

START_SECONDS = 30.0
_TURN_SECONDS = 0.02


class LocalProcess:
    """Starts the server on a free port over `folder`; `client` talks to the present one."""

    def __init__(self, folder: Path, repository: Path, *, time_scale: float, seed: int = 7) -> None:
        self.folder = folder
        self._repository = repository
        self._time_scale = time_scale
        self._seed = seed
        self._errors = (folder.parent / "stderr.txt").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.client = Client("http://127.0.0.1:1")

    def start(self, *, wait: bool = True) -> None:
        """Start it and, unless told not to, wait until it answers."""
        address = self.folder / "api.json"
        address.unlink(missing_ok=True)
        self._process = subprocess.Popen(  # noqa: S603 - our own command line
            [
                *(sys.executable, "-m", "gpulease_cli", "local", "--data-dir", str(self.folder), "--port", "0"),
                *("--time-scale", str(self._time_scale), "--seed", str(self._seed)),
            ],
            cwd=self._repository,
            env={**_environment(), "GPULEASE_HOME": str(self.folder.parent / "home")},
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        if not wait:
            return
        give_up = monotonic() + START_SECONDS
        while not address.exists():
            if self._process.poll() is not None or monotonic() > give_up:
                raise AssertionError(Path(self._errors.name).read_text(encoding="utf-8"))
            sleep(_TURN_SECONDS)
        self.client = self._connected(address)

    def kill(self) -> None:
        """kill -9, wherever it is just now."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to end (as Ctrl+C does) and return its exit status."""
        return self._end(signal.SIGINT)

    def close(self) -> None:
        """End it, however it is."""
        if self._process is not None:
            self.kill()
        self._errors.close()

    def compare(self) -> Comparison:
        """The simulated provider's book against the ledger, read from the files of an ended server."""
        data = self.folder / "simulated"
        clock = continued_clock(data / "clock.json", self._time_scale)
        state = StateFile(data / "simulated-vultr.sqlite")
        ledger = SqliteLedger(data / "gpulease.sqlite")
        try:
            now = clock.time()
            book = VultrCloud(lambda: now, self._seed, state=state).book_objects()
            deployment = kept_deployment(data / "deployment.json", "simulated", lambda: "")
            return compare(book, all_records(ledger), deployment, datetime.fromtimestamp(now, UTC))
        finally:
            ledger.close()
            state.close()

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        status = self._process.wait(timeout=30)
        self._process = None
        return status

    def _connected(self, address: Path) -> Client:
        content = json.loads(address.read_text(encoding="utf-8"))
        return Client(content["url"], content["token"], timeout_seconds=10)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
