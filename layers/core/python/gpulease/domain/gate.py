"""How an account's rate is shared: lanes with a share each, first come first served, and pauses that a 429 asks for.

A provider counts all calls of an account or address together. What many leases do at once is spread over lanes, so that
a mass release does not hold up creates and the other way round; what is left of the rate is for lists that serve
everybody.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum


class Lane(Enum):
    """Who waits in one queue, and which share of the account's rate that queue has."""

    CHANGE = ("change", 0.25)
    """Creates and attaches; of Vultr's 30 calls per second 7.5."""
    RELEASE = ("release", 0.33)
    """Turns of giving back, two calls each at most in the usual course."""
    READ = ("read", 0.2)
    """Reads of one thing by id or marker, where a list does not tell."""

    @property
    def share(self) -> float:
        return self.value[1]

    def spacing_seconds(self, requests_per_second: float, calls: float = 1.0) -> float:
        """Between two turns of so many calls each."""
        return calls / (requests_per_second * self.share)

    def key(self, account: str) -> str:
        return f"{account}/{self.value[0]}"


SOON_SECONDS = 1.0
"""A slot so near is as good as now: it is not worth a pause of the workflow."""
FIRST_PAUSE = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(seconds=60)
PAUSE_MEMORY = timedelta(seconds=60)
"""A refusal so soon after the last pause doubles it; later ones begin anew."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The account is left alone from `since` until `until`."""

    since: datetime
    until: datetime

    def left(self, now: datetime) -> timedelta:
        """How much of it is ahead; 0 = it is over."""
        left = self.until - now
        # Longer than any pause we ever ask for: written by a wrong clock.
        return left if timedelta(0) < left <= 2 * LONGEST_PAUSE else timedelta(0)

    def moved(self, slot: datetime) -> datetime:
        """Where a slot that falls into this pause moves: after its end, in the order and at the distance it had."""
        return slot if slot >= self.until else self.until + max(slot - self.since, timedelta(0))


def pause_after(last: Pause | None, now: datetime, retry_after_seconds: float) -> Pause:
    """The pause after a 429: as long as the provider says, else growing while it goes on refusing."""
    if last is not None and last.left(now) and not retry_after_seconds:
        return last
    if retry_after_seconds:
        length = timedelta(seconds=retry_after_seconds)
    elif last is not None and timedelta(0) <= now - last.until <= PAUSE_MEMORY:
        length = 2 * (last.until - last.since)
    else:
        length = FIRST_PAUSE
    until = now + min(length, LONGEST_PAUSE)
    if last is not None and last.left(now):
        return Pause(last.since, max(last.until, until))
    return Pause(now, until)


def pause_text(pause: Pause) -> str:
    return json.dumps([pause.since.timestamp(), pause.until.timestamp()])


def pause_of(text: str) -> Pause:
    since, until = json.loads(text)
    return Pause(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC))


def pause_key(account: str) -> str:
    return f"{account}/pause"
