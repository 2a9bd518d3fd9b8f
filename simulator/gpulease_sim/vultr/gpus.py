"""How many GPUs a machine of a plan has: for the guest, which sees them also where the API does not tell."""

import re

from gpulease_sim.vultr import catalog

_WHOLE = {
    "vcg-a16-6c-64g-16vram": 1,
    "vcg-a40-24c-120g-48vram": 1,
    "vcg-a100-12c-120g-80vram": 1,
    "vcg-a100-96c-960g-640vram": 8,
    "vcg-h100-216c-1914gb-640vram": 8,
    "vcg-b200-248c-2826g-1536vram": 8,
    "vcg-mi325x-252c-2872g-1536vram": 8,
    "vcg-mi355x-252c-2872g-2304vram": 8,
}
_METAL = re.compile(r"vbm-.*?gb-(?:(\d+)-)?[a-z0-9]+-gpu")


def gpus_of(plan_id: str) -> int:
    """GPUs that the operating system sees; 0 for CPU plans."""
    plan = catalog.PLANS[plan_id]
    metal = _METAL.fullmatch(plan_id)
    if metal is not None:
        return int(metal[1] or 1)
    return plan.gpu_count or _WHOLE.get(plan_id, 0)
