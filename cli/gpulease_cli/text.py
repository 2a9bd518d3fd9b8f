"""How money, times and texts look. Pure functions.

Invariant: nothing that came over the network reaches a terminal with control characters in it.
"""

import difflib
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CENT = Decimal("0.01")


def clean(value: object) -> str:
    """The value as one line of text without control characters."""
    return _CONTROL.sub(" ", str(value)).strip()


def cost(usd: Decimal | None) -> str:
    """An amount of dollars: cents, and `<$0.01` for less than one."""
    if usd is None:
        return "-"
    if 0 < usd < _CENT:
        return "<$0.01"
    return f"${usd.quantize(_CENT, ROUND_HALF_UP):,}"


def rate(usd_per_hour: Decimal | None) -> str:
    """Dollars per hour, without the `/h`: cents, and up to four digits after the point where a price has them."""
    if usd_per_hour is None:
        return "-"
    cents = usd_per_hour.quantize(_CENT, ROUND_HALF_UP)
    if cents == usd_per_hour:
        return f"${cents:,}"
    digits = f"{usd_per_hour.quantize(Decimal('0.0001'), ROUND_HALF_UP):,}".rstrip("0")
    return f"${digits}" if len(digits.rpartition(".")[2]) >= 2 else f"${cents:,}"


def duration(seconds: float) -> str:
    """`8s`, `4m12s`, `3h05m`, `2d04h`. Negative counts as nothing."""
    whole = max(0, int(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour:02}h"
    if hours:
        return f"{hours}h{minute:02}m"
    if minutes:
        return f"{minutes}m{second:02}s"
    return f"{second}s"


def between(start: datetime | None, end: datetime | None) -> str:
    """The time from one moment to another, `-` when one of them is not known."""
    return "-" if start is None or end is None else duration((end - start).total_seconds())


def local_time(at: datetime | None) -> str:
    """A moment in the reader's own time zone, with the zone's name."""
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def parse_duration(text: str) -> int:
    """Seconds of `90s`, `45m`, `2h`, `1d12h`. Raises ValueError, also for a bare number: its unit would be a guess."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    try:
        return int(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds())
    except OverflowError as error:
        raise ValueError(text) from error


def number(value: float) -> str:
    """A number without a needless `.0`."""
    return f"{value:g}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, or None."""
    by_lower = {item.lower(): item for item in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None
