"""The simulated providers behind one view: what exists and is billed by their own books, who has what, and what is done
to them past gpulease. Nothing above this module asks which provider it is.

Invariant: everything here is read past all lag, faults and adapters.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

Spans = tuple[tuple[float, float | None], ...]
MACHINE, NETWORK, VOLUME, OTHER = "machine", "network", "volume", "other"


class Source(Protocol):
    """The book's own entry, which goes on changing."""

    def destroyed_from(self) -> float:
        """When it was (or will be) gone for good; infinite = nobody knows."""
        ...

    def is_billed(self, now: float) -> bool:
        """Whether it costs money at that moment. A stopped machine's compute does not."""
        ...

    def spans(self, now: float) -> Spans:
        """(from, to) of each time in which it was billed; None = still."""
        ...

    def cost_usd(self, now: float) -> Decimal: ...

    def usd_per_hour(self) -> Decimal:
        """The most that it ever cost."""
        ...


@dataclass(frozen=True, slots=True)
class Thing:
    """One object that a provider's book knows. `kind` is the provider's word, `role` ours."""

    provider: str
    kind: str
    role: str
    id: str
    region: str
    plan: str
    markers: tuple[str, ...]
    created: float
    source: Source
    part_of: str = ""
    """Marker of the machine whose launch made it and whose end ends it: it needs no row of its own."""

    @property
    def destroyed_from(self) -> float:
        """See `Source.destroyed_from`."""
        return self.source.destroyed_from()

    def exists(self, now: float) -> bool:
        """Whether it is there at that moment, shown or not."""
        return self.created <= now < self.destroyed_from


class Cloud(Protocol):
    """One simulated account."""

    @property
    def name(self) -> str: ...

    @property
    def regions(self) -> tuple[str, ...]: ...

    def things(self) -> Sequence[Thing]:
        """Everything that ever was, oldest first."""
        ...

    def fresh(self) -> Sequence[Thing]:
        """What was made since the last call."""
        ...

    def find(self, thing_id: str) -> Thing | None: ...

    def members(self, network_id: str) -> list[str]:
        """Ids of the machines that exist and are in this network."""
        ...

    def user_of(self, volume_id: str) -> str:
        """Id of the machine that exists and has this volume, shown or not yet; empty = none."""
        ...

    def ready_at(self, machine_id: str) -> float | None:
        """When it accepts its user, by its nature; infinite = never, None = no such machine."""
        ...

    def ended_for(self, machine_id: str) -> str:
        """Why it came to nothing by itself, as a lease's reason; empty = it did not."""
        ...

    def remove_by_hand(self, thing_id: str) -> None:
        """Its owner deletes it in the console."""
        ...

    def strangers(self, deployment: str) -> list[str]:
        """Put things there that are none of ours, however much they look like it; their ids."""
        ...

    def plant(self, like: Thing, marker: str) -> str:
        """A machine with our marker that nobody asked for, in the place of another; its id."""
        ...

    def darken(self, since: float, until: float, region: str) -> None:
        """No call is answered in that time; empty region = anywhere."""
        ...

    def reword(self, reworded: bool) -> None:
        """All texts in other words, or in the usual ones."""
        ...

    def calls(self) -> int:
        """How many calls it was asked."""
        ...

    def log_lines(self) -> Iterable[str]:
        """The book, for digests."""
        ...


class Clouds:
    """All accounts of a run as one."""

    def __init__(self, *clouds: Cloud) -> None:
        self._clouds = clouds

    def __iter__(self) -> Iterator[Cloud]:
        return iter(self._clouds)

    def things(self) -> list[Thing]:
        """Everything that ever was, oldest first by account."""
        return [thing for cloud in self._clouds for thing in cloud.things()]

    def fresh(self) -> list[Thing]:
        """What was made since the last call."""
        return [thing for cloud in self._clouds for thing in cloud.fresh()]

    def find(self, thing_id: str) -> Thing | None:
        """None = never existed."""
        return next((found for cloud in self._clouds if (found := cloud.find(thing_id)) is not None), None)

    def created_at(self, thing_id: str) -> float | None:
        """When it was made."""
        found = self.find(thing_id)
        return found.created if found is not None else None

    def of(self, thing_id: str) -> Cloud | None:
        """The account that has, or had, this thing."""
        return next((cloud for cloud in self._clouds if cloud.find(thing_id) is not None), None)

    def named(self, name: str) -> Cloud:
        """Raises StopIteration."""
        return next(cloud for cloud in self._clouds if cloud.name == name)

    def members(self, network_id: str) -> list[str]:
        """See `Cloud.members`."""
        return [each for cloud in self._clouds for each in cloud.members(network_id)]

    def user_of(self, volume_id: str) -> str:
        """See `Cloud.user_of`."""
        return next((found for cloud in self._clouds if (found := cloud.user_of(volume_id))), "")

    def parts_of(self, marker: str) -> list[Thing]:
        """What was made with the machine of this marker."""
        return [thing for cloud in self._clouds for thing in cloud.things() if thing.part_of == marker]


def markers_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Those that look like a marker of gpulease's."""
    return tuple(text for text in texts if text.startswith("gpulease:"))
