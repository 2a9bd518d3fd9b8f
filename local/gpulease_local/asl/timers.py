"""The heap of due things and the callbacks that share it with the executions.

Invariant: things come out in the order of (due time, sequence), so the same program gives the same order always.
"""

import heapq
from collections.abc import Callable
from typing import Any


class Handle:
    """A callback that was put off; `cancel` works until it has started."""

    __slots__ = ("_fn", "busy", "cancelled", "seconds")

    def __init__(self, fn: Callable[[], None], seconds: float | None = None) -> None:
        self._fn = fn
        self.seconds = seconds  # None: once
        self.cancelled = False
        self.busy = False

    def cancel(self) -> None:
        """Never call it again; a call that is under way is not stopped."""
        self.cancelled = True

    def call(self) -> None:
        """Run the callback."""
        try:
            self._fn()
        finally:
            self.busy = False


class Agenda:
    """A priority queue over (due, sequence); the entries' contents are never compared."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any, Any]] = []
        self._sequence = 0

    def add(self, due: float, what: Any, detail: Any = None) -> None:
        """Put something in; equal due times come out in the order they went in."""
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, what, detail))

    def next_due(self) -> float | None:
        """Return the earliest due time, or None."""
        return self._heap[0][0] if self._heap else None

    def take(self) -> tuple[float, int, Any, Any]:
        """Take out the earliest entry."""
        return heapq.heappop(self._heap)
