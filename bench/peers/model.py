"""What is measured, in one shape for every product, and kept as JSON.

Times are real seconds unless a name says otherwise. Nothing here measures.
"""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Spread:
    """Of some repetitions."""

    median: float
    min: float
    max: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Rounded to hundredths. `values`: at least one."""
        return cls(round(statistics.median(values), 2), round(min(values), 2), round(max(values), 2), len(values))


@dataclass(frozen=True)
class Taken:
    """When a measurement began, and how many processes wanted to run in the minute before (on how many cores)."""

    at: datetime
    load: float
    cores: int

    @classmethod
    def now(cls) -> "Taken":
        """This moment."""
        return cls(datetime.now(UTC).replace(microsecond=0), round(os.getloadavg()[0], 1), os.cpu_count() or 1)


@dataclass(frozen=True)
class Ready:
    """From the provider's `active` to what the user is shown as usable; `how`: what was asked for."""

    taken: Taken
    how: str
    ask_to_create_seconds: Spread
    active_to_running_seconds: Spread


@dataclass(frozen=True)
class Idle:
    """The control plane with nothing rented, from 30 s after its start on; the start with an empty folder."""

    taken: Taken
    start_seconds: float
    rss_mib: Spread
    cpu_seconds_per_minute: Spread


@dataclass(frozen=True)
class Left:
    """What the provider's book still has."""

    machines: int
    networks: int

    @property
    def nothing(self) -> bool:
        """Whether all is given back."""
        return not (self.machines or self.networks)


@dataclass(frozen=True)
class Situation:
    """One situation, played once. `left`: when the product says it is done, or at the end of the watch."""

    key: str
    what: str
    created: int
    left: Left
    shown_before: str
    shown_after: str
    ended_after_seconds: float | None
    """From giving back to the product saying that it is done; None: not within the watch."""
    gone_after_seconds: float | None = None
    """From giving back to the end of the last object at the provider, by its book; None: not measured, or over five
    minutes."""
    later: Left | None = None
    """After 30 simulated minutes from the request on; None: not measured."""
    shown_later: str = ""
    note: str = ""


@dataclass(frozen=True)
class Leaks:
    """All situations of one product."""

    taken: Taken
    situations: tuple[Situation, ...]

    def get(self, key: str) -> Situation | None:
        """By its letter."""
        return next((each for each in self.situations if each.key == key), None)


@dataclass(frozen=True)
class Product:
    """One control plane; None or empty: not measured."""

    name: str
    version: str = ""
    ready: tuple[Ready, ...] = ()
    idle: Idle | None = None
    leaks: Leaks | None = None


@dataclass(frozen=True)
class Results:
    """All of a run, and of the runs that it went on from."""

    machine: str
    products: tuple[Product, ...] = field(default=())

    def product(self, name: str) -> Product:
        """By name; an empty one where nothing was measured."""
        return next((each for each in self.products if each.name == name), Product(name))

    def with_product(self, product: Product) -> "Results":
        """These with that one in place of its namesake."""
        others = tuple(each for each in self.products if each.name != product.name)
        return replace(self, products=(*others, product))


_JSON = TypeAdapter(Results)


def empty() -> Results:
    """Nothing measured yet, on this computer."""
    cores = os.cpu_count() or 1
    return Results(f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}")


def read(file: Path) -> Results:
    """Raises FileNotFoundError; ValueError for another content."""
    return _JSON.validate_json(file.read_bytes())


def write(results: Results, file: Path) -> None:
    """As JSON for people and programs."""
    file.write_bytes(_JSON.dump_json(results, indent=2) + b"\n")
