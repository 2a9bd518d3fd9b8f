"""Agents on simulated machines, in virtual time: each reads its own user data, reports by the real protocol through the
real function, and does what it is answered.

An agent here knows what the real one knows: whether its user works (`Workload`), which volume its machine sees, that it
was restarted. It is silent when its workload says so. `guest/agent.py` is what runs on real machines; that the two
say the same things is checked where that program is tested.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpulease.domain.agent_protocol import AgentAnswer, AgentReport
from gpulease.domain.policy import Signal
from gpulease.domain.user_data import agent_config_in
from gpulease_sim.aws import GuestView

from gpulease_local.simulate.virtual_aws import GPUS
from gpulease_local.simulate.workloads import Workload

START_SECONDS = (5.0, 40.0)
"""From the end of the boot to the agent's first report."""
FLUSH_SECONDS = (1.0, 15.0)
"""To save and unmount a cache, once an agent was asked to."""
SAY_AGAIN_SECONDS = 20.0
"""After a report that did not get through; the real agent waits longer each time."""
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"

DEAD_SECONDS = 3600.0
"""After a report whose token opens nothing, as the real agent does."""
REFUSED = 401

Send = Callable[[str, Mapping[str, Any]], tuple[int, dict[str, Any]]]
"""A token and a report's body to the status and the answer."""


@dataclass
class _Guest:
    machine_id: str
    token: str
    gpus: int
    workload: Workload | None
    boots: int
    up_since: float
    volumes: set[str] = field(default_factory=set)
    flushing_until: float | None = None
    flushed: bool = False
    turn: int = 0
    """Of the present series of reports: a restart begins a new one and ends the old."""


class GuestAgents:
    """`gpulease_sim.guests.GuestHost`: the agents of all machines. `workload_of`: by the lease that a machine is for.

    `later(seconds, act)` puts something on the agenda; nothing is sent from inside a simulator's own call.
    """

    def __init__(
        self,
        *,
        seed: int,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
        send: Send,
        workload_of: Callable[[str], Workload | None] = lambda lease_id: None,
        start: float = 0.0,
        gpus_of: Callable[[str, int], int] = lambda machine_id, gpus: gpus,
        flush_seconds: tuple[float, float] = FLUSH_SECONDS,
    ) -> None:
        self._seed = seed
        self._now, self._later, self._send = now, later, send
        self._workload_of, self._start, self._gpus_of = workload_of, start, gpus_of
        self._flush_seconds = flush_seconds
        self._guests: dict[str, _Guest] = {}
        self._boots: dict[str, int] = {}
        self.reports = 0

    # --- what the simulators tell ---

    def booted(self, machine_id: str, user_data: bytes, gpus: int, at: datetime) -> None:
        """A machine with an agent in its user data begins to report."""
        try:
            config = agent_config_in(user_data)
        except (ValueError, KeyError):
            return  # somebody else's machine
        if config is None:
            return
        boots = self._boots[machine_id] = self._boots.get(machine_id, 0) + 1
        before = self._guests.get(machine_id)
        guest = _Guest(
            machine_id,
            str(config["token"]),
            self._gpus_of(machine_id, gpus),
            self._workload_of(str(config["lease_id"])),
            boots,
            at.timestamp(),
            before.volumes if before else set(),
            turn=before.turn + 1 if before else 1,
        )
        self._guests[machine_id] = guest
        pause = self._draw(guest, "start").uniform(*START_SECONDS)
        self._plan(guest, max(0.0, at.timestamp() + pause - self._now()))

    def stopped(self, machine_id: str, at: datetime) -> None:
        guest = self._guests.get(machine_id)
        if guest is not None:
            guest.turn += 1

    def ended(self, machine_id: str, at: datetime) -> None:
        self.stopped(machine_id, at)
        self._guests.pop(machine_id, None)

    def volume_attached(self, machine_id: str, volume_id: str, at: datetime) -> None:
        if machine_id in self._guests:
            self._guests[machine_id].volumes.add(volume_id)

    def volume_detached(self, machine_id: str, volume_id: str, at: datetime) -> None:
        if machine_id in self._guests:
            self._guests[machine_id].volumes.discard(volume_id)

    # --- reports ---

    def _plan(self, guest: _Guest, seconds: float) -> None:
        turn = guest.turn
        self._later(seconds, lambda: self._report(guest, turn))

    def _report(self, guest: _Guest, turn: int) -> None:
        if guest.turn != turn:
            return
        now = self._now()
        if guest.workload is not None and guest.workload.is_silent(now - self._start):
            self._plan(guest, SAY_AGAIN_SECONDS)
            return
        if guest.flushing_until is not None and now >= guest.flushing_until:
            guest.flushed = True
        self.reports += 1
        status, raw = self._send(guest.token, self._body(guest, now))
        if guest.turn != turn:
            return  # what the answer began has ended this machine
        if status != 200:
            self._plan(guest, DEAD_SECONDS if status == REFUSED else SAY_AGAIN_SECONDS)
            return
        answer = AgentAnswer.model_validate(raw)
        pause = float(answer.interval_seconds)
        if answer.flush and guest.flushing_until is None:
            takes = self._draw(guest, f"flush-{guest.turn}").uniform(*self._flush_seconds)
            guest.flushing_until = now + takes
        elif not answer.flush:
            guest.flushing_until, guest.flushed = None, False
        if guest.flushing_until is not None and not guest.flushed:
            pause = min(pause, max(0.0, guest.flushing_until - now))
        self._plan(guest, pause)

    def _body(self, guest: _Guest, now: float) -> dict[str, Any]:
        report = AgentReport(
            agent_version="simulated",
            boot_id=f"{guest.machine_id}-{guest.boots}"[:64],
            gpus=guest.gpus,
            seen_seconds_ago=self._seen(guest, now),
            host_keys=(f"{HOST_KEY}{self._draw(guest, 'key').randbytes(24).hex()}",),
            saving=guest.flushing_until is not None and not guest.flushed,
            flushed=guest.flushed,
        )
        return report.model_dump(mode="json")

    def _seen(self, guest: _Guest, now: float) -> dict[Signal, float]:
        """How long ago each signal was last there, since this boot."""
        if guest.workload is None:
            return {}
        session = guest.workload.last_session(now - self._start)
        if session is None:
            return {}
        last = min(session.end, now - self._start) + self._start
        return {session.signal: now - last} if last > guest.up_since else {}

    def _draw(self, guest: _Guest, what: str) -> random.Random:
        return random.Random(f"guest-{self._seed}-{guest.machine_id}-{guest.boots}-{what}")  # noqa: S311


class AwsGuests:
    """The same agents on the machines of a simulated AWS account, whose events carry a view of the machine."""

    def __init__(self, agents: GuestAgents) -> None:
        self._agents = agents

    def booted(self, guest: GuestView, at: float) -> None:
        """See `GuestAgents.booted`; the volumes that it sees were attached before."""
        gpus = GPUS[guest.instance_type][1] if guest.instance_type in GPUS else 0
        self._agents.booted(guest.instance_id, guest.user_data, gpus, _utc(at))
        for volume_id in guest.volumes.values():
            self._agents.volume_attached(guest.instance_id, volume_id, _utc(at))

    def stopped(self, guest: GuestView, at: float) -> None:
        self._agents.stopped(guest.instance_id, _utc(at))

    def volume_attached(self, guest: GuestView, volume_id: str, device: str, at: float) -> None:
        self._agents.volume_attached(guest.instance_id, volume_id, _utc(at))

    def volume_detached(self, guest: GuestView, volume_id: str, device: str, at: float) -> None:
        self._agents.volume_detached(guest.instance_id, volume_id, _utc(at))

    def interruption_notice(self, guest: GuestView, at: float, ends_at: float) -> None:
        """Nothing: the agent of today does not listen for it."""


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
