"""The simulated account: every object that exists, and the book of what ever existed.

Objects keep the order of their creation. A machine that is gone leaves the lists by itself when its time comes; it
stays known as long as its VPC or the account's limits still count it.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from gpulease_sim.draws import Draws
from gpulease_sim.vultr import catalog
from gpulease_sim.vultr.api import ApiError, Call, NotFound
from gpulease_sim.vultr.book import Book, Entry
from gpulease_sim.vultr.catalog import Plan
from gpulease_sim.vultr.guest_events import GuestEvents
from gpulease_sim.vultr.machines import NEVER, Machine
from gpulease_sim.vultr.settings import Settings
from gpulease_sim.vultr.storage import Block, BlockSnapshot, FileSystem

MAX_TAGS = 99
OWNER_EMAIL = "owner@example.com"
HELD_AFTER_GONE_SECONDS = 600
"""How long a machine that is gone is remembered; longer than any hold the settings default to."""


@dataclass(slots=True)
class Vpc:
    """A private network of one region."""

    id: str
    number: int
    region: str
    description: str
    subnet: str
    mask: int
    created: float
    listed_at: float
    next_host: int = 3
    members: tuple[str, ...] = ()
    """Machines that ever joined and may still count."""


@dataclass(slots=True)
class SshKey:
    """A public key that machines can be created with."""

    id: str
    number: int
    name: str
    ssh_key: str
    created: float


@dataclass(slots=True)
class StartupScript:
    """A script kept by the provider."""

    id: str
    number: int
    name: str
    kind: str
    script: str
    created: float
    modified: float


@dataclass(slots=True)
class FirewallRule:
    """One accept rule."""

    id: int
    ip_type: str
    protocol: str
    subnet: str
    subnet_size: int
    port: str
    source: str
    notes: str

    @property
    def number(self) -> int:
        """Order in its group."""
        return self.id


@dataclass(slots=True)
class FirewallGroup:
    """A set of accept rules for VMs."""

    id: str
    number: int
    description: str
    created: float
    modified: float
    rules: tuple[FirewallRule, ...] = ()
    next_rule: int = 1


@dataclass(slots=True)
class ReservedIp:
    """An address that outlives machines and costs money."""

    id: str
    number: int
    region: str
    ip_type: str
    subnet: str
    subnet_size: int
    label: str
    created: float
    instance_id: str = ""


@dataclass(slots=True)
class Snapshot:
    """A stored image of a VM."""

    id: str
    number: int
    description: str
    size: int
    os_id: int
    app_id: int
    created: float
    complete_at: float


@dataclass(slots=True)
class Job:
    """Work that an update started."""

    id: str
    number: int
    done_at: float


Stored = (
    Machine
    | Vpc
    | SshKey
    | StartupScript
    | FirewallGroup
    | ReservedIp
    | Snapshot
    | Job
    | Block
    | BlockSnapshot
    | FileSystem
)


TABLES = (
    "machines",
    "vpcs",
    "ssh_keys",
    "startup_scripts",
    "firewall_groups",
    "reserved_ips",
    "snapshots",
    "jobs",
    "blocks",
    "block_snapshots",
    "file_systems",
)


class Account:
    """All state behind the API; not thread-safe by itself."""

    def __init__(
        self, clock: Callable[[], float], seed: int, settings: Settings, guests: GuestEvents | None = None
    ) -> None:
        self.seed = seed
        self.guests = guests or GuestEvents()
        self.settings = settings
        self.now = clock
        self.book = Book(clock)
        self.sequence = 0
        self.machine_count = 0
        self.machines: dict[str, Machine] = {}
        self.vpcs: dict[str, Vpc] = {}
        self.ssh_keys: dict[str, SshKey] = {}
        self.startup_scripts: dict[str, StartupScript] = {}
        self.firewall_groups: dict[str, FirewallGroup] = {}
        self.reserved_ips: dict[str, ReservedIp] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.jobs: dict[str, Job] = {}
        self.blocks: dict[str, Block] = {}
        self.block_snapshots: dict[str, BlockSnapshot] = {}
        self.file_systems: dict[str, FileSystem] = {}
        self.touched: dict[tuple[str, str], None] = {}
        """Kind and id of what changed since the last write to the state file, in order."""
        self.by_address: dict[str, str] = {}
        self._ending: list[tuple[float, str]] = []
        self._tables: dict[str, dict[str, Stored]] = {name: getattr(self, name) for name in TABLES}

    # Bookkeeping

    def table(self, name: str) -> dict[str, Stored]:
        """The objects of one kind, by id."""
        return self._tables[name]

    def next_number(self) -> int:
        """The place of the next object in the order of creation."""
        self.sequence += 1
        return self.sequence

    def draws(self, number: int) -> Draws:
        """The seeded values of an object that is not a machine."""
        return Draws(self.seed, f"object-{number}")

    def touch(self, table: str, object_id: str) -> None:
        """Note that an object was made, changed or removed."""
        self.touched[(table, object_id)] = None

    def add_entry(self, entry: Entry) -> None:
        """Write a new paid object into the book."""
        self.book.add(entry)
        self.touch("book", entry.id)

    def close_entry(self, object_id: str, at: float) -> None:
        """The object stops being billed at that time."""
        self.book.entry(object_id).destroyed_from = at
        self.touch("book", object_id)

    def settle(self, now: float) -> None:
        """Forget machines and blocks whose last trace is gone."""
        for block_id in [each.id for each in self.blocks.values() if each.gone_at <= now]:
            del self.blocks[block_id]
            self.touch("blocks", block_id)
        while self._ending and self._ending[0][0] <= now:
            _, machine_id = heapq.heappop(self._ending)
            machine = self.machines.pop(machine_id, None)
            if machine is not None:
                if self.by_address.get(machine.address) == machine_id:
                    del self.by_address[machine.address]
                self.touch("machines", machine_id)

    # Machines

    def add_machine(self, machine: Machine) -> None:
        """A machine that was just created."""
        self.machines[machine.id] = machine
        self.by_address[machine.address] = machine.id
        self.machine_changed(machine)

    def machine_changed(self, machine: Machine) -> None:
        """Bring the book up to date with a machine's new future."""
        entry = self.book.entry(machine.id)
        entry.active_from, entry.destroyed_from = machine.active_at(), machine.gone_at
        entry.label, entry.tags = machine.label, machine.tags
        self.touch("machines", machine.id)
        self.touch("book", machine.id)
        self.watch_end(machine)
        self.guests.plan(machine, self.now())
        for block in self.blocks.values():
            if machine.gone_at != NEVER and block.machine_ends(machine.id, machine.gone_at):
                self.block_changed(block)

    def block_changed(self, block: Block) -> None:
        """A block's future was written anew."""
        self.touch("blocks", block.id)
        self.guests.plan_block(block, self.now())

    def watch_end(self, machine: Machine) -> None:
        """Remember when a machine that is about to end can be forgotten."""
        if machine.gone_at != NEVER:
            last = max(machine.delisted_at, machine.counted_until, machine.vpc_held_until)
            heapq.heappush(self._ending, (max(last, machine.gone_at + HELD_AFTER_GONE_SECONDS), machine.id))

    def tell_guests_of_all(self) -> None:
        """The account was read from a file: whoever hosts guests hears of every machine anew."""
        for machine in self.machines.values():
            self.guests.plan(machine, self.now())
        for block in self.blocks.values():
            self.guests.plan_block(block, self.now())

    def machine(self, call: Call, machine_id: str, metal: bool) -> Machine:
        """The machine a call by id means; raises NotFound where the provider would not find it (yet, or any more)."""
        machine = self.machines.get(machine_id)
        if machine is None or machine.metal is not metal or call.now < machine.readable_at or machine.is_gone(call.now):
            raise NotFound("bare_metal" if metal else "instance")
        return machine

    def listed_machines(self, now: float, metal: bool) -> Iterator[Machine]:
        """The machines that lists show, oldest first."""
        for machine in self.machines.values():
            if machine.metal is metal and machine.listed_at <= now < machine.delisted_at:
                yield machine

    def plan(self, machine: Machine, now: float) -> Plan:
        """The plan a machine is on, after an upgrade the new one."""
        return catalog.PLANS[machine.plan_at(now)]

    def check_room(self, plan: Plan, region: str, now: float, luck: Draws) -> None:
        """Refuse a create for which the account or the region has no room."""
        settings = self.settings
        if settings.instance_limit is not None or settings.monthly_fee_limit_usd is not None:
            counted = [m for m in self.machines.values() if now < m.counted_until]
            if settings.instance_limit is not None and len(counted) >= settings.instance_limit:
                raise ApiError(400, "instance_limit")
            fees = sum((self.plan(m, now).monthly_usd for m in counted), plan.monthly_usd)
            if settings.monthly_fee_limit_usd is not None and fees > settings.monthly_fee_limit_usd:
                raise ApiError(400, "fee_limit")
        spot = f"{region}/{plan.id}"
        lucky = not luck.happens(settings.no_capacity_probability, "no-capacity")
        if not plan.on_demand or spot in settings.vanishing or not lucky or not self.in_stock(plan, region, now):
            raise ApiError(settings.no_capacity_status, "no_capacity")

    def in_stock(self, plan: Plan, region: str, now: float) -> bool:
        """Whether one more machine of that plan fits into that region."""
        if region not in plan.stock:
            return False
        capacity = self.settings.capacity
        if not capacity:
            return True
        for spot in (f"{region}/{plan.id}", f"*/{plan.id}", f"{region}/*", "*/*"):
            if spot in capacity:
                present = sum(
                    1
                    for m in self.machines.values()
                    if not m.is_gone(now) and spot in (f"{m.region}/{m.plan}", f"*/{m.plan}", f"{m.region}/*", "*/*")
                )
                return present < capacity[spot]
        return True

    # Networks

    def holder(self, ip: ReservedIp, now: float, *, shown: bool) -> str:
        """The machine a reserved address belongs to; a reuse is refused for longer than the API shows a reason."""
        machine = self.machines.get(ip.instance_id)
        held = machine is not None and now < (machine.gone_at if shown else machine.vpc_held_until)
        return ip.instance_id if held else ""

    def vpc(self, vpc_id: str) -> Vpc:
        """A VPC by id; raises NotFound."""
        vpc = self.vpcs.get(vpc_id)
        if vpc is None:
            raise NotFound("vpc")
        return vpc

    def add_vpc(self, call: Call, region: str, description: str, subnet: str = "", mask: int = 20) -> Vpc:
        """Make a VPC, or refuse at the limit of the region."""
        if sum(1 for each in self.vpcs.values() if each.region == region) >= self.settings.vpcs_per_region:
            raise ApiError(400, "vpc_limit")
        number = self.next_number()
        draws = self.draws(number)
        vpc = Vpc(
            id=draws.identifier("id"),
            number=number,
            region=region,
            description=description[:255],
            subnet=subnet or f"10.{1 + number // 16 % 250}.{number % 16 * 16}.0",
            mask=mask,
            created=call.now,
            listed_at=call.now + draws.between(self.settings.vpc_list_lag_seconds, "list-lag"),
        )
        self.vpcs[vpc.id] = vpc
        self.touch("vpcs", vpc.id)
        call.created.append(vpc.id)
        self.add_entry(
            Entry(
                kind="vpc",
                id=vpc.id,
                label=vpc.description,
                region=region,
                plan=None,
                tags=(),
                created=call.now,
                active_from=call.now,
                destroyed_from=NEVER,
                rates=[(call.now, Decimal(0), Decimal(0))],
            )
        )
        return vpc

    def vpc_members(self, vpc: Vpc, now: float) -> list[Machine]:
        """The machines for whose sake a VPC cannot be deleted now."""
        members = []
        for machine_id in vpc.members:
            machine = self.machines.get(machine_id)
            if machine is None or now >= machine.vpc_held_until:
                continue
            if any(each.vpc_id == vpc.id and now < each.removed_at for each in machine.attachments):
                members.append(machine)
        return members
