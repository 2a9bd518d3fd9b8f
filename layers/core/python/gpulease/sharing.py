"""Reading once for everybody: a fresh value is used by all, a stale one is refreshed by one caller at a time."""

from collections.abc import Callable
from datetime import datetime, timedelta

from gpulease.errors import ProviderFacts, ProviderThrottled
from gpulease.ports import Clock, SharedReads, SharedValue

CLAIM_SECONDS = 8.0
"""How long one caller may take to refresh before another tries; a list of several pages takes 1 to 2 s per page."""
ASK_AGAIN_SECONDS = 2.0
CLOCKS_APART = timedelta(seconds=5)
"""Workers' clocks differ by less; what lies further ahead was written by a wrong one."""


def age_of(known: SharedValue | None, now: datetime) -> timedelta:
    """Its age; very old where there is none, or where it lies far in the future (written by a wrong clock)."""
    if known is None or known.as_of > now + CLOCKS_APART:
        return timedelta.max
    return max(now - known.as_of, timedelta(0))


def read_through(
    shared: SharedReads,
    clock: Clock,
    key: str,
    fetch: Callable[[], str],
    *,
    fresh_seconds: float,
    usable_seconds: float,
) -> str:
    """The value of `key`, fetched when nothing fresh is known and nobody else is fetching it.

    While somebody else is, a value up to `usable_seconds` old has to do. Raises ProviderThrottled (no call was made)
    where there is none, and what `fetch` raises; then nothing is published.
    """
    now = clock.now()
    known = shared.read(key)
    age = age_of(known, now)
    if known is not None and age <= timedelta(seconds=fresh_seconds):
        return known.value
    if shared.claim(key, now, CLAIM_SECONDS):
        value = fetch()
        shared.publish(key, value, now)
        return value
    if known is not None and age <= timedelta(seconds=usable_seconds):
        return known.value
    message = f"{key} is being read by another worker"
    raise ProviderThrottled(ProviderFacts(key.partition("/")[0], message, retry_after_seconds=ASK_AGAIN_SECONDS))
