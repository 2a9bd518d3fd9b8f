"""The situations in which tools of this field leave something behind, played with gpulease.

Each has a new simulator, a new data folder and true speed, like the harness of the other product. Afterwards simulator
and server are restarted with a clock that runs fast, until 30 minutes have passed since the request: what is left then
is what a user would pay for who never looks again. "Destroy refused" lasts so long that it runs on that clock alone.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

from bench.peers.local import Local
from bench.peers.model import Situation
from bench.peers.processes import TookTooLong, wait_for
from bench.peers.simulated import LOCKED, Simulated

FAST = 60.0
WATCH_SECONDS = 30 * 60.0
"""Of simulated time."""
BOOT_SECONDS = 3.0
_RUNNING_SECONDS = 600.0
_RELEASED_SECONDS = 600.0
_BOOK_SECONDS = 300.0
_FIVE_HUNDRED_SECONDS = 75.0
_REFUSED_SECONDS = 20 * 60.0
"""Of simulated time; the other product's harness watches until it ends the row, which it does after 15 minutes."""
_LATE_ANSWER_SECONDS = 60.0
"""gpulease waits 55 s for the answer to a create call."""
_CREATES = {"method": "POST", "path": "/(instances|bare-metals)", "execute": True}


@dataclass(frozen=True)
class World:
    """Simulator and server of one situation, and when it began (monotonic)."""

    provider: Simulated
    product: Local
    began: float

    def run_fast(self) -> None:
        """Both anew, on a clock that runs fast."""
        self.product.end()
        self.provider.restart(FAST)
        self.product.start()


@contextmanager
def fresh_world() -> Iterator[World]:
    """A new simulator and a new server without any data."""
    with tempfile.TemporaryDirectory(prefix="gpulease-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with Simulated(folder) as provider:
            provider.boot_takes(BOOT_SECONDS)
            with Local(folder, provider.url) as product:
                yield World(provider, product, time.monotonic())


def names(*, long: bool) -> tuple[str, ...]:
    """The letters of the situations, in order."""
    return tuple(key for key in _SITUATIONS if long or key not in _LONG)


def play(key: str) -> Situation:
    """One situation from beginning to end."""
    what, situation = _SITUATIONS[key]
    with fresh_world() as world:
        played = replace(situation(world), key=key, what=what)
        return played if played.later is not None else _half_an_hour_later(world, played)


def _half_an_hour_later(world: World, played: Situation) -> Situation:
    passed = time.monotonic() - world.began
    world.run_fast()
    time.sleep(max(0.0, WATCH_SECONDS - passed) / FAST)
    return replace(played, later=world.provider.left(), shown_later=world.product.shown().states)


def _given_back(world: World, limit_seconds: float = _RELEASED_SECONDS) -> Situation:
    before = world.product.shown()
    asked = time.time()
    ended = world.product.give_back(limit_seconds)
    left, after = world.provider.left(), world.product.shown()
    return Situation(
        key="",
        what="",
        created=len(world.provider.machines()),
        left=left,
        shown_before=before.states,
        shown_after=after.states,
        ended_after_seconds=ended,
        gone_after_seconds=_gone_after(world, asked) if ended is not None else None,
        note=before.warnings,
    )


def _gone_after(world: World, asked: float) -> float | None:
    """By the book. A network that leases share may end a little later than they do."""
    try:
        wait_for("the book closed", lambda: world.provider.left().nothing, _BOOK_SECONDS)
    except TookTooLong:
        return None
    ends = [each.destroyed for each in world.provider.book() if each.destroyed is not None]
    return round(max(max(ends, default=asked) - asked, 0.0), 1)


def _up(world: World) -> None:
    world.product.ask(network=True)
    world.product.wait_running(_RUNNING_SECONDS)


def _many(world: World) -> Situation:
    """Waits until all run: only then does each of them have asked for the network."""
    # The provider's lists take a second or two; answered at once they would hide a race for the first network.
    world.provider.set_faults({"method": "GET", "path": "/vpcs", "execute": True, "delay_seconds": 1})
    world.product.ask(network=True, count=40)
    wait_for(
        "40 leases running",
        lambda: all(each.state in ("running", "released") for each in world.product.leases()),
        _RUNNING_SECONDS,
        1,
    )
    world.provider.set_faults()
    made = sum(not each.machine for each in world.provider.book())
    return replace(_given_back(world), note=f"networks ever made: {made}")


def _lost_answers(answer: Mapping[str, Any], watch_seconds: float) -> Callable[[World], Situation]:
    def played(world: World) -> Situation:
        world.provider.set_faults({**_CREATES, **answer})
        world.product.ask(network=True)
        time.sleep(watch_seconds)
        world.provider.set_faults()
        return _given_back(world)

    return played


def _cut_off(how: Signals) -> Callable[[World], Situation]:
    def played(world: World) -> Situation:
        world.provider.set_faults({**_CREATES, "delay_seconds": 6})
        world.product.ask(network=True)
        wait_for("the create call", lambda: bool(world.provider.machines()), 60)
        time.sleep(0.5)
        world.product.end(how)
        world.provider.set_faults()
        world.product.start()
        world.product.wait_running(_RUNNING_SECONDS)
        return _given_back(world)

    return played


def _deleted_by_hand(world: World) -> Situation:
    _up(world)
    world.provider.delete_by_hand()
    return _given_back(world)


def _deleted_unnoticed(world: World) -> Situation:
    """Nobody gives anything back: does the product find out?"""
    _up(world)
    world.provider.delete_by_hand()
    shown = world.product.shown().states
    played = Situation("", "", len(world.provider.machines()), world.provider.left(), shown, shown, None)
    return _half_an_hour_later(world, played)


def _destroy_refused(world: World) -> Situation:
    _up(world)
    world.run_fast()
    answer = {"method": "DELETE", "execute": False, "status": 500, "error": LOCKED}
    world.provider.set_faults(*({**answer, "path": path} for path in world.provider.paths_left()))
    began = time.monotonic()
    played = _given_back(world, _REFUSED_SECONDS / FAST)
    billed = world.product.shown().billed
    alarms = [line for line in world.product.said() if line.startswith("ALARM")]
    world.provider.set_faults()
    mended = time.monotonic()
    wait_for("released", lambda: all(each.released for each in world.product.leases()), _RELEASED_SECONDS)
    released = (time.monotonic() - mended) * FAST
    time.sleep(max(0.0, WATCH_SECONDS / FAST - (time.monotonic() - began)))
    parts = (
        f"refused for {_REFUSED_SECONDS / 60:.0f} simulated minutes, meanwhile shown as billed: {billed}",
        *alarms[:1],
        f"released {released:.0f} simulated s after the refusals ended",
    )
    return replace(played, later=world.provider.left(), shown_later=world.product.shown().states, note="; ".join(parts))


_LONG = frozenset({"D'", "H"})
_SITUATIONS: dict[str, tuple[str, Callable[[World], Situation]]] = {
    "V": ("40 asked for at once, no network yet", _many),
    "A": ("creates carried out, answered 500", _lost_answers({"status": 500}, _FIVE_HUNDRED_SECONDS)),
    "B": (
        "create carried out, answered after the client stopped waiting",
        _lost_answers({"delay_seconds": _LATE_ANSWER_SECONDS}, _LATE_ANSWER_SECONDS + 5),
    ),
    "C": ("control plane killed (SIGKILL) during create", _cut_off(SIGKILL)),
    "F": ("control plane ended (SIGTERM) during create", _cut_off(SIGTERM)),
    "G": ("machine deleted by hand, then given back", _deleted_by_hand),
    "D'": ("every destroy refused as locked", _destroy_refused),
    "H": ("machine deleted by hand, nobody gives it back", _deleted_unnoticed),
}
