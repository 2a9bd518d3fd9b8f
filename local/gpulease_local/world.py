"""Clocks, pauses and ids of one computer: real, scaled or virtual, behind the ports the steps know.

Invariant: simulated time goes on over a restart. The mapping from wall time to simulated time is kept in a file, so
that machines boot and are billed while nothing runs, as they are at a real provider.
"""

import dataclasses
import json
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpulease.runtime.world import sleep

from gpulease_local.asl import EngineClock, Invoke, ScaledClock, TaskReply, VirtualClock
from gpulease_local.home import HomeRefused, write_private

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class DepsClock:
    """`ports.Clock` on a clock of the engine."""

    def __init__(self, clock: EngineClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """The engine's time, aware UTC."""
        return datetime.fromtimestamp(self._clock.time(), UTC)


class SeededIds:
    """`ports.Ids` that gives the same ids for the same seed; for simulations, never for a ledger that is kept."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"ids-{seed}")  # noqa: S311 - sameness is wanted here
        self._lock = threading.Lock()

    def lease_id(self) -> str:
        """`l-` and 12 characters."""
        with self._lock:
            return "l-" + "".join(self._random.choice(_ALPHABET) for _ in range(12))

    def token(self) -> str:
        """32 hex digits."""
        with self._lock:
            return f"{self._random.getrandbits(128):032x}"


class OpenPorts:
    """`ports.Probe` that asks a simulated cloud instead of the network."""

    def __init__(self, ssh_open: Callable[[str, int], bool]) -> None:
        self._ssh_open = ssh_open

    def tcp_open(self, address: str, port: int) -> bool:
        """Whether the simulated host accepts connections now."""
        return self._ssh_open(address, port)


def scaled_sleep(scale: float) -> Callable[[float], None]:
    """A pause of so many seconds of a clock that runs `scale` times as fast."""
    return lambda seconds: sleep(seconds / scale)


def virtual_sleep(clock: VirtualClock) -> Callable[[float], None]:
    """A pause inside a call that costs virtual time only; outside of calls only a pause of 0 is possible."""

    def pause(seconds: float) -> None:
        if seconds > 0:
            clock.spend(seconds)

    return pause


def continued_clock(file: Path, scale: float) -> ScaledClock:
    """The clock whose mapping is kept in `file`, or a new one that starts now. Raises HomeRefused for a broken file."""
    wall = ScaledClock().time()
    simulated = wall
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        origin, since, speed = (float(kept[key]) for key in ("simulated", "wall", "scale"))
        # A wall clock that was set back must not take simulated time back with it.
        simulated = origin + max(0.0, wall - since) * speed
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError) as error:
        raise HomeRefused(f"{file} is not readable as a clock: {error}") from error
    write_private(file, json.dumps({"simulated": simulated, "wall": wall, "scale": scale}) + "\n")
    return ScaledClock(scale=scale, origin=simulated)


def timed(clock: VirtualClock) -> Callable[[Invoke], Invoke]:
    """For `World.wrap_invoke`: what a call sleeps is how long it took, and the engine answers that much later."""

    def wrap(invoke: Invoke) -> Invoke:
        def call(name: str, payload: Any) -> TaskReply:
            clock.begin_call()
            try:
                reply = invoke(name, payload)
            finally:
                spent = clock.end_call()
            return dataclasses.replace(reply, duration_seconds=reply.duration_seconds + spent)

        return call

    return wrap
