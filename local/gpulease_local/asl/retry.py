"""Retry and Catch: which entry takes an error, and how long to wait before the next attempt.

Invariant: the first Retry entry that matches decides alone; when its attempts are used up the error goes on to
Catch, not to a later Retry entry.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gpulease_local.asl.errors import ALL, TASK_FAILED, TIMEOUT, UNCATCHABLE
from gpulease_local.asl.paths import ReferencePath


@dataclass(frozen=True, slots=True)
class Retrier:
    """One Retry entry; the defaults are the service's."""

    error_equals: tuple[str, ...]
    interval_seconds: int = 1
    backoff_rate: float = 2.0
    max_attempts: int = 3
    max_delay_seconds: int | None = None
    full_jitter: bool = False

    def delay_seconds(self, attempts_before: int, rng: random.Random) -> float:
        """Return the wait before the next attempt; with full jitter anything from 0 up to it."""
        try:
            delay = float(self.interval_seconds * self.backoff_rate**attempts_before)
        except OverflowError:
            delay = float("inf")
        if self.max_delay_seconds is not None:
            delay = min(delay, float(self.max_delay_seconds))
        delay = min(delay, 99_999_999.0)
        return rng.uniform(0.0, delay) if self.full_jitter else delay


@dataclass(frozen=True, slots=True)
class Catcher:
    """One Catch entry; `result_path` None throws the error's text away (ResultPath null)."""

    error_equals: tuple[str, ...]
    next: str
    result_path: ReferencePath | None


def matches(error_equals: tuple[str, ...], error: str) -> bool:
    """Tell whether an ErrorEquals list takes this error name."""
    if error in UNCATCHABLE:
        return False
    if error in error_equals or ALL in error_equals:
        return True
    return TASK_FAILED in error_equals and error != TIMEOUT


def find_retrier(retriers: Sequence[Retrier], error: str, used: Sequence[int]) -> int | None:
    """Return the index of the entry that retries this error, or None when no attempt is left."""
    for index, retrier in enumerate(retriers):
        if matches(retrier.error_equals, error):
            return index if used[index] < retrier.max_attempts else None
    return None


def find_catcher(catchers: Sequence[Catcher], error: str) -> Catcher | None:
    """Return the first entry that catches this error."""
    return next((catcher for catcher in catchers if matches(catcher.error_equals, error)), None)
