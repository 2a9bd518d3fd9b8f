"""The simulator's own record of everything that was ever paid for, independent of any client's ledger.

Entries are never removed. Times are seconds of the simulator's clock and may lie in the future (a machine whose boot or
destruction is already drawn); views hide what has not happened yet.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from gpulease_sim.books import BookOf

HOUR = 3600


@dataclass(slots=True)
class Entry:
    """One object: `kind` is instance, bare_metal, vpc, reserved_ip, snapshot, block, block_snapshot or vfs."""

    kind: str
    id: str
    label: str
    region: str
    plan: str | None
    tags: tuple[str, ...]
    created: float
    active_from: float
    destroyed_from: float
    rates: list[tuple[float, Decimal, Decimal]]
    """(from, USD per started hour, at most USD per calendar month), oldest first."""
    user_data: str = ""


@dataclass(frozen=True, slots=True)
class BookObject:
    """An entry as of one moment."""

    kind: str
    id: str
    label: str
    region: str
    plan: str | None
    tags: tuple[str, ...]
    created: float
    active: float | None
    """First moment a GET would show it active; None before, and for ever if it never came."""
    destroyed: float | None
    """When billing stopped, None until then."""
    hourly_usd: Decimal
    cost_usd: Decimal
    user_data: str = field(repr=False, default="")

    @property
    def user_data_bytes(self) -> bytes:
        """What the machine's first boot gets to read."""
        return base64.b64decode(self.user_data)

    @property
    def markers(self) -> tuple[str, ...]:
        """Owner markers in the tags or, where there are none, in the label."""
        return tuple(text for text in (*self.tags, self.label) if text.startswith("gpulease:"))


def _view(entry: Entry, at: float) -> BookObject:
    hourly = next((rate for since, rate, _ in reversed(entry.rates) if since <= at), entry.rates[0][1])
    return BookObject(
        kind=entry.kind,
        id=entry.id,
        label=entry.label,
        region=entry.region,
        plan=entry.plan,
        tags=entry.tags,
        created=entry.created,
        active=entry.active_from if entry.active_from <= min(at, entry.destroyed_from) else None,
        destroyed=entry.destroyed_from if entry.destroyed_from <= at else None,
        hourly_usd=hourly,
        cost_usd=cost_of(entry, at),
        user_data=entry.user_data,
    )


class Book(BookOf[Entry, BookObject]):
    """All entries of one account."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, _view)


def cost_of(entry: Entry, at: float) -> Decimal:
    """USD for one object until `at`: started hours, at least one, no calendar month (UTC) above its price."""
    if at < entry.created or not any(rate for _, rate, _ in entry.rates):
        return Decimal(0)
    end = min(at, entry.destroyed_from)
    hours = max(1, -int((entry.created - end) // HOUR))
    total = month_total = Decimal(0)
    month: tuple[int, int] | None = None
    rates = list(entry.rates)
    _, rate, cap = rates.pop(0)
    hour = 0
    while hour < hours:
        start = entry.created + hour * HOUR
        while rates and rates[0][0] <= start:
            _, rate, cap = rates.pop(0)
        when = datetime.fromtimestamp(start, UTC)
        if (when.year, when.month) != month:
            total += month_total
            month, month_total = (when.year, when.month), Decimal(0)
        month_total = min(month_total + rate, max(cap, month_total))
        hour += 1
    return total + month_total
