"""The only place where the simulated clouds meet real time: a scaled wall clock and the waiting that goes with it."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class ScaledClock:
    """Simulated Unix seconds that run `scale` times as fast as the wall clock, from `start` at wall time `origin`."""

    origin: float
    start: float
    scale: float = 1.0

    @classmethod
    def from_now(cls, scale: float = 1.0) -> "ScaledClock":
        """Starts at the present wall time."""
        now = time.time()
        return cls(now, now, scale)

    def __call__(self) -> float:
        return self.start + (time.time() - self.origin) * self.scale

    def wall(self, simulated: float) -> float:
        """The wall time of a simulated moment."""
        return self.origin + (simulated - self.start) / self.scale

    def sleep(self, simulated_seconds: float) -> None:
        """Wait that long on the simulated clock."""
        if simulated_seconds > 0:
            time.sleep(simulated_seconds / self.scale)

    def rescaled(self, scale: float) -> "ScaledClock":
        """The same simulated time from now on at another speed."""
        return ScaledClock(time.time(), self(), scale)
