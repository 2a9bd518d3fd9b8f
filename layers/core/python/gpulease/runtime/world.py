"""The real clock, the real randomness, the real network probe."""

import secrets
import socket
import time
from datetime import UTC, datetime

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
PROBE_TIMEOUT_SECONDS = 3.0


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class RandomIds:
    def lease_id(self) -> str:
        return "l-" + "".join(secrets.choice(_ALPHABET) for _ in range(12))

    def token(self) -> str:
        return secrets.token_hex(16)


class TcpProbe:
    def tcp_open(self, address: str, port: int) -> bool:
        try:
            with socket.create_connection((address, port), timeout=PROBE_TIMEOUT_SECONDS):
                return True
        except OSError:
            # Refused, filtered, no route: all the same to somebody who waits for a machine to boot.
            return False


class CallWaits:
    """`ports.Waits` of a function that has a machine of its own for as long as it runs."""

    most_seconds = 90.0
    """The functions that wait have so much more time than their looks need."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def sleep(seconds: float) -> None:
    """The one blocking pause, for short retries inside a call."""
    time.sleep(seconds)


def monotonic() -> float:
    """Seconds that never go backwards, for bounds within one call."""
    return time.monotonic()
