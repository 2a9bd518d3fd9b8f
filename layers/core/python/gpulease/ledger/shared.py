"""What both stores of shared readings agree on: how long things bind, in times that callers give."""

from datetime import datetime, timedelta

LONGEST_CLAIM = timedelta(seconds=60)
"""A claim that ends later than this was written by a wrong clock."""
LATEST_SLOT = timedelta(minutes=15)
"""The same for a slot: a thousand creates queue for two minutes."""
WRONG_CLOCK = timedelta(seconds=60)
"""A value from so far ahead of a new one does not keep it out."""
KEPT = timedelta(days=1)
"""How long after its writing a row is of any use."""


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exact."""
    whole = int(moment.timestamp())
    return whole * 1_000_000 + moment.microsecond


def moment(value: int, like: datetime) -> datetime:
    """The aware time of so many microseconds, in the zone of `like`."""
    return datetime.fromtimestamp(value // 1_000_000, like.tzinfo) + timedelta(microseconds=value % 1_000_000)


def micros_of(span: timedelta) -> int:
    """The span in microseconds."""
    return span // timedelta(microseconds=1)
