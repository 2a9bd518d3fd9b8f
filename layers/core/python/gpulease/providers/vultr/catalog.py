"""Vultr's plans as offers: which GPUs a plan has, and what it costs where.

Only plans whose GPUs are known become offers; the others are named, never dropped in silence. The API tells the GPUs
of `vcg` plans alone; for whole-GPU VMs (`vdm`) and bare metal (`vbm`) it tells none, and plan ids are not meant to be
parsed, so those are listed here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpulease.domain.offer import Offer, PlanKind
from gpulease.providers.vultr.models import MetalPlan, Plan, RegionCost

PROVIDER = "vultr"


@dataclass(frozen=True, slots=True)
class Gpu:
    """`memory_gib` is per GPU."""

    model: str
    count: int
    memory_gib: float
    cpu_arch: str = "x86_64"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A GPU plan that is not offered, and why."""

    plan: str
    why: str


# As of 2026-09-30. Sources: Vultr's product pages; the catalogue of gpuhunt 0.1.34 agrees on counts and sizes.
KNOWN_GPUS: dict[str, Gpu] = {
    # VMs with whole GPUs (type vdm)
    "vcg-a16-6c-64g-16vram": Gpu("A16", 1, 16),
    "vcg-a16-96c-960g-256vram": Gpu("A16", 16, 16),
    "vcg-a16-96c-878g-256vram": Gpu("A16", 16, 16),
    "vcg-a40-24c-120g-48vram": Gpu("A40", 1, 48),
    "vcg-a40-96c-480g-192vram": Gpu("A40", 4, 48),
    "vcg-a100-12c-120g-80vram": Gpu("A100", 1, 80),
    "vcg-a100-96c-960g-640vram": Gpu("A100", 8, 80),
    "vcg-h100-216c-1914gb-640vram": Gpu("H100", 8, 80),
    "vcg-b200-248c-2826g-1536vram": Gpu("B200", 8, 192),
    # The id says 1536, the product page 8 x 256.
    "vcg-mi325x-252c-2872g-1536vram": Gpu("MI325X", 8, 256),
    "vcg-mi355x-252c-2872g-2304vram": Gpu("MI355X", 8, 288),
    # Bare metal
    "vbm-48c-1024gb-4-a100-gpu": Gpu("A100", 4, 80),
    "vbm-112c-2048gb-8-a100-gpu": Gpu("A100", 8, 80),
    "vbm-112c-2048gb-8-h100-gpu": Gpu("H100", 8, 80),
    # Sold as L40S although the id says l40.
    "vbm-64c-2048gb-8-l40-gpu": Gpu("L40S", 8, 48),
    "vbm-72c-480gb-gh200-gpu": Gpu("GH200", 1, 96, "arm64"),
    "vbm-256c-2048gb-8-mi300x-gpu": Gpu("MI300X", 8, 192),
    "vbm-256c-3072gb-8-mi325x-gpu": Gpu("MI325X", 8, 256),
    "vbm-256c-3072gb-8-b200-gpu": Gpu("B200", 8, 192),
    "vbm-256c-3072gb-8-mi355x-gpu": Gpu("MI355X", 8, 288),
}

# Memory of one whole GPU in the `vcg` line, for plans whose reply has no count. Vultr's A100 is the 80 GB one.
_WHOLE_GIB: dict[str, int] = {"A16": 16, "A40": 48, "A100": 80, "L40S": 48, "H100": 80}

_SPOT_ONLY = "rented as preemptible only, which the create call cannot ask for"
_NO_GPU_FACTS = "its GPUs are not known"


def gpu_model_name(name: str) -> str:
    """One spelling per GPU: `NVIDIA_A40`, `nvidia a40` and `A40` are `A40`; a memory size at the end is left out."""
    words = [word for word in re.split(r"[\s_-]+", name.strip().upper()) if word]
    if len(words) > 1 and words[0] in ("NVIDIA", "AMD"):
        words = words[1:]
    if len(words) > 1 and re.fullmatch(r"\d+GI?B", words[-1]):
        words = words[:-1]
    return "-".join(words)


def gpu_of_plan(plan: Plan) -> Gpu | None:
    """The GPUs of a VM plan; None = not known. A slice of a GPU counts as one with little memory."""
    if known := KNOWN_GPUS.get(plan.id):
        return known
    model = gpu_model_name(plan.gpu_type)
    total = plan.gpu_vram_gb or 0
    if not model or total <= 0:
        return None
    count = plan.gpu_count or 0
    whole = _WHOLE_GIB.get(model)
    if count < 1:
        if whole is None:
            return None
        count = max(1, total // whole)
    return Gpu(model, count, total / count)


def is_gpu_plan(plan: Plan | MetalPlan) -> bool:
    """Whether the plan has GPUs at all, known or not. For bare metal only the id tells."""
    if plan.id in KNOWN_GPUS:
        return True
    if isinstance(plan, Plan):
        return plan.type in ("vcg", "vdm", "vdg") or bool(plan.gpu_type)
    return "gpu" in plan.id.split("-")


def price_in(plan: Plan | MetalPlan, region: str) -> Decimal:
    """US dollars per hour in that region; some are dearer than the list price."""
    own: RegionCost | None = plan.location_cost.get(region)
    return own.hourly_cost if own is not None and own.hourly_cost is not None else plan.hourly_cost


def offer_of(plan: Plan | MetalPlan, region: str) -> Offer | Skipped:
    """The plan as an offer in one region, without live stock."""
    gpu = gpu_of_plan(plan) if isinstance(plan, Plan) else KNOWN_GPUS.get(plan.id)
    if gpu is None:
        return Skipped(plan.id, _NO_GPU_FACTS)
    price = price_in(plan, region)
    if price <= 0:
        return Skipped(plan.id, f"no price in {region}")
    is_vm = isinstance(plan, Plan)
    return Offer(
        provider=PROVIDER,
        region=region,
        plan=plan.id,
        kind=PlanKind.VM if is_vm else PlanKind.BARE_METAL,
        gpu_model=gpu.model,
        gpu_count=gpu.count,
        gpu_memory_gib=gpu.memory_gib,
        vcpus=plan.vcpu_count if isinstance(plan, Plan) else (plan.cpu_threads or plan.cpu_count),
        memory_gib=float(plan.ram / 1024),
        # One disk: with several it depends on the machine whether they are joined.
        disk_gb=plan.disk,
        price_per_hour_usd=price,
        cpu_arch=gpu.cpu_arch,
        # VMs join VPCs; for whole-GPU VMs and bare metal it differs by plan and no field tells.
        private_network=True if isinstance(plan, Plan) and plan.type == "vcg" else None,
    )


def offers_of(
    plans: Iterable[Plan | MetalPlan], seen_in_stock: Mapping[str, Iterable[str]] | None = None
) -> tuple[list[Offer], list[Skipped]]:
    """Offers of all GPU plans in all their regions, in a fixed order, and the plans left out (each once).

    `seen_in_stock`: plan to regions that have it now, in addition to those that the plan itself lists.
    """
    offers: dict[str, Offer] = {}
    skipped: dict[str, Skipped] = {}
    for plan in plans:
        if not is_gpu_plan(plan):
            continue
        regions = sorted(
            {region.lower() for region in (*plan.locations, *(seen_in_stock or {}).get(plan.id, ())) if region}
        )
        if plan.deploy_ondemand is False:
            skipped[plan.id] = Skipped(plan.id, _SPOT_ONLY)
            continue
        if not regions:
            skipped[plan.id] = Skipped(plan.id, "listed in no region")
        for region in regions:
            result = offer_of(plan, region)
            if isinstance(result, Offer):
                offers[result.key] = result
            else:
                skipped[plan.id] = result
    return [offers[key] for key in sorted(offers)], [skipped[plan] for plan in sorted(skipped)]
