"""What simulated users do on their machines, week after week: when they work, how it shows, when agents are silent.

All of it is drawn from the seed before the run, in seconds from its start, so that the truth about "in use" is known
apart from what any agent reports.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpulease.domain.policy import Signal

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
PATTERNS = ("office", "nights", "batch", "rare", "bursts", "once")
"""office: some sessions a working day. nights: one long job each night. batch: days of work, days of nothing. rare: an
hour every few days. bursts: minutes of work, shorter pauses than any idle limit, for hours. once: used on the first day
and forgotten."""


@dataclass(frozen=True, slots=True)
class Session:
    """The user works from `start` until `end`; the machine is resumed for it where it is paused."""

    start: float
    end: float
    signal: Signal


@dataclass(frozen=True, slots=True)
class Silence:
    """The agent reports nothing meanwhile, whatever the machine does."""

    start: float
    end: float


@dataclass(frozen=True)
class Workload:
    pattern: str
    sessions: tuple[Session, ...]
    silences: tuple[Silence, ...] = ()
    idle_after_seconds: int = 1800

    @cached_property
    def _starts(self) -> list[float]:
        return [session.start for session in self.sessions]

    def last_session(self, now: float) -> Session | None:
        """The session that began last, over or not; None = there was none."""
        index = bisect_right(self._starts, now) - 1
        return self.sessions[index] if index >= 0 else None

    def session_at(self, now: float) -> Session | None:
        """The session under way; None = the user does not work now."""
        found = self.last_session(now)
        return found if found is not None and now < found.end else None

    def is_silent(self, now: float) -> bool:
        return any(silence.start <= now < silence.end for silence in self.silences)


IN_USE = Workload("always", (Session(0.0, math.inf, Signal.GPU),))
"""Of a machine that is never idle."""


def workload(number: int, seed: int, span_seconds: float) -> Workload:
    """The workload of machine `number` for a run of so many seconds."""
    draw = random.Random(f"workload-{seed}-{number}")  # noqa: S311 - sameness is wanted here
    pattern = PATTERNS[number % len(PATTERNS)]
    sessions = _apart(_sessions(pattern, draw, span_seconds))
    silences: tuple[Silence, ...] = ()
    if draw.random() < 0.15:
        at = draw.uniform(0.05, 0.9) * span_seconds
        silences = (Silence(at, at + draw.choice((4 * MINUTE, 15 * MINUTE, 3 * HOUR))),)
    limit = draw.choice((600, 1800, 1800, 3600))
    return Workload(pattern, tuple(s for s in sessions if s.start < span_seconds), silences, limit)


def _sessions(pattern: str, draw: random.Random, span: float) -> list[Session]:
    days = int(span // DAY) + 1
    signal = draw.choice((Signal.GPU, Signal.GPU, Signal.SSH, Signal.CONNECTIONS, Signal.BUSY))

    def session(start: float, seconds: float, how: Signal = signal) -> Session:
        return Session(start, start + seconds, how)

    if pattern == "office":
        return [
            session(day * DAY + hour * HOUR + draw.uniform(0, HOUR), draw.uniform(10 * MINUTE, 3 * HOUR))
            for day in range(days)
            if day % 7 < 5
            for hour in (9, 14)
        ]
    if pattern == "nights":
        return [session(day * DAY + draw.uniform(19, 22) * HOUR, draw.uniform(3, 9) * HOUR) for day in range(days)]
    if pattern == "batch":
        return [session(day * DAY + draw.uniform(0, DAY), draw.uniform(10, 40) * HOUR) for day in range(0, days, 3)]
    if pattern == "rare":
        return [session(day * DAY + draw.uniform(0, DAY), draw.uniform(0.2, 1) * HOUR) for day in range(0, days, 2)]
    if pattern == "bursts":
        found = []
        for day in range(days):
            at = day * DAY + draw.uniform(8, 12) * HOUR
            for _ in range(draw.randint(5, 20)):
                length = draw.uniform(1, 12) * MINUTE
                found.append(session(at, length))
                at += length + draw.uniform(2, 9) * MINUTE
        return found
    return [session(draw.uniform(0, 2) * HOUR, draw.uniform(1, 5) * HOUR)]


def _apart(sessions: Sequence[Session]) -> list[Session]:
    """In order and without overlaps: one person works at one thing."""
    found: list[Session] = []
    for each in sorted(sessions, key=lambda s: s.start):
        start = max(each.start, found[-1].end) if found else each.start
        if start < each.end:
            found.append(Session(start, each.end, each.signal))
    return found
