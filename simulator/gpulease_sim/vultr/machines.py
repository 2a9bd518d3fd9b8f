"""A simulated server (VM or bare metal) as a function of time.

A machine holds a timeline of moments at which its shown state changes. Creating it, or acting on it, writes the
future of the timeline at once from the machine's seeded draws; reading it only looks up the present. So nothing
runs in the background, and reading never changes what happens.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gpulease_sim.draws import Draws
from gpulease_sim.vultr.settings import Behaviour

NEVER = math.inf
NO_ADDRESS = "0.0.0.0"  # noqa: S104 the provider's text for "none yet"


class Moment(NamedTuple):
    """From `at` on the machine shows these three."""

    at: float
    status: str
    power: str
    server: str


@dataclass(slots=True)
class Attachment:
    """A machine's membership in a VPC, from the accepted call on."""

    vpc_id: str
    address: str
    mac: str
    added_at: float
    visible_at: float
    addressed_at: float
    removed_at: float = NEVER

    def has_address(self, now: float) -> bool:
        """Whether the membership shows and is complete."""
        return self.shows(now) and now >= self.addressed_at

    def shown_address(self, now: float) -> str:
        """The private address; a membership can be listed before it has one."""
        return self.address if now >= self.addressed_at else NO_ADDRESS

    def shows(self, now: float) -> bool:
        """Whether the machine's list of VPCs has it."""
        return self.visible_at <= now < self.removed_at


@dataclass(slots=True)
class Machine:
    """One server; times are seconds of the simulator's clock."""

    id: str
    number: int
    metal: bool
    region: str
    plan: str
    created: float
    label: str
    hostname: str
    tags: tuple[str, ...]
    os_id: int
    os: str
    app_id: int
    image_id: str
    snapshot_id: str
    address: str
    mac: str
    password: str
    user_data: str
    ssh_key_ids: tuple[str, ...]
    script_id: str
    firewall_group_id: str
    user_scheme: str
    vpc_only: bool
    ipv6: bool
    backups: bool
    mdisk_mode: str
    behaviour: Behaviour
    seed: int
    timeline: list[Moment] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    address_at: float = 0
    locked_until: float = 0
    ssh_at: float = NEVER
    listed_at: float = 0
    readable_at: float = 0
    destroy_requested_at: float = NEVER
    gone_at: float = NEVER
    delisted_at: float = NEVER
    counted_until: float = NEVER
    vpc_held_until: float = NEVER
    destroying_get_fails: bool = False
    deletes_seen: int = 0
    refused_deletes: int = 0
    attach_calls: int = 0
    actions: int = 0
    plan_change: tuple[float, str] | None = None

    @property
    def draws(self) -> Draws:
        """The seeded values of this machine."""
        return Draws(self.seed, f"machine-{self.number}")

    def schedule_boot(self) -> None:
        """Write the whole boot, from the create call on."""
        b, draws, now = self.behaviour, self.draws, self.created
        active = now + draws.between(b.active_seconds, "active")
        if b.stuck == "pending":
            active = NEVER
        self.timeline = [Moment(now, "pending", "running", "none")]
        self.address_at = active
        if self.metal and active != NEVER:
            self.address_at = now + (active - now) * (0.5 + draws.unit("address") / 2)
        self._schedule_installation(active, "boot")
        suspended = now + draws.between(b.suspend_after_seconds, "suspended")
        if suspended != NEVER:
            self.timeline = [each for each in self.timeline if each.at < suspended]
            self.timeline.append(Moment(suspended, "suspended", "stopped", "ok"))
        self.listed_at = now + draws.between(b.list_lag_seconds, "list-lag")
        self.readable_at = now + draws.between(b.get_lag_seconds, "get-lag")
        vanish = now + draws.between(b.vanish_after_seconds, "vanish")
        if vanish != NEVER:
            self.end(vanish)

    def moment(self, now: float) -> Moment:
        """The state shown at `now`."""
        timeline = self.timeline
        current = timeline[0]
        for each in timeline:
            if each.at > now:
                break
            current = each
        return current

    def plan_at(self, now: float) -> str:
        """Id of the plan it is on, after an upgrade of the new one."""
        return self.plan_change[1] if self.plan_change is not None and self.plan_change[0] <= now else self.plan

    def active_at(self) -> float:
        """First moment a read by id shows `status: active`; infinite where that never comes."""
        for each in self.timeline:
            if each.status == "active":
                first = max(each.at, self.readable_at)
                return first if first < self.gone_at else NEVER
        return NEVER

    def is_pending(self, now: float) -> bool:
        """Still being set up."""
        return self.moment(now).status == "pending"

    def is_locked(self, now: float) -> bool:
        """Whether calls that change the machine are refused as locked; can outlast the shown state."""
        moment = self.moment(now)
        return moment.server == "locked" or (moment.status != "pending" and now < self.locked_until)

    def is_gone(self, now: float) -> bool:
        """No longer exists and no longer costs."""
        return now >= self.gone_at

    def is_destroying(self, now: float) -> bool:
        """A delete was accepted and has not finished."""
        return self.destroy_requested_at <= now < self.gone_at

    def shown_address(self, now: float) -> str:
        """`main_ip`."""
        if self.vpc_only or self.behaviour.no_address or now < self.address_at:
            return "" if self.metal else NO_ADDRESS
        return self.address

    def accepts_ssh(self, now: float) -> bool:
        """Whether the host accepts TCP on its SSH port."""
        return self.ssh_at <= now < min(self.gone_at, self.destroy_requested_at) and self.moment(now).power != "stopped"

    def halt(self, now: float) -> None:
        """Cut the power; the state follows later, the bill goes on."""
        at = now + self._action_delay("halt")
        self._rewrite(now, [Moment(at, "active", "stopped", "ok")])

    def start(self, now: float) -> None:
        """Power on; a running machine stays as it is."""
        if self.moment(now).power == "running" and self.timeline[-1].power == "running":
            return
        at = now + self._action_delay("start")
        self._rewrite(now, [Moment(at, "active", "running", "ok")])
        self.ssh_at = at + self._ssh_delay()

    def reboot(self, now: float) -> None:
        """Power off and on."""
        down = now + self._action_delay("reboot-down")
        up = down + self._action_delay("reboot-up")
        self._rewrite(now, [Moment(down, "active", "stopped", "ok"), Moment(up, "active", "running", "ok")])
        self.ssh_at = up + self._ssh_delay()

    def reinstall(self, now: float) -> None:
        """Lock the machine and go through the installation again."""
        self.actions += 1
        self._rewrite(now, [])
        self._schedule_installation(now, f"reinstall-{self.actions}")

    def request_destruction(self, now: float) -> None:
        """Accept a delete."""
        self.destroy_requested_at = now
        if self.behaviour.stuck == "destruction":
            return
        self.end(now + self.draws.between(self.behaviour.destruction_seconds, "destruction"))
        self.destroying_get_fails = self.draws.happens(
            self.behaviour.destruction_get_error_probability, "destruction-get"
        )

    def end(self, at: float) -> None:
        """The machine is gone from `at` on; what it held is let go some time later."""
        b, draws, at = self.behaviour, self.draws, min(at, self.gone_at)
        slow = draws.happens(b.slow_vpc_hold_probability, "vpc-hold-slow")
        hold = b.slow_vpc_hold_seconds if slow else b.vpc_hold_seconds
        self.gone_at = at
        self.delisted_at = at + draws.between(b.ghost_seconds, "ghost")
        self.counted_until = at + draws.between(b.quota_hold_seconds, "quota-hold")
        self.vpc_held_until = at + draws.between(hold, "vpc-hold")

    def _schedule_installation(self, active: float, name: str) -> None:
        b, draws = self.behaviour, self.draws
        if active == NEVER:
            return
        slow = draws.happens(b.slow_ok_probability, f"{name}-ok-slow")
        ok = active + draws.between(b.slow_ok_seconds if slow else b.ok_seconds, f"{name}-ok")
        unlocked = active + draws.between(b.locked_seconds, f"{name}-locked")
        if b.stuck == "installingbooting":
            ok = NEVER
        unlocked = min(unlocked, ok)
        if unlocked > active:
            self.timeline.append(Moment(active, "active", "stopped", "locked"))
        if ok > unlocked:
            self.timeline.append(Moment(unlocked, "active", "running", "installingbooting"))
        if ok != NEVER:
            self.timeline.append(Moment(ok, "active", "running", "ok"))
        self.locked_until = unlocked + draws.between(b.lock_tail_seconds, f"{name}-lock-tail")
        self.ssh_at = ok + draws.between(b.ssh_seconds, f"{name}-ssh")

    def _rewrite(self, now: float, future: list[Moment]) -> None:
        self.timeline = [each for each in self.timeline if each.at <= now] + future

    def _action_delay(self, name: str) -> float:
        self.actions += 1
        return self.draws.between(self.behaviour.restart_seconds, f"{name}-{self.actions}")

    def _ssh_delay(self) -> float:
        return self.draws.between(self.behaviour.ssh_seconds, f"ssh-{self.actions}")
