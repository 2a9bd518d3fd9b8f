"""Everything about the simulated account that a test or a simulation may set.

Defaults are what has been measured or reported of the real provider; each field says what it stands for.
Ranges are (low, high) in seconds of the simulator's clock unless the name says otherwise; a value is drawn once
per machine, when it is created. `math.inf` means never.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, TypeVar

from gpulease_sim.draws import Range

Stuck = Literal["", "pending", "installingbooting", "destruction"]


@dataclass(frozen=True)
class Behaviour:
    """How one machine behaves; drawn from when it is created."""

    active_seconds: Range = (15, 30)
    """From create to `status: active` with an address."""
    ok_seconds: Range = (20, 55)
    """From active to `server_status: ok`."""
    slow_ok_probability: float = 0.05
    slow_ok_seconds: Range = (60, 230)
    """Used instead of `ok_seconds` with that probability."""
    locked_seconds: Range = (3, 10)
    """How long a machine that just became active shows `locked`."""
    lock_tail_seconds: Range = (0, 8)
    """How much longer calls are refused as locked although the state no longer says so."""
    ssh_seconds: Range = (20, 60)
    """From ok (bare metal: active) until the host accepts TCP on its SSH port; `inf`: never."""
    restart_seconds: Range = (4, 19)
    """Delay of halt, start and each half of a reboot."""
    stuck: Stuck = ""
    """The state in which the machine stays for ever (`destruction`: an accepted delete never finishes)."""
    no_address: bool = False
    """Becomes active and never gets a public address."""
    suspend_after_seconds: Range = (math.inf, math.inf)
    """From create until `status: suspended`."""
    vanish_after_seconds: Range = (math.inf, math.inf)
    """From create until the machine is gone by itself: preempted, or deleted by hand."""
    list_lag_seconds: Range = (0, 2)
    """From create until lists show the machine."""
    get_lag_seconds: Range = (0, 0)
    """From create until calls by id find the machine."""
    ghost_seconds: Range = (0, 0)
    """How long lists still show a machine that is gone."""
    pending_refusal_limit_seconds: float = 300
    """A delete is refused while pending, but no longer than this after create."""
    not_active_until_seconds: float = 0
    """A delete is refused as not active until then, counted from create, whatever the state."""
    locked_until_seconds: float = 0
    """A delete is refused as locked until then, counted from create, whatever the state."""
    deletes_ignored: int = 0
    """How many deletes answer 204 and do nothing."""
    destruction_seconds: Range = (2, 30)
    """From an accepted delete until the machine is gone; it is billed until then."""
    destruction_get_error_probability: float = 0.3
    """Whether GET by id answers an error in that phase."""
    quota_hold_seconds: Range = (0, 120)
    """How long a machine that is gone still counts against the account's limits."""
    vpc_hold_seconds: Range = (4, 25)
    """How long a VPC still counts a machine that is gone as attached."""
    slow_vpc_hold_probability: float = 0.05
    slow_vpc_hold_seconds: Range = (25, 75)
    create_vpc_seconds: Range = (5, 10)
    """From create until an address of a VPC given in the create call shows."""
    vpc_address_seconds: Range = (0, 2)
    """How long a listed membership shows `0.0.0.0` before its address."""
    attach_failures: Range = (0, 5)
    """How many attach calls fail as transient before one works (a count; `inf`: all)."""
    attach_seconds: Range = (1, 10)
    """From an accepted attach until it shows."""
    detach_seconds: Range = (0, 60)
    """From an accepted detach until it shows; `inf`: never."""

    missing_gpus: int = 0
    """How many GPUs of the plan its operating system does not see."""


@dataclass(frozen=True)
class BlockBehaviour:
    """How one block of storage behaves; drawn from when it is created, and anew for each attach."""

    active_seconds: Range = (1, 15)
    list_lag_seconds: Range = (0, 2)
    """From create until lists show the block."""
    attach_seconds: Range = (1, 15)
    """From an accepted attach until `attached_to_instance` shows it; `inf`: never."""
    attach_lost_probability: float = 0
    """Of an attach being accepted and forgotten."""
    detach_seconds: Range = (1, 15)
    """From an accepted detach until the block is free."""
    detach_failures: Range = (0, 0)
    """How many detach calls are refused before one works (a count; `inf`: all, until the machine is gone)."""
    stuck_detach_probability: float = 0
    stuck_detach_failures: Range = (20, 60)
    """Used instead of `detach_failures` with that probability, drawn per attachment."""
    auto_detach_seconds: Range = (2, 30)
    """From the end of the machine until its block is free."""
    never_detaches_probability: float = 0
    """Of a block still naming its machine for ever after that is gone; a detach call helps."""
    delete_seconds: Range = (0, 3)
    """From an accepted delete until the block is gone; it is billed until then."""


VM = Behaviour()
METAL = Behaviour(
    active_seconds=(600, 2400),
    ok_seconds=(0, 0),
    slow_ok_probability=0,
    locked_seconds=(0, 0),
    lock_tail_seconds=(0, 20),
    ssh_seconds=(60, 300),
    restart_seconds=(30, 90),
    get_lag_seconds=(0, 2),
)


@dataclass(frozen=True)
class MachineRule:
    """Other behaviour for the machines it matches; all given conditions must hold, later rules win."""

    match: str = ""
    """Regex searched in the label and in each tag."""
    plan: str = ""
    """Regex of the whole plan id."""
    region: str = ""
    nth: tuple[int, ...] = ()
    """Which machines of the account, in order of creation, counted from 1."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Behaviour` to their values; a plain number stands for a range of that number."""

    def __post_init__(self) -> None:
        changed(VM, self.change)  # a misspelt name must not wait for the first machine
        for pattern in (self.match, self.plan):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from None

    def applies(self, label: str, tags: tuple[str, ...], plan: str, region: str, number: int) -> bool:
        """Whether this rule holds for a machine."""
        if self.nth and number not in self.nth:
            return False
        if self.region and self.region != region:
            return False
        if self.plan and not re.fullmatch(self.plan, plan):
            return False
        return not self.match or any(re.search(self.match, text) for text in (label, *tags))


@dataclass(frozen=True)
class Settings:
    """The account and the API in front of it."""

    vm: Behaviour = VM
    metal: Behaviour = METAL
    block: BlockBehaviour = BlockBehaviour()
    rules: tuple[MachineRule, ...] = ()
    owner_email: str = "owner@example.com"
    """Whose account it is."""

    reworded: bool = False
    """All texts in other words, same statuses."""
    not_found: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Resource (`instance`, `bare_metal`, `vpc`, …) to the status and text of a missing one."""
    destruction_get_status: int = 500
    """Status of a GET of a machine that is being destroyed, where it answers an error."""

    api_keys: frozenset[str] | None = None
    """Accepted keys; None: any that is not empty."""
    allowed_addresses: frozenset[str] | None = None
    """The account's address list; None: no restriction."""
    suspend_key_after_refused_deletes: int | None = None
    """So many deletes of a machine that is already being destroyed suspend the key that sent them."""
    require_content_type: bool = True
    """400 for a call with a body but without `Content-Type: application/json`."""
    requests_per_second: float | None = 30
    """Per client address; None: no limit."""
    requests_per_hour: float | None = None
    retry_after_header: bool = True

    latency_seconds: Range = (0, 0)
    list_latency_seconds: Range = (0, 0)
    """Lists were measured at 0.9 to 2 s."""
    paging: Literal["id", "offset"] = "id"
    """What a cursor holds: the next item's id, or a position (then changes between pages skip or repeat items)."""
    default_per_page: int = 100

    capacity: Mapping[str, int] = field(default_factory=dict)
    """`region/plan` (`*` for either) to how many machines can live there at once; 0: out of stock."""
    vanishing: frozenset[str] = frozenset()
    """`region/plan` that is shown as available and refused at create."""
    no_capacity_probability: float = 0
    """Of any create being refused for lack of capacity."""
    no_capacity_status: int = 400
    instance_limit: int | None = None
    monthly_fee_limit_usd: Decimal | None = None
    vpcs_per_region: int = 5
    vpc_list_lag_seconds: Range = (0, 0)
    public_address: str = ""
    """Every machine gets this address (a server of this computer that stands for its SSH port); empty: one each."""
    plans_without_vpc: frozenset[str] = frozenset({"vbm-4c-32gb", "vbm-72c-480gb-gh200-gpu"})
    """Which plans refuse VPCs; that `vbm-4c-32gb` does is reported, the GH200 machine is this simulator's choice."""
    no_vpc_status: int = 500

    block_month_hours: int = 730
    """After how many hours a month of storage is paid in full. Public for servers only (672, cloud GPU 730)."""
    blocks_sold_out: frozenset[str] = frozenset()
    """`region/type` (`high_perf`, `storage_opt`) of which no more blocks are to be had."""
    block_limit: int | None = None
    """How many blocks the account may have."""
    blocks_per_instance: int = 16
    block_delete_detaches: bool = False
    """A delete of an attached block works and takes it from its machine. What the real API does is not known."""
    vfs_active_seconds: Range = (5, 30)
    vfs_smallest_gb: int = 10
    vfs_gb_monthly_usd: Decimal = Decimal("0.10")


B = TypeVar("B", Behaviour, BlockBehaviour)


def changed(base: B, change: Mapping[str, Any]) -> B:
    """`base` with other values; raises ValueError for a name that does not exist."""
    names = {each.name for each in dataclasses.fields(base)}
    if unknown := set(change) - names:
        raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {
        name: _as_range(value) if isinstance(getattr(base, name), tuple) else value for name, value in change.items()
    }
    return replace(base, **values)


def with_boot_seconds(settings: Settings, seconds: float) -> Settings:
    """Every machine becomes active after exactly `seconds`."""
    return replace(
        settings,
        vm=replace(settings.vm, active_seconds=(seconds, seconds)),
        metal=replace(settings.metal, active_seconds=(seconds, seconds)),
    )


def behaviour_of(
    settings: Settings, metal: bool, label: str, tags: tuple[str, ...], plan: str, region: str, number: int
) -> Behaviour:
    """What a machine that is being created will do: the product's behaviour and the rules that match it."""
    behaviour = settings.metal if metal else settings.vm
    for rule in settings.rules:
        if rule.applies(label, tags, plan, region, number):
            behaviour = changed(behaviour, rule.change)
    return behaviour


def _as_range(value: Any) -> Range:
    if isinstance(value, int | float):
        return (float(value), float(value))
    low, high = value
    return (float(low), float(high))
