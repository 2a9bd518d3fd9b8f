"""The simulated account itself: what lives in it, what will happen to it, and the hooks for guests.

Everything that takes time is an event at a moment of the simulator's clock. `advance` lets those happen that are due;
each sees `now` as its own moment, so it does not matter who looks when.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from gpulease_sim.aws import prices
from gpulease_sim.aws.book import Book, Entry
from gpulease_sim.aws.moto_side import MotoSide
from gpulease_sim.aws.settings import Behaviour, Settings, VolumeBehaviour
from gpulease_sim.aws.wire import ApiError, Params
from gpulease_sim.draws import Draws

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass(frozen=True)
class GuestView:
    """What a program on a simulated machine may know of it."""

    instance_id: str
    region: str
    zone: str
    instance_type: str
    spot: bool
    tags: dict[str, str]
    user_data: bytes
    public_ip: str | None
    private_ip: str | None
    boots: int
    """Which boot this is, counted from 1: cloud-init runs its scripts at the first."""
    volumes: dict[str, str]
    """Device name to id of the attached volumes."""


class Guests(Protocol):
    """Whoever plays the programs on the machines; called at the simulated moment `at`, and may call the cloud."""

    def booted(self, guest: GuestView, at: float) -> None:
        """The operating system works; user data of the first boot has been read."""

    def stopped(self, guest: GuestView, at: float) -> None:
        """The operating system ended: stop, terminate, reclaim, shutdown or a failed host."""

    def volume_attached(self, guest: GuestView, volume_id: str, device: str, at: float) -> None:
        """A volume appeared while the guest runs (those attached before are in `booted`'s view)."""

    def volume_detached(self, guest: GuestView, volume_id: str, device: str, at: float) -> None:
        """A volume disappeared while the guest runs."""

    def interruption_notice(self, guest: GuestView, at: float, ends_at: float) -> None:
        """The spot notice appeared in the instance's metadata."""


@dataclass(slots=True, eq=False)
class SpotRequest:
    """A spot instance request."""

    id: str
    region: str
    zone: str
    persistent: bool
    interruption: str
    params: Params
    """The launch, without tags and token: what a relaunch repeats."""
    tags: dict[str, str]
    created: float
    state: str = "active"
    code: str = "fulfilled"
    updated: float = 0
    instance_id: str | None = None


@dataclass(slots=True, eq=False)
class Machine:
    """An instance over time; what never changes and what users set is in moto's object."""

    id: str
    number: int
    region: str
    zone: str
    type: str
    moto: Any
    reservation_id: str
    behaviour: Behaviour
    draws: Draws
    created: float
    tags: dict[str, str]
    entry: Entry
    request: SpotRequest | None = None
    state: str = "pending"
    turn: int = 0
    """Raised by every change of state; events meant for an earlier turn are void."""
    launched: float = 0
    running_since: float | None = None
    boots: int = 0
    guest_up: bool = False
    reason: tuple[str, str] | None = None
    """StateReason: code, message."""
    transition_reason: str = ""
    impaired: bool = False
    interrupted: bool = False
    """Stopped by EC2, so only EC2 starts it again."""
    notice_at: float = math.inf
    ends_at: float = math.inf
    start_failures: float = 0
    terminates_ignored: int = 0
    ended: float = math.inf
    get_from: float = 0
    """From when on calls by id find it."""
    list_from: float = 0

    def __post_init__(self) -> None:
        self.get_from = self.created + self.draws.between(self.behaviour.get_lag_seconds, "get lag")
        self.list_from = self.created + self.draws.between(self.behaviour.list_lag_seconds, "list lag")

    @property
    def spot(self) -> bool:
        return self.request is not None

    @property
    def live(self) -> bool:
        return self.state in ("pending", "running", "stopping", "stopped")

    @property
    def public_ip(self) -> str | None:
        found: str | None = self.moto.nics[0].public_ip if self.state in ("running", "stopping", "stopped") else None
        return found


@dataclass(slots=True, eq=False)
class Disk:
    """An EBS volume over time."""

    id: str
    number: int
    region: str
    zone: str
    moto: Any
    behaviour: VolumeBehaviour
    draws: Draws
    created: float
    tags: dict[str, str]
    entry: Entry
    state: str = "creating"
    machine: Machine | None = None
    device: str = ""
    attachment: str = ""
    """attaching, attached, detaching or busy; empty without one."""
    attached_at: float = 0
    attachments: int = 0
    mounted: bool = False
    turn: int = 0
    get_from: float = 0
    list_from: float = 0

    def __post_init__(self) -> None:
        self.get_from = self.created + self.draws.between(self.behaviour.get_lag_seconds, "get lag")
        self.list_from = self.created + self.draws.between(self.behaviour.list_lag_seconds, "list lag")


@dataclass(slots=True)
class Token:
    """What an idempotency token was used for."""

    params: str
    ids: list[str] = field(default_factory=list)


class Account:
    """The state; operations are functions in `instances`, `spots`, `volumes` and `others`."""

    def __init__(self, clock: Callable[[], float], seed: int, settings: Settings) -> None:
        self.clock = clock
        self.seed = seed
        self.settings = settings
        self.now = clock()
        self.moto = MotoSide(lambda: self.now, seed, tuple(settings.image_parameters.values()), settings.account_id)
        self.book = Book(clock)
        self.machines: dict[str, Machine] = {}
        self.disks: dict[str, Disk] = {}
        self.requests: dict[str, SpotRequest] = {}
        self.tokens: dict[tuple[str, ...], Token] = {}
        self.guests: list[Guests] = []
        self._numbers = {kind: itertools.count(1) for kind in ("instance", "volume", "request", "draw")}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._in_event = False

    # --- time ---

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Something happens then; never, if that is infinite."""
        if not math.isinf(when):
            heapq.heappush(self._events, (max(when, self.now), next(self._sequence), action))

    def next_event(self) -> float | None:
        """When the next thing happens by itself."""
        return self._events[0][0] if self._events else None

    def advance(self) -> None:
        """Let happen what is due. A call that a hook makes happens at the hook's moment, and what is due after it."""
        if self._in_event:
            return
        until = self.clock()
        self._in_event = True
        try:
            while self._events and self._events[0][0] <= until:
                when, _, action = heapq.heappop(self._events)
                self.now = max(self.now, when)
                action()
        finally:
            self._in_event = False
        self.now = max(self.now, until)

    # --- numbers and luck ---

    def number(self, kind: str) -> int:
        """The next number of that kind, from 1."""
        return next(self._numbers[kind])

    def draws(self, kind: str, number: int) -> Draws:
        """The luck of one object."""
        return Draws(self.seed, f"{kind}/{number}")

    def happens(self, probability: float) -> bool:
        """Luck of a call."""
        return probability > 0 and Draws(self.seed, f"call/{self.number('draw')}").happens(probability, "luck")

    # --- finding ---

    def machine(self, region: str, instance_id: str) -> Machine:
        """The instance as calls by id see it. Raises InvalidInstanceID.NotFound or .Malformed."""
        if not instance_id.startswith("i-"):
            raise ApiError("InvalidInstanceID.Malformed", id=instance_id)
        found = self.machines.get(instance_id)
        if found is None or found.region != region or self.now < found.get_from:
            raise ApiError("InvalidInstanceID.NotFound", id=instance_id)
        return found

    def disk(self, region: str, volume_id: str) -> Disk:
        """The volume as calls by id see it. Raises InvalidVolume.NotFound."""
        found = self.disks.get(volume_id)
        if found is None or found.region != region or self.now < found.get_from:
            raise ApiError("InvalidVolume.NotFound", id=volume_id)
        return found

    def machines_of(self, region: str) -> list[Machine]:
        """All instances of a region, oldest first."""
        return [each for each in self.machines.values() if each.region == region]

    # --- money ---

    def on_demand(self, type_: str, region: str) -> Decimal:
        """US dollars per hour of compute."""
        price = self.settings.hourly_usd.get(type_) or prices.HOURLY.get(type_, prices.OTHER)
        return price * prices.factor(region)

    def spot(self, type_: str, zone: str) -> Decimal:
        """The same of a spot instance, now."""
        told = self.settings.spot_usd.get(f"{zone}/{type_}")
        return told if told is not None else self.on_demand(type_, zone[:-1]) * prices.SPOT_SHARE

    def hourly(self, machine: Machine) -> Decimal:
        """What an instance costs while it runs, with its public address."""
        price = self.spot(machine.type, machine.zone) if machine.spot else self.on_demand(machine.type, machine.region)
        return price + (prices.ADDRESS_HOUR if machine.moto.nics[0].public_ip_auto_assign else Decimal(0))

    # --- guests ---

    def view(self, machine: Machine) -> GuestView:
        """The machine as seen from within."""
        import base64

        return GuestView(
            machine.id,
            machine.region,
            machine.zone,
            machine.type,
            machine.spot,
            dict(machine.tags),
            base64.b64decode(machine.entry.user_data),
            machine.public_ip,
            machine.moto.private_ip,
            machine.boots,
            {disk.device: disk.id for disk in self.disks_of(machine) if disk.attachment in ("attached", "busy")},
        )

    def disks_of(self, machine: Machine) -> list[Disk]:
        """Volumes that are attached or on their way, by moto's own list of the instance."""
        found = (self.disks.get(each.volume_id) for each in machine.moto.block_device_mapping.values())
        return [disk for disk in found if disk is not None]

    def guest_ends(self, machine: Machine) -> None:
        """The operating system is gone."""
        if machine.guest_up:
            machine.guest_up = False
            seen = self.view(machine)
            for each in self.disks_of(machine):
                each.mounted = False
            for guests in list(self.guests):
                guests.stopped(seen, self.now)
