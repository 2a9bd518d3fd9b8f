"""Tells a `GuestHost` what happens to the machines of the simulated account, in order and at the machines' own times.

Machines and blocks are functions of time, so what will happen is planned whenever one of them is changed, and told once
the clock has come that far (`tell`). An event that a later call made impossible is dropped with its plan.
"""

import base64
import heapq
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from gpulease_sim.guests import GuestHost, NoGuests
from gpulease_sim.vultr.gpus import gpus_of
from gpulease_sim.vultr.machines import NEVER, Machine
from gpulease_sim.vultr.storage import Block


class _Event(NamedTuple):
    at: float
    sequence: int
    owner: str
    """Id of the machine or block whose plan it belongs to."""
    plan: int
    tell: Callable[[float], None]


class GuestEvents:
    """The plans of all machines and blocks of one account."""

    def __init__(self, host: GuestHost | None = None) -> None:
        self._host = host or NoGuests()
        self._silent = isinstance(self._host, NoGuests)
        self._queue: list[_Event] = []
        self._plans: dict[str, int] = {}
        self._sequence = 0
        self._known: dict[str, None] = {}
        self._up: set[str] = set()
        self._ended: set[str] = set()
        self._volumes: dict[str, str] = {}
        """Block to the machine that was told of it."""

    def plan(self, machine: Machine, now: float) -> None:
        """A machine's future was written anew."""
        if self._silent or machine.id in self._ended:
            return
        self._known[machine.id] = None
        plan = self._new_plan(machine.id)
        for at, tell in self._future(machine, now):
            self._push(at, machine.id, plan, tell)

    def plan_block(self, block: Block, now: float) -> None:
        """A block's future was written anew."""
        if self._silent:
            return
        plan = self._new_plan(block.id)
        for hold in block.holds:
            if max(now, hold.shows_at) < hold.removed_at:
                self._push(max(now, hold.shows_at), block.id, plan, partial(self._attached, hold.instance_id, block.id))
            if now <= hold.removed_at:
                self._push(hold.removed_at, block.id, plan, partial(self._detached, hold.instance_id, block.id))

    def tell(self, now: float) -> None:
        """Pass on everything that has happened until now."""
        while self._queue and self._queue[0].at <= now:
            event = heapq.heappop(self._queue)
            if self._plans.get(event.owner) == event.plan:
                event.tell(event.at)

    def next_at(self) -> float | None:
        """When there will be something to tell; None: nothing is planned."""
        while self._queue and self._plans.get(self._queue[0].owner) != self._queue[0].plan:
            heapq.heappop(self._queue)
        return self._queue[0].at if self._queue else None

    def end_all(self, now: float) -> None:
        """The account is emptied: every machine is gone."""
        self._queue.clear()
        for machine_id in list(self._known):
            self._end(machine_id, now)

    def _new_plan(self, owner: str) -> int:
        self._plans[owner] = self._plans.get(owner, 0) + 1
        return self._plans[owner]

    def _push(self, at: float, owner: str, plan: int, tell: Callable[[float], None]) -> None:
        if at != NEVER:
            self._sequence += 1
            heapq.heappush(self._queue, _Event(at, self._sequence, owner, plan, tell))

    def _future(self, machine: Machine, now: float) -> Iterator[tuple[float, Callable[[float], None]]]:
        """What a machine will live through from now on; what is no change when its time comes is not told."""
        stop, boot = partial(self._stop, machine.id), partial(self._boot, machine)
        for each in machine.timeline:
            if each.power == "stopped" and now <= each.at < machine.gone_at:
                yield each.at, stop
        if now <= machine.ssh_at < NEVER and machine.accepts_ssh(machine.ssh_at):
            yield machine.ssh_at, boot
        elif machine.ssh_at < now and machine.accepts_ssh(now):  # it was up before this process was
            yield now, boot
        if now <= machine.destroy_requested_at:
            yield machine.destroy_requested_at, stop
        yield max(now, machine.gone_at), partial(self._end, machine.id)

    def _boot(self, machine: Machine, at: float) -> None:
        if machine.id not in self._up:
            self._up.add(machine.id)
            gpus = max(0, gpus_of(machine.plan_at(at)) - machine.behaviour.missing_gpus)
            self._host.booted(machine.id, base64.b64decode(machine.user_data), gpus, _moment(at))

    def _stop(self, machine_id: str, at: float) -> None:
        if machine_id in self._up:
            self._up.remove(machine_id)
            self._host.stopped(machine_id, _moment(at))

    def _end(self, machine_id: str, at: float) -> None:
        if machine_id in self._ended:
            return
        self._up.discard(machine_id)
        self._ended.add(machine_id)
        self._known.pop(machine_id, None)
        self._plans.pop(machine_id, None)
        self._volumes = {block: holder for block, holder in self._volumes.items() if holder != machine_id}
        self._host.ended(machine_id, _moment(at))

    def _attached(self, machine_id: str, block_id: str, at: float) -> None:
        if machine_id not in self._ended and self._volumes.get(block_id) != machine_id:
            self._volumes[block_id] = machine_id
            self._host.volume_attached(machine_id, block_id, _moment(at))

    def _detached(self, machine_id: str, block_id: str, at: float) -> None:
        if self._volumes.get(block_id) == machine_id:
            del self._volumes[block_id]
            self._host.volume_detached(machine_id, block_id, _moment(at))


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
