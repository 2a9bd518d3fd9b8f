"""Time and chance: the only place of this package that reads the clock, sleeps or makes something random."""

import secrets
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""
        ...

    def elapsed_seconds(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The computer's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_seconds(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def new_key() -> str:
    """A fresh Idempotency-Key, unguessable."""
    return secrets.token_hex(16)
