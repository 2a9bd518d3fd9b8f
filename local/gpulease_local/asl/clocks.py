"""Clocks of the engine: virtual time for simulation, (scaled) wall time for one computer.

Invariants: time never runs backwards in a virtual clock; only the loop moves its base, code inside a call only adds
to the offset of that call. `ScaledClock` is the one place of the engine that reads the computer's clock.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

# The loop looks up at least this often, so that a corrected wall clock or a stop request is noticed.
LONGEST_NAP_SECONDS = 0.25


@runtime_checkable
class EngineClock(Protocol):
    """What the engine and the code it runs read the time from."""

    def time(self) -> float:
        """Return the time in epoch seconds (UTC)."""
        ...


class VirtualClock:
    """Time that only moves when told to.

    Code inside a call spends time (`begin_call`, `spend`, `end_call`) and sees it pass, while the loop's own time
    stands still; the engine delivers the result that much later (`TaskReply.duration_seconds`).
    """

    def __init__(self, start: float = 0.0) -> None:
        self._base = float(start)
        self._spent: float | None = None

    def time(self) -> float:
        """Return the loop's time plus what the current call has spent, in epoch seconds."""
        return self._base if self._spent is None else self._base + self._spent

    def advance_to(self, when: float) -> None:
        """Move the loop's time; RuntimeError inside a call or backwards."""
        if self._spent is not None:
            raise RuntimeError("the loop's time cannot move inside a call")
        if when < self._base:
            raise RuntimeError(f"time cannot run backwards (from {self._base} to {when})")
        self._base = when

    def begin_call(self) -> None:
        """Start a call that takes time; calls do not nest."""
        if self._spent is not None:
            raise RuntimeError("a call is already under way")
        self._spent = 0.0

    def spend(self, seconds: float) -> None:
        """Let time pass inside the current call."""
        if self._spent is None:
            raise RuntimeError("no call is under way")
        if seconds < 0:
            raise ValueError("time cannot be given back")
        self._spent += seconds

    def end_call(self) -> float:
        """End the call and return the seconds it took."""
        if self._spent is None:
            raise RuntimeError("no call is under way")
        spent, self._spent = self._spent, None
        return spent


class ScaledClock:
    """The wall clock, or one that runs `scale` times as fast from `origin` on."""

    def __init__(
        self, *, scale: float = 1.0, origin: float | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        if scale <= 0:
            raise ValueError("scale must be positive")
        self._scale = scale
        self._wall = wall
        self._wall_origin = wall()
        self._origin = self._wall_origin if origin is None else origin

    def time(self) -> float:
        """Return the (scaled) time in epoch seconds."""
        return self._origin + (self._wall() - self._wall_origin) * self._scale

    def wait(self, seconds: float | None, woken: threading.Condition) -> None:
        """Wait until `woken` is notified or `seconds` of this clock have passed, and not longer than a nap.

        The caller holds the condition and looks at the time again afterwards.
        """
        nap = LONGEST_NAP_SECONDS if seconds is None else min(seconds / self._scale, LONGEST_NAP_SECONDS)
        if nap > 0:
            woken.wait(nap)
