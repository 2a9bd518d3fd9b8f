"""The simulator's own record of everything that was ever paid for, independent of moto and of any client's ledger.

Entries are never removed. An instance is billed per second while `running`, at least 60 s per start; `stopping` and
later are free. Volumes and snapshots are billed per GB-month (of 730 hours) by the second, addresses by the second.
"""

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from gpulease_sim.books import BookOf

MINIMUM_SECONDS = 60
_HOUR = Decimal(3600)
_EXACT = Decimal("0.000001")


@dataclass(slots=True)
class Span:
    """A time with one price."""

    start: float
    usd_per_hour: Decimal
    end: float = math.inf
    minimum_seconds: float = 0


@dataclass(slots=True)
class Entry:
    """One object: `kind` is instance, volume, address, spot_request or snapshot."""

    kind: str
    id: str
    region: str
    zone: str
    type: str
    tags: Mapping[str, str]
    """The object's own, so that it shows what was tagged later."""
    created: float
    destroyed: float = math.inf
    spans: list[Span] = field(default_factory=list)
    user_data: str = ""
    size_gb: int = 0
    spot: bool = False

    def begin(self, at: float, usd_per_hour: Decimal, minimum_seconds: float = 0) -> None:
        """A price holds from now on; the one before it ends."""
        self.end(at)
        self.spans.append(Span(at, usd_per_hour, minimum_seconds=minimum_seconds))

    def end(self, at: float) -> None:
        """Nothing is billed from now on."""
        if self.spans and self.spans[-1].end > at:
            self.spans[-1].end = at

    def destroy(self, at: float) -> None:
        """It is gone."""
        self.end(at)
        self.destroyed = min(self.destroyed, at)


@dataclass(frozen=True, slots=True)
class BookObject:
    """An entry as of one moment."""

    kind: str
    id: str
    region: str
    zone: str
    type: str
    tags: Mapping[str, str]
    created: float
    active: float | None
    """When it was first billed."""
    destroyed: float | None
    """When it was gone for good, None until then."""
    hourly_usd: Decimal
    """What it costs now: 0 for a stopped instance."""
    cost_usd: Decimal
    running: tuple[tuple[float, float | None], ...]
    """(from, to) of each time in which it was billed; `to` is None while that goes on."""
    size_gb: int
    spot: bool
    user_data: str = field(repr=False, default="")

    @property
    def user_data_bytes(self) -> bytes:
        """What the first boot gets to read."""
        return base64.b64decode(self.user_data)

    @property
    def markers(self) -> tuple[str, ...]:
        """Owner markers in the tags' values."""
        return tuple(value for value in self.tags.values() if value.startswith("gpulease:"))


def _view(entry: Entry, at: float) -> BookObject:
    spans = [span for span in entry.spans if span.start <= at]
    now = spans[-1].usd_per_hour if spans and spans[-1].end > at else Decimal(0)
    return BookObject(
        kind=entry.kind,
        id=entry.id,
        region=entry.region,
        zone=entry.zone,
        type=entry.type,
        tags=dict(entry.tags),
        created=entry.created,
        active=spans[0].start if spans else None,
        destroyed=entry.destroyed if entry.destroyed <= at else None,
        hourly_usd=now,
        cost_usd=sum((_cost(span, at) for span in spans), Decimal(0)).quantize(_EXACT),
        running=tuple((span.start, span.end if span.end <= at else None) for span in spans),
        size_gb=entry.size_gb,
        spot=entry.spot,
        user_data=entry.user_data,
    )


class Book(BookOf[Entry, BookObject]):
    """All entries of one account."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, _view)


def _cost(span: Span, at: float) -> Decimal:
    seconds = max(min(span.end, at) - span.start, span.minimum_seconds)
    return Decimal(str(seconds)) * span.usd_per_hour / _HOUR
