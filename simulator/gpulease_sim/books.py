"""A simulator's own record of everything that was ever paid for, independent of any client's ledger.

Entries are never removed. What an entry holds and how it looks at a moment is the provider's: its `view`.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Generic, Protocol, TypeVar


class Kept(Protocol):
    """What all entries have."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> float: ...


class Shown(Protocol):
    """What all entries show of a moment."""

    @property
    def destroyed(self) -> float | None: ...
    @property
    def hourly_usd(self) -> Decimal: ...
    @property
    def cost_usd(self) -> Decimal: ...


E = TypeVar("E", bound=Kept)
O = TypeVar("O", bound=Shown)  # noqa: E741 - as in Entry and Object


class BookOf(Generic[E, O]):
    """All entries of one account. `view`: an entry as of a moment."""

    def __init__(self, clock: Callable[[], float], view: Callable[[E, float], O]) -> None:
        self._clock = clock
        self._view = view
        self._entries: dict[str, E] = {}

    def add(self, entry: E) -> E:
        """Write a new object down."""
        self._entries[entry.id] = entry
        return entry

    def entry(self, object_id: str) -> E:
        """The raw entry; KeyError where the object never existed."""
        return self._entries[object_id]

    def find(self, object_id: str) -> E | None:
        """The raw entry, if the object ever existed."""
        return self._entries.get(object_id)

    def remove(self, object_id: str) -> None:
        """Strike an object that in truth was never created."""
        self._entries.pop(object_id, None)

    def __iter__(self) -> Iterator[E]:
        return iter(list(self._entries.values()))

    def objects(self, at: float | None = None) -> list[O]:
        """Everything created until then (default: now), oldest first."""
        moment = self._clock() if at is None else at
        return [self._view(entry, moment) for entry in self if entry.created <= moment]

    def billed(self, at: float | None = None, *, free: bool = True) -> list[O]:
        """What exists then; `free=False` leaves out what costs nothing at that moment."""
        return [each for each in self.objects(at) if each.destroyed is None and (free or each.hourly_usd > 0)]

    def get(self, object_id: str, at: float | None = None) -> O:
        """One object; KeyError where it never existed."""
        return self._view(self._entries[object_id], self._clock() if at is None else at)

    def cost(self, at: float | None = None) -> Decimal:
        """USD owed for everything until then."""
        return sum((each.cost_usd for each in self.objects(at)), Decimal(0))
