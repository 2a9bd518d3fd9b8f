"""What block storage Vultr sells where, and for how much. Needs no call: the catalogue is read too rarely to ask.

Sources: the API reference (sizes, types), Vultr's regions of 2026 with their `options`, and its price list of 2026.
"""

from dataclasses import dataclass
from decimal import Decimal

from gpulease.errors import InputInvalid


@dataclass(frozen=True, slots=True)
class BlockSort:
    """`name` is the API's `block_type`."""

    name: str
    smallest_gb: int
    largest_gb: int
    usd_per_gb_month: Decimal


NVME = BlockSort("high_perf", 10, 10_000, Decimal("0.10"))
HDD = BlockSort("storage_opt", 40, 40_000, Decimal("0.025"))

NVME_REGIONS = frozenset({"atl", "ams", "blr", "ord", "lax", "lhr", "ewr", "sea", "sgp", "syd", "nrt"})
"""Those whose options have `block_storage_high_perf`. All others but Sydney have `block_storage_storage_opt`:"""
HDD_REGIONS = frozenset(
    {"dfw", "hnl", "mex", "mia", "sao", "scl", "sjc", "yto", "cdg", "fra", "mad", "man", "mxp", "sto", "waw"}
    | {"bom", "del", "icn", "itm", "mel", "jnb", "tlv"}
)


def block_sort(region: str) -> BlockSort:
    """The quickest sort of the region. Raises InputInvalid(field="region")."""
    if region in NVME_REGIONS:
        return NVME
    if region in HDD_REGIONS:
        return HDD
    known = ", ".join(sorted(NVME_REGIONS | HDD_REGIONS))
    raise InputInvalid(f"Vultr has no block storage in {region!r} that we know of; known: {known}", field="region")


def checked_size(sort: BlockSort, region: str, size_gb: int) -> int:
    """The size. Raises InputInvalid(field="size_gb")."""
    if not sort.smallest_gb <= size_gb <= sort.largest_gb:
        limits = f"{sort.smallest_gb} to {sort.largest_gb} GB"
        raise InputInvalid(f"block storage in {region} has {limits}, not {size_gb} GB", field="size_gb")
    return size_gb
