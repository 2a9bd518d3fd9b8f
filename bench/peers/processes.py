"""A started program: ended by its own id whatever happens, with its output in a file, and what it costs.

Invariants: nothing outlives its `with` block; no key of the environment reaches a child.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

TURN_SECONDS = 0.2
_END_SECONDS = 30.0


class TookTooLong(Exception):
    """Something did not happen in its time."""


def wait_for(what: str, seen: Callable[[], bool], limit_seconds: float, turn_seconds: float = TURN_SECONDS) -> None:
    """Look until it is so. Raises TookTooLong."""
    end = time.monotonic() + limit_seconds
    while not seen():
        if time.monotonic() > end:
            raise TookTooLong(f"{what}: not seen in {limit_seconds:.0f} s")
        time.sleep(turn_seconds)


def clean_environment(**more: str) -> dict[str, str]:
    """This environment without keys."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")} | more


class Program:
    """Started by `start`, any number of times, one at a time; leaving the block ends it."""

    def __init__(self, command: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.output = output
        self._env = dict(env) if env is not None else clean_environment()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Its output is added to the file."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - command lines of this package
                self.command, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._pid = self._process.pid

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it if it runs; after half a minute it is killed."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def check_alive(self) -> None:
        """Raises RuntimeError with the end of its output when it has ended by itself."""
        if self._process is None or self._process.poll() is not None:
            lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()
            raise RuntimeError(f"{' '.join(self.command[:4])} … ended by itself:\n" + "\n".join(lines[-15:]))

    def usage(self) -> tuple[float, float]:
        """(RSS in MiB, CPU seconds so far) of the process; it has no children."""
        self.check_alive()
        pid = self._pid
        rss = float(_ps("rss", pid)) / 1024
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            user, system = stat.read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
            return rss, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        seconds = 0.0
        for part in re.split("[-:]", _ps("time", pid)):
            seconds = seconds * 60 + float(part)
        return rss, seconds


def _ps(column: str, pid: int) -> str:
    command = ["ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()  # noqa: S603
