"""gpuhunt's own Vultr provider, redirected to the simulator, offers what the simulated catalogue sells.

gpuhunt reads a plan's `locations` for `vcg` and bare metal and the live stock for `vdm`; it leaves out plans that are
not on demand and GPU plans it has no GPU data for. What it must find is computed from the catalogue here.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from gpuhunt.providers import vultr as gpuhunt_vultr  # type: ignore[import-untyped]
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.catalog import PLANS, Plan
from gpulease_sim.vultr.server import serve

from tests.support.vultr_world import START, steady

KNOWN_GPUS: dict[str, tuple[int, str, int]] = gpuhunt_vultr.BARE_METAL_GPU_DETAILS | gpuhunt_vultr.VDM_GPU_DETAILS
CPU_TYPES = {"vc2", "vhf", "vhp", "voc"}
FULL_MEMORY_GB = {"A16": 16, "A40": 48, "A100": 80, "L40S": 48}

Offer = tuple[str, str, float, int, str | None, float | None]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[VultrCloud]:
    simulated = VultrCloud(lambda: START, settings=steady())
    with serve(simulated) as server:
        monkeypatch.setattr(gpuhunt_vultr, "API_URL", f"{server.url}/v2")
        yield simulated


def offered(**provider: Any) -> set[Offer]:
    items = gpuhunt_vultr.VultrProvider(**provider).get()
    found = {
        (item.instance_name, item.location, item.price, item.gpu_count, item.gpu_name, item.gpu_memory)
        for item in items
    }
    assert len(found) == len(items)
    return found


def expected(*, live: bool) -> set[Offer]:
    offers: set[Offer] = set()
    for plan in PLANS.values():
        gpus = _gpus(plan)
        if not plan.on_demand or gpus is None:
            continue
        regions = plan.stock if live and plan.type == "vdm" else plan.locations
        offers |= {(plan.id, region, float(plan.shown_hourly_usd), *gpus) for region in regions}
    return offers


def _gpus(plan: Plan) -> tuple[int, str | None, float | None] | None:
    """What a reader of the catalogue should conclude; None: gpuhunt does not know this plan's GPU."""
    if plan.type in CPU_TYPES or (plan.metal and "gpu" not in plan.id):
        return 0, None, None
    if plan.metal or plan.type == "vdm":
        return KNOWN_GPUS.get(plan.id)
    name = plan.gpu_type.removeprefix("NVIDIA_")
    count = max(1, plan.gpu_vram_gb // FULL_MEMORY_GB[name])
    return count, name, plan.gpu_vram_gb / count


def test_offers_equal_the_catalogue(cloud: VultrCloud) -> None:
    assert offered(api_key="sim-key") == expected(live=True)


def test_without_a_key_whole_gpu_plans_are_offered_where_the_list_claims_them(cloud: VultrCloud) -> None:
    assert offered() == expected(live=False)


def test_both_products_and_bare_metal_are_among_the_offers(cloud: VultrCloud) -> None:
    gpu_plans = {name for name, _, _, gpus, _, _ in offered(api_key="sim-key") if gpus}

    assert {PLANS[name].type for name in gpu_plans} == {"vcg", "vdm", "vbm"}
    assert len(gpu_plans) >= 12


def test_plans_that_are_not_on_demand_are_not_offered(cloud: VultrCloud) -> None:
    hidden = {plan.id for plan in PLANS.values() if not plan.on_demand}

    assert hidden
    assert not hidden & {name for name, *_ in offered(api_key="sim-key")}


def test_a_gpu_plan_that_gpuhunt_knows_nothing_about_is_dropped_by_it(cloud: VultrCloud) -> None:
    unknown = {plan.id for plan in PLANS.values() if plan.on_demand and _gpus(plan) is None}

    assert unknown == {"vbm-192c-3072gb-8-h200-gpu"}
    assert not unknown & {name for name, *_ in offered(api_key="sim-key")}


def test_a_region_that_runs_out_of_whole_gpus_is_no_longer_offered(cloud: VultrCloud) -> None:
    plan = "vcg-a40-24c-120g-48vram"
    assert {region for name, region, *_ in offered(api_key="sim-key") if name == plan} == {"blr"}

    cloud.settings = steady(capacity={f"blr/{plan}": 0})

    assert plan not in {name for name, *_ in offered(api_key="sim-key")}


def test_a_wrong_key_makes_the_live_stock_unknown_and_nothing_else(cloud: VultrCloud) -> None:
    cloud.settings = steady(api_keys=frozenset({"another"}))

    found = offered(api_key="sim-key")

    assert found == {offer for offer in expected(live=True) if PLANS[offer[0]].type != "vdm"}
    with pytest.raises(requests.HTTPError, match="401"):
        gpuhunt_vultr._get_vdm_locations("sim-key", ["ord"])
