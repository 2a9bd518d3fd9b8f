"""The loop: takes due things in the order of (due time, sequence) and knows how time passes.

With a virtual clock time jumps to the next due thing: a 40-minute wait costs nothing, and the same seed gives the same
run. With the wall clock it waits, and threads beside it make the calls.

Invariant: what is due is processed one thing at a time, by one thread, under the lock (callbacks: outside of it).
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpulease_local.asl.clocks import EngineClock, ScaledClock, VirtualClock
from gpulease_local.asl.timers import Agenda, Handle

_log = logging.getLogger(__name__)


class Loop(ABC):
    """Runs callbacks at their times, and whatever else a subclass puts on the agenda (`_move`)."""

    def __init__(self, *, clock: EngineClock, workers: int) -> None:
        if workers and isinstance(clock, VirtualClock):
            raise ValueError("threads and virtual time do not go together: use workers=0")
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="asl-worker") if workers else None
        self._lock = threading.RLock()
        self._woken = threading.Condition(self._lock)
        self._agenda = Agenda()
        self._closed = False

    @abstractmethod
    def _move(self, what: Any, detail: Any) -> None:
        """Process a due entry that is no callback; called under the lock."""

    @abstractmethod
    def _idle(self) -> bool:
        """Tell whether nothing but schedules is left."""

    # Schedules ---------------------------------------------------------------------------------------

    def call_at(self, when: float, fn: Callable[[], None]) -> Handle:
        """Call `fn` once at a time (epoch seconds), or at once when that has passed."""
        return self._schedule(when, Handle(fn))

    def call_every(self, seconds: float, fn: Callable[[], None], first_after: float | None = None) -> Handle:
        """Call `fn` again and again; a turn whose predecessor still runs is left out."""
        if seconds <= 0:
            raise ValueError("seconds must be positive")
        wait = seconds if first_after is None else first_after
        return self._schedule(self._clock.time() + wait, Handle(fn, seconds))

    def _schedule(self, when: float, handle: Handle) -> Handle:
        with self._woken:
            self._agenda.add(when, handle)
            self._woken.notify()
        return handle

    # Running -----------------------------------------------------------------------------------------

    def run_until(self, when: float) -> None:
        """Process everything due up to `when` (epoch seconds); a virtual clock then stands at `when`."""
        while self._turn(when):
            pass

    def run_until_idle(self, limit: float | None = None) -> None:
        """Process until no execution is RUNNING, or up to `limit` (epoch seconds)."""
        while not self._idle() and self._turn(limit):
            pass

    def run_forever(self, stop: threading.Event) -> None:
        """Process until `stop` is set; needs a clock that moves by itself. A store that fails ends the loop."""
        if not isinstance(self._clock, ScaledClock):
            raise ValueError("run_forever needs a ScaledClock")
        while not stop.is_set():
            self._turn(None)

    def close(self) -> None:
        """Let calls under way finish and record their answers, start no new ones; for after `run_forever`."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self.run_until(self._clock.time())

    def _turn(self, limit: float | None) -> bool:
        """Process the next due thing, or wait a little (wall clock); False when nothing is due up to `limit`."""
        with self._lock:
            due = self._agenda.next_due()
            clock = self._clock
            if isinstance(clock, VirtualClock):
                if due is None or (limit is not None and due > limit):
                    if limit is not None and limit > clock.time():
                        clock.advance_to(limit)
                    return False
                if due > clock.time():
                    clock.advance_to(due)
            elif isinstance(clock, ScaledClock):
                now = clock.time()
                if due is None or due > now:
                    if limit is not None and now >= limit:
                        return False
                    ends = [moment for moment in (due, limit) if moment is not None]
                    clock.wait(min(ends) - now if ends else None, self._woken)
                    return True
            else:
                raise TypeError("the engine needs a VirtualClock or a ScaledClock")
            due, _, what, detail = self._agenda.take()
            if not isinstance(what, Handle):
                self._move(what, detail)
                return True
        self._call_back(what, due)
        return True

    def _call_back(self, handle: Handle, due: float) -> None:
        if handle.cancelled or self._closed:
            return
        if handle.seconds is not None:
            # Keeps to its grid; a computer that slept does not make up for the turns it missed.
            following = due + handle.seconds
            now = self._clock.time()
            self._schedule(following if following > now else now + handle.seconds, handle)
        if self._pool is None:
            handle.call()
        elif not handle.busy:
            handle.busy = True
            self._pool.submit(self._call_back_on_worker, handle)

    def _call_back_on_worker(self, handle: Handle) -> None:
        try:
            handle.call()
        except Exception:
            _log.exception("schedule_failed")
