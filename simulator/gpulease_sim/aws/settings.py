"""Everything about the simulated EC2 account that a test or a simulation may set.

Defaults are what has been measured or reported of the real provider. Ranges are (low, high) in seconds of the
simulator's clock; a value is drawn once per machine or volume from the seed and its number. `math.inf` means never.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from gpulease_sim.draws import Range

NEVER: Range = (math.inf, math.inf)


@dataclass(frozen=True)
class Behaviour:
    """How one instance behaves; drawn from when it is launched."""

    running_seconds: Range = (5, 40)
    """From launch (or start) to `running`."""
    ok_seconds: Range = (60, 240)
    """From `running` until both status checks say `ok`; `inf`: they stay `initializing`."""
    impaired: bool = False
    """The checks end in `impaired` instead."""
    guest_boot_seconds: Range = (10, 45)
    """From `running` until the guest works: hooks are told `booted`, SSH is open; `inf`: never."""
    launch_failure: str = ""
    """StateReason code (`Server.InternalError`, …): goes from `pending` to `terminated` instead of `running`."""
    get_lag_seconds: Range = (0, 2)
    """From launch until calls that name the id find it."""
    list_lag_seconds: Range = (0, 2)
    """From launch until lists show it."""
    stopped_seconds: Range = (10, 60)
    """From an accepted stop to `stopped`; Force=True cuts it to five seconds."""
    start_failure: str = ""
    """StateReason code: a start is accepted, goes to `pending` and falls back to `stopped`."""
    start_failures: float = math.inf
    """How many starts fail like that."""
    terminated_seconds: Range = (5, 60)
    """From an accepted terminate to `terminated`."""
    visible_seconds: float = 3600
    """How long a terminated instance is still shown."""
    terminates_ignored: int = 0
    """How many terminate calls answer as usual and do nothing."""
    interface_linger_seconds: Range = (0, 90)
    """From `terminated` until the network interface lets go of its security groups."""
    reclaim_seconds: Range = NEVER
    """Spot: from launch until EC2 takes it back."""
    notice_seconds: float = 120
    """Spot: how long before that the notice appears in the guest's metadata."""
    crash_seconds: Range = NEVER
    """From launch until the guest shuts itself down (see InstanceInitiatedShutdownBehavior)."""


@dataclass(frozen=True)
class VolumeBehaviour:
    """How one EBS volume behaves; drawn from when it is created."""

    available_seconds: Range = (1, 6)
    """From create to `available`; `inf`: stays `creating`."""
    fails: bool = False
    """Ends in `error` instead of `available`."""
    get_lag_seconds: Range = (0, 1)
    list_lag_seconds: Range = (0, 2)
    attached_seconds: Range = (1, 10)
    """From an accepted attach to `attached`; `inf`: stuck in `attaching`."""
    detached_seconds: Range = (2, 20)
    """From an accepted detach until it is `available`; `inf`: `detaching` until forced or the instance ends."""
    deleted_seconds: Range = (0, 5)
    """From an accepted delete until it is gone; `deleting` meanwhile."""


@dataclass(frozen=True)
class Rule:
    """Other behaviour for the instances or volumes that it matches; all given conditions must hold, later rules win."""

    kind: str = "instance"
    """`instance` or `volume`."""
    match: str = ""
    """Regex searched in each `key=value` of the tags."""
    type: str = ""
    """Regex of the whole instance or volume type."""
    region: str = ""
    zone: str = ""
    spot: bool | None = None
    nth: tuple[int, ...] = ()
    """Which ones of the account, in order of creation, counted from 1 per kind."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Behaviour` or `VolumeBehaviour`; a plain number stands for a range of that number."""

    def __post_init__(self) -> None:
        if self.kind not in ("instance", "volume"):
            raise ValueError(f"no such kind: {self.kind!r}")
        changed(Behaviour() if self.kind == "instance" else VolumeBehaviour(), self.change)
        for pattern in (self.match, self.type):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from None

    def applies(self, kind: str, type_: str, zone: str, spot: bool, tags: Mapping[str, str], number: int) -> bool:
        """Whether this rule holds for a new object."""
        if self.kind != kind or (self.nth and number not in self.nth):
            return False
        if (self.zone and self.zone != zone) or (self.region and self.region != zone[:-1]):
            return False
        if (self.spot is not None and self.spot != spot) or (self.type and not re.fullmatch(self.type, type_)):
            return False
        return not self.match or any(re.search(self.match, f"{key}={value}") for key, value in tags.items())


DLAMI_PATH = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
BUCKETS: Mapping[str, tuple[float, float]] = {
    "RunInstances": (5, 2),
    "StartInstances": (5, 2),
    "Describe": (100, 20),
    "": (50, 5),
}


@dataclass(frozen=True)
class Settings:
    """The account and the API in front of it."""

    instance: Behaviour = Behaviour()
    volume: VolumeBehaviour = VolumeBehaviour()
    rules: tuple[Rule, ...] = ()
    account_id: str = "111122223333"
    """What STS tells; also the owner shown of everything."""
    regions: tuple[str, ...] = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1")
    """Where calls are answered; others refuse the key with AuthFailure, as regions that are not opted in do."""
    reworded: bool = False
    """All messages in other words, same codes."""
    access_keys: frozenset[str] | None = None
    """Accepted access key ids; None: any."""
    refused_code: str = "AuthFailure"
    """Code for a key that is not accepted."""

    buckets: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(BUCKETS))
    """Action, its beginning (`Describe`) or `` (all others) to (size, refill per second); empty: no limit."""
    latency_seconds: Range = (0, 0)
    brief: bool = False
    """Instances are shown without network interfaces, groups and metadata options: botocore needs half the time for
    them, which counts where thousands are listed again and again."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    """`zone/type` (`*` for either, a region counts for its zones) to how many may be pending or running at once."""
    not_offered: frozenset[str] = frozenset()
    """`zone/type` or `region/type` that answers Unsupported."""
    no_capacity_probability: float = 0
    """Of any RunInstances or StartInstances being refused for lack of capacity."""
    no_capacity_status: int = 500
    """HTTP status of such a refusal."""
    vcpu_limit: int | None = None
    """On-demand vCPUs per region that may be pending or running; over it: VcpuLimitExceeded."""
    spot_vcpu_limit: int | None = None
    """The same for spot: MaxSpotInstanceCountExceeded."""
    volume_limit: int | None = None
    """Volumes per region; over it: VolumeLimitExceeded."""
    attach_limit: int = 27
    """Data volumes per instance: AttachmentLimitExceeded."""

    spot_relaunch_seconds: Range = (30, 90)
    """From the end of a persistent request's instance until EC2 launches the next one, without tags."""
    spot_disabled_seconds: Range = (5, 30)
    """From `stopped` until a persistent request says `disabled`; a start before that is refused."""
    spot_restart_seconds: Range = (120, 900)
    """From an interruption that stopped an instance until EC2 starts it again."""
    cancel_lag_seconds: Range = (5, 30)
    """From the cancelling of a disabled request until its stopped instance is terminated."""

    hourly_usd: Mapping[str, Decimal] = field(default_factory=dict)
    """On-demand price per instance type, over the built-in list."""
    spot_usd: Mapping[str, Decimal] = field(default_factory=dict)
    """`zone/type` to the spot price there now, over the usual share of the on-demand price."""
    image_parameters: Mapping[str, str] = field(default_factory=lambda: {DLAMI_PATH: "dlami"})
    """SSM path to which image it names; every value is an image of its own in each region."""


def plain(settings: Settings | None = None) -> Settings:
    """Everything at once and nothing refused: how plain moto behaves."""
    given = settings or Settings()
    at_once: dict[str, Any] = {
        name: 0
        for name in (
            "running_seconds",
            "ok_seconds",
            "guest_boot_seconds",
            "get_lag_seconds",
            "list_lag_seconds",
            "stopped_seconds",
            "terminated_seconds",
            "interface_linger_seconds",
        )
    }
    volume = dict.fromkeys(("available_seconds", "attached_seconds", "detached_seconds", "deleted_seconds"), 0)
    volume |= dict.fromkeys(("get_lag_seconds", "list_lag_seconds"), 0)
    return replace(
        given,
        instance=changed(given.instance, at_once),
        volume=changed(given.volume, volume),
        buckets={},
        spot_disabled_seconds=(0, 0),
        cancel_lag_seconds=(0, 0),
    )


def changed(base: Any, change: Mapping[str, Any]) -> Any:
    """`base` with other values; raises ValueError for a name that does not exist."""
    fields = {each.name: each for each in dataclasses.fields(base)}
    if unknown := set(change) - set(fields):
        raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
    return replace(
        base,
        **{
            name: _as_range(value) if isinstance(fields[name].default, tuple) else value
            for name, value in change.items()
        },
    )


def behaviour_of(
    settings: Settings, type_: str, zone: str, spot: bool, tags: Mapping[str, str], number: int
) -> Behaviour:
    """What an instance that is being launched will do."""
    behaviour = settings.instance
    for rule in settings.rules:
        if rule.applies("instance", type_, zone, spot, tags, number):
            behaviour = changed(behaviour, rule.change)
    return behaviour


def volume_behaviour_of(
    settings: Settings, type_: str, zone: str, tags: Mapping[str, str], number: int
) -> VolumeBehaviour:
    """What a volume that is being created will do."""
    behaviour = settings.volume
    for rule in settings.rules:
        if rule.applies("volume", type_, zone, False, tags, number):
            behaviour = changed(behaviour, rule.change)
    return behaviour


def _as_range(value: Any) -> Range:
    if isinstance(value, int | float):
        return (float(value), float(value))
    low, high = value
    return (float(low), float(high))
