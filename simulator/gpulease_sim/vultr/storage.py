"""Block storage and shared file systems as functions of time.

As with machines, every call writes the future at once from seeded draws, and reading looks up the present. What a block
is attached to is kept as a history of holds, each from the accepted call to the moment it no longer counts.
"""

from dataclasses import dataclass, field
from decimal import Decimal

from gpulease_sim.draws import Draws
from gpulease_sim.vultr.machines import NEVER
from gpulease_sim.vultr.settings import BlockBehaviour

HIGH_PERF, STORAGE_OPT = "high_perf", "storage_opt"


@dataclass(frozen=True, slots=True)
class BlockKind:
    """A sort of block storage: its price and how large a block may be."""

    option: str
    """What a region's `options` hold where it is sold."""
    smallest_gb: int
    largest_gb: int
    gb_monthly_usd: Decimal


BLOCK_KINDS = {
    HIGH_PERF: BlockKind("block_storage_high_perf", 10, 10_000, Decimal("0.10")),
    # The price of the HDD line is the provider's public one of 2026.
    STORAGE_OPT: BlockKind("block_storage_storage_opt", 40, 40_000, Decimal("0.025")),
}


@dataclass(slots=True)
class Hold:
    """One attachment of a block to a VM, from the accepted call on."""

    instance_id: str
    asked_at: float
    shows_at: float
    auto_detach_seconds: float
    """From the end of the machine until the block is free again."""
    detach_failures: float
    """How many detach calls are refused before one works."""
    removed_at: float = NEVER
    detach_calls: int = 0

    def counts(self, now: float) -> bool:
        """Whether the block is taken, shown or not."""
        return self.asked_at <= now < self.removed_at


@dataclass(slots=True)
class Block:
    """A network disk for one VM at a time."""

    id: str
    number: int
    region: str
    label: str
    size_gb: int
    block_type: str
    created: float
    active_at: float
    listed_at: float
    behaviour: BlockBehaviour
    seed: int
    os_id: int = 0
    snapshot_id: str = ""
    bootable: bool = False
    holds: list[Hold] = field(default_factory=list)
    attach_calls: int = 0
    gone_at: float = NEVER

    @property
    def draws(self) -> Draws:
        """The seeded values of this block."""
        return Draws(self.seed, f"object-{self.number}")

    @property
    def mount_id(self) -> str:
        """By which the guest finds the device: region and the first 14 digits of the id."""
        return f"{self.region}-{self.id.replace('-', '')[:14]}"

    @property
    def monthly_usd(self) -> Decimal:
        """Price of a month."""
        return BLOCK_KINDS[self.block_type].gb_monthly_usd * self.size_gb

    def hold(self, now: float) -> Hold | None:
        """What takes the block now."""
        return next((each for each in self.holds if each.counts(now)), None)

    def shown_instance(self, now: float) -> str:
        """`attached_to_instance`: late in both directions, and a machine that is gone can stay there for a while."""
        hold = self.hold(now)
        return hold.instance_id if hold is not None and now >= hold.shows_at else ""

    def attach(self, instance_id: str, instance_gone_at: float, now: float) -> None:
        """Accept an attach; some are accepted and never heard of again."""
        b, draws = self.behaviour, self.draws
        self.attach_calls += 1
        turn = self.attach_calls
        if draws.happens(b.attach_lost_probability, f"attach-{turn}-lost"):
            return
        kept = draws.happens(b.never_detaches_probability, f"attach-{turn}-kept")
        stuck = draws.happens(b.stuck_detach_probability, f"attach-{turn}-stuck")
        failures = b.stuck_detach_failures if stuck else b.detach_failures
        self.holds = [each for each in self.holds if each.removed_at == NEVER or each.removed_at > now]
        self.holds.append(
            Hold(
                instance_id=instance_id,
                asked_at=now,
                shows_at=now + draws.between(b.attach_seconds, f"attach-{turn}"),
                auto_detach_seconds=NEVER if kept else draws.between(b.auto_detach_seconds, f"attach-{turn}-auto"),
                detach_failures=failures[0] if failures[0] == NEVER else draws.integer(failures, f"fails-{turn}"),
            )
        )
        self.machine_ends(instance_id, instance_gone_at)

    def detach(self, hold: Hold, now: float) -> bool:
        """Accept a detach; False: refused this time."""
        hold.detach_calls += 1
        if hold.detach_calls <= hold.detach_failures:
            return False
        self.let_go(hold, now)
        return True

    def let_go(self, hold: Hold, now: float) -> None:
        """The machine will no longer have it some time from now."""
        delay = self.draws.between(self.behaviour.detach_seconds, f"detach-{self.attach_calls}-{hold.detach_calls}")
        hold.removed_at = min(hold.removed_at, now + delay)

    def machine_ends(self, instance_id: str, gone_at: float) -> bool:
        """A machine will be gone from then on; True: that changes something for this block."""
        changed = False
        for hold in self.holds:
            free_at = gone_at + hold.auto_detach_seconds
            if hold.instance_id == instance_id and free_at < hold.removed_at:
                hold.removed_at = free_at
                changed = True
        return changed


@dataclass(slots=True)
class BlockSnapshot:
    """A stored copy of a block, billed by its size."""

    id: str
    number: int
    block_id: str
    description: str
    size_gb: int
    created: float
    modified: float
    complete_at: float


@dataclass(slots=True)
class VfsAttachment:
    """One VM that mounts a file system."""

    instance_id: str
    instance_label: str
    mount_tag: int


@dataclass(slots=True)
class FileSystem:
    """Storage that many VMs of its region mount at once."""

    id: str
    number: int
    region: str
    label: str
    tags: tuple[str, ...]
    disk_type: str
    size_gb: int
    created: float
    active_at: float
    closed_at: float = NEVER
    attachments: list[VfsAttachment] = field(default_factory=list)
    next_mount_tag: int = 1
