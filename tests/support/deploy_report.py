"""What `make deploy-check` has found so far, how long each part took, and its last line."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gpulease.runtime.world import monotonic, sleep

EXPECTED = {
    "stack": "CREATE_COMPLETE",
    "lease": "released",
    "unsigned": "403",
    "foreign": "404",
    "update": "ok",
    "orphans": "0",
}


class NotAsExpected(AssertionError):
    """Something that the check looks at is not as it should be."""


@dataclass
class Report:
    """What was found, by the names of the last line."""

    found: dict[str, str] = field(default_factory=lambda: dict.fromkeys(EXPECTED, "not-reached"))
    started: float = field(default_factory=monotonic)
    _said: float = field(default_factory=monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def as_expected(self) -> bool:
        """Whether all of it is as it should be."""
        return self.found == EXPECTED

    def line(self) -> str:
        """The last line."""
        return "deploy-check: " + " ".join(f"{name}={value}" for name, value in self.found.items())

    def say(self, text: str) -> None:
        """One line of progress, with the seconds since the start and since the line before."""
        with self._lock:
            now = monotonic()
            print(f"{now - self.started:6.1f} s {now - self._said:+6.1f}  {text}", flush=True)
            self._said = now


def until(reached: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Look every second. Raises NotAsExpected after so many seconds."""
    give_up = monotonic() + seconds
    while not reached():
        if monotonic() > give_up:
            raise NotAsExpected(f"{otherwise} (within {seconds:g} s)")
        sleep(1)
