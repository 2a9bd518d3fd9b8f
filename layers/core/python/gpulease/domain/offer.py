"""Offers: what can be rented, where, at which price. Choosing among them is `domain/selection.py`."""

from decimal import Decimal
from enum import StrEnum

from gpulease.domain.model import Instant, Model, Usd

HOURS_PER_MONTH = Decimal(730)


class PlanKind(StrEnum):
    VM = "vm"
    BARE_METAL = "bare_metal"


class Offer(Model):
    """One plan in one region at one price. `gpu_memory_gib` is per GPU; a vGPU slice is one GPU with little memory."""

    provider: str
    region: str
    plan: str
    kind: PlanKind
    gpu_model: str
    gpu_count: int
    gpu_memory_gib: float
    vcpus: int
    memory_gib: float
    disk_gb: int
    price_per_hour_usd: Usd
    spot: bool = False
    cpu_arch: str = "x86_64"
    private_network: bool | None = None
    """Whether the plan can join a private network; None = not known before it is tried."""
    in_stock: bool | None = None
    """Live stock when last looked; None = not known. Never a promise."""
    max_disk_gb: int = 0
    """Where the disk can be had larger: how large. 0 = as it is."""
    disk_usd_per_gb_month: Usd = Decimal(0)
    """What each GB more costs; that of `disk_gb` is in the price."""
    zone: str = ""
    """Where the provider divides its regions (AWS: `us-east-1a`); empty = it does not, or any."""

    @property
    def key(self) -> str:
        """Identity of an offer: two offers with one key are the same thing at (perhaps) another price."""
        place = f"{self.region}/{self.zone}" if self.zone else self.region
        return f"{self.provider}/{place}/{self.plan}/{'spot' if self.spot else 'on-demand'}"

    def with_disk(self, size_gb: int | None) -> "Offer":
        """The same with a disk so large, at its price; itself where its disk is large enough or cannot grow so far."""
        if size_gb is None or not self.disk_gb < size_gb <= self.max_disk_gb:
            return self
        more = self.disk_usd_per_gb_month * (size_gb - self.disk_gb) / HOURS_PER_MONTH
        price = (self.price_per_hour_usd + more).quantize(Decimal("0.000001"))
        return self.model_copy(update={"disk_gb": size_gb, "price_per_hour_usd": price})


class OfferSnapshot(Model):
    """All offers of one provider as of one moment. Old ones stay usable and carry their age."""

    provider: str
    as_of: Instant
    offers: tuple[Offer, ...]
