"""Windows of time in a lease's policy: when a machine is kept warm, and when it is kept off.

A window is compared with the clock as a state and never as "this minute", so a lost or late tick changes nothing
(case C66). Days and hours are those of the window's own zone, whatever the zone of the control plane (C65). Where the
clock changes, cron's own rules hold: a time that does not exist falls on the first moment after it, one that exists
twice counts once, the first time (C67). Evaluated by cronsim, https://github.com/cuu508/cronsim.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpulease.domain.policy import Keep, Window

if TYPE_CHECKING:
    from cronsim import CronSim

FIELDS = 5
CLOCK_CHANGE = timedelta(hours=3)
"""More than any zone's change of its clock."""
NEXT_CHANGES = 20
"""Looked at for the next one that lets a machine run: windows may overlap."""


@dataclass(frozen=True, slots=True)
class Change:
    """The next moment at which a window begins or ends, in its own zone."""

    at: datetime
    window: Window
    begins: bool

    def text(self) -> str:
        """As people read it: `keep off from 2026-11-02 22:00 -05:00 (America/New_York)`."""
        offset = self.at.strftime("%z")
        when = f"{self.at:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:]} ({self.window.timezone})"
        return f"keep {self.window.keep} {'from' if self.begins else 'until'} {when}"


def problem(window: Window) -> str:
    """What is wrong with a window, naming the field and what would be right; empty = nothing."""
    from cronsim import CronSim, CronSimError

    try:
        zone = ZoneInfo(window.timezone)
    except (KeyError, ValueError, OSError):
        return f"timezone: {window.timezone!r} is no zone of the IANA database, like Europe/Berlin"
    for name in ("start", "end"):
        expression = getattr(window, name)
        if expression is None:
            continue
        right = "five cron fields are right: minute hour day month weekday, like '0 22 * * 1-5'"
        if len(expression.split()) != FIELDS:
            return f"{name}: {expression!r}: {right}"
        try:
            next(CronSim(expression, datetime(2000, 1, 1, tzinfo=zone)))
        except CronSimError as error:
            return f"{name}: {expression!r}: {error}; {right}"
        except StopIteration:
            return f"{name}: {expression!r} names a time that never comes"
    if window.end is not None and _is_empty(window):
        return f"end: {window.end!r} is the same moment as the start, so that it never is inside; give a later end"
    return ""


def usable(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Those that mean something today. A stored one may have lost its zone or its form with an update of what knows
    them: it decides nothing, and must not keep the limits of time and money from being looked at."""
    return tuple(window for window in windows if _is_usable(window))


@lru_cache(maxsize=256)
def _is_usable(window: Window) -> bool:
    return not problem(window)


def _is_empty(window: Window) -> bool:
    """Whether its end comes at each of its beginnings, as far as a dozen of them tell."""
    at = datetime(2000, 1, 1, tzinfo=UTC)
    for _ in range(12):
        at = following(window.start, window.timezone, at)
        if is_inside(window, at):
            return False
    return True


def last(expression: str, zone: str, now: datetime) -> datetime:
    """The last time, now included, that a cron expression named in its zone; UTC."""
    place = ZoneInfo(zone)
    after = (now + timedelta(seconds=1)).astimezone(place)
    around = [(now + gap).astimezone(place).utcoffset() for gap in (-CLOCK_CHANGE, CLOCK_CHANGE)]
    if around[0] != around[1]:
        # Going back from inside an hour that exists twice, the library misses what lay in its first run: begin later.
        after = (now + CLOCK_CHANGE).astimezone(place)
    return next(at for found in _times(expression, after, reverse=True) if (at := found.astimezone(UTC)) <= now)


def following(expression: str, zone: str, now: datetime) -> datetime:
    """The next time after now, in the window's zone."""
    return next(_times(expression, now.astimezone(ZoneInfo(zone)), reverse=False))


def is_inside(window: Window, now: datetime) -> bool:
    """Whether now is inside the window. One without an end has only a beginning, and no inside."""
    if window.end is None:
        return False
    return last(window.start, window.timezone, now) > last(window.end, window.timezone, now)


def warm_until_now(windows: tuple[Window, ...], now: datetime) -> datetime | None:
    """Until when, up to now, some window kept the machine warm: now inside of one. None = no window does."""
    ends: list[datetime] = []
    for window in windows:
        if window.keep is not Keep.WARM or window.end is None:
            continue
        ends.append(now if is_inside(window, now) else last(window.end, window.timezone, now))
    return max(ends, default=None)


def off_since(windows: tuple[Window, ...], now: datetime, ready_at: datetime) -> datetime | None:
    """The beginning of a window that keeps a machine off which became ready before that; None = nothing does.

    A machine that became ready after the beginning is there because its owner wants it: it stays until the next one.
    """
    begun = [
        start
        for window in windows
        if window.keep is Keep.OFF
        and (window.end is None or is_inside(window, now))
        and (start := last(window.start, window.timezone, now)) > ready_at
    ]
    return min(begun, default=None)


def on_since(windows: tuple[Window, ...], now: datetime, paused_at: datetime, *, by_window: bool) -> datetime | None:
    """When a window said that a machine which is paused since then should run again; None = none did.

    The end of a window that keeps off brings back what a window paused; the beginning of one that keeps warm, also what
    was idle. While another window keeps it off, neither does.
    """
    if any(window.keep is Keep.OFF and is_inside(window, now) for window in windows):
        return None
    moments = []
    for window in windows:
        if window.keep is Keep.OFF and window.end is not None and by_window:
            moments.append(last(window.end, window.timezone, now))
        if window.keep is Keep.WARM and is_inside(window, now):
            moments.append(last(window.start, window.timezone, now))
    return min((moment for moment in moments if moment > paused_at), default=None)


def next_off(windows: tuple[Window, ...], now: datetime) -> Change | None:
    """When a window begins to keep off next; None = there is none that does."""
    return _first(Change(following(w.start, w.timezone, now), w, begins=True) for w in windows if w.keep is Keep.OFF)


def next_on(windows: tuple[Window, ...], now: datetime, *, by_window: bool) -> Change | None:
    """When windows next let a machine run that is paused for idleness or, `by_window`, by one of them; None = never, or
    not within the next few changes."""
    if not by_window and not any(window.keep is Keep.WARM for window in windows):
        return None
    at = now
    for _ in range(NEXT_CHANGES):
        change = next_change(windows, at)
        if change is None:
            return None
        at = change.at
        if on_since(windows, at, now, by_window=by_window) is not None:
            return change
    return None


def next_change(windows: tuple[Window, ...], now: datetime) -> Change | None:
    """What happens next by the clock; None = there are no windows."""
    changes = []
    for window in windows:
        changes.append(Change(following(window.start, window.timezone, now), window, begins=True))
        if window.end is not None:
            changes.append(Change(following(window.end, window.timezone, now), window, begins=False))
    return _first(changes)


def _first(changes: Iterable[Change]) -> Change | None:
    return min(changes, key=lambda change: (change.at.astimezone(UTC), change.begins), default=None)


def _times(expression: str, start: datetime, *, reverse: bool) -> "CronSim":
    from cronsim import CronSim

    return CronSim(expression, start, reverse=reverse)
