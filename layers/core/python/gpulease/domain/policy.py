"""What a lease's owner wants to happen by itself: idle, unreachable, long paused, windows, limits of time and money.

A policy is given with the request and may be changed while the lease lives; nothing else writes it. Durations are in
seconds, money in US dollars. Whether and when something is due is decided in `domain/idle.py` and `domain/windows.py`.
"""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field, ValidationInfo, model_validator

from gpulease.domain.model import STORED, Model, Usd

MINUTE, HOUR, DAY = 60, 3600, 86400
MAX_SECONDS = 366 * DAY


def in_words(seconds: int) -> str:
    """`90 seconds`, `2 minutes`, `366 days`."""
    for size, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {name}{'' if seconds == size else 's'}"
    return f"{seconds} seconds"


class Then(StrEnum):
    """What follows a limit."""

    PAUSE = "pause"
    """Stop the bill and keep what the provider can keep: the stopped machine, or its cache (law 11)."""
    RELEASE = "release"


class Signal(StrEnum):
    """What counts as use of a machine. Any one of them keeps it."""

    GPU = "gpu"
    """Utilisation above a few per cent, or a process that holds a GPU and computes."""
    SSH = "ssh"
    """A session with a terminal."""
    CONNECTIONS = "connections"
    """Established connections to a port that something of the user's listens on."""
    BUSY = "busy"
    """The user's own word: `gpulease-busy COMMAND`, or a touched file."""


class Capacity(StrEnum):
    """What a resume does when its stopped machine cannot be started for lack of capacity."""

    WAIT = "wait"
    """Go back to `paused`; nothing is deleted and nothing is made elsewhere (law 12)."""
    REPLACE = "replace"
    """A fresh machine with the lease's cache; then the stopped one is given back."""


class IdlePolicy(Model):
    """The default is on: a machine that nobody uses stops costing money."""

    enabled: bool = Field(default=True, strict=True)
    after_seconds: int = Field(default=30 * MINUTE, strict=True, ge=60, le=MAX_SECONDS)
    signals: tuple[Signal, ...] = Field(default=tuple(Signal), min_length=1)
    then: Then = Then.PAUSE


class UnreachablePolicy(Model):
    """For a machine whose agent has reported once and is silent since. Silence is not idleness (law 10)."""

    enabled: bool = Field(default=True, strict=True)
    after_seconds: int = Field(default=20 * MINUTE, strict=True, ge=120, le=MAX_SECONDS)
    then: Then = Then.PAUSE


class PausedPolicy(Model):
    release_after_seconds: int | None = Field(default=7 * DAY, strict=True, ge=60, le=MAX_SECONDS)
    """None = stays paused for ever; what is billed meanwhile is listed."""


class Keep(StrEnum):
    WARM = "warm"
    """Inside the window idleness does not count, and what was paused for idleness is resumed when it begins."""
    OFF = "off"
    """What runs when the window begins is paused, and resumed when it ends."""


class Window(Model):
    """From `start` to `end`, both cron expressions of five fields in the zone `timezone`. See `domain/windows.py`."""

    keep: Keep
    start: Annotated[str, Field(min_length=9, max_length=100)]
    end: Annotated[str, Field(min_length=9, max_length=100)] | None = None
    """None = `off` without an end: paused when it begins, and not resumed by itself."""
    timezone: str = Field(default="UTC", min_length=1, max_length=64)

    @model_validator(mode="after")
    def _makes_sense(self, info: ValidationInfo) -> "Window":
        if info.context == STORED:
            return self
        # The rules need a library that only policies with windows should have to load.
        from gpulease.domain.windows import problem

        if self.end is None and self.keep is Keep.WARM:
            raise ValueError("end: a window that keeps warm needs an end")
        if wrong := problem(self):
            raise ValueError(wrong)
        return self


class LeasePolicy(Model):
    idle: IdlePolicy = Field(default_factory=IdlePolicy)
    unreachable: UnreachablePolicy = Field(default_factory=UnreachablePolicy)
    paused: PausedPolicy = Field(default_factory=PausedPolicy)
    max_duration_seconds: int | None = Field(default=None, strict=True, ge=60, le=MAX_SECONDS)
    """From the first `running`, pauses included; then the lease is released with reason `expired`."""
    budget_usd: Usd | None = Field(default=None, gt=Decimal(0), le=Decimal(10_000_000))
    """When the lease has cost so much it is released with reason `budget`; warned at 80 %."""
    windows: tuple[Window, ...] = Field(default=(), max_length=10)
    on_no_capacity: Capacity = Capacity.WAIT

    @model_validator(mode="after")
    def _signals_once(self) -> "LeasePolicy":
        if len(set(self.idle.signals)) != len(self.idle.signals):
            raise ValueError("idle.signals: names a signal twice")
        return self
