"""Plans as offers: GPUs, prices per region, and what is left out and why."""

from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.offer import PlanKind
from gpulease.errors import InputInvalid
from gpulease.providers.vultr.catalog import KNOWN_GPUS, Gpu, gpu_model_name, gpu_of_plan, offers_of
from gpulease.providers.vultr.images import boot_fields
from gpulease.providers.vultr.models import MetalPlan, Plan


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "id": "vcg-l40s-32c-360g-96vram",
        "type": "vcg",
        "vcpu_count": 32,
        "ram": 368640,
        "disk": 2400,
        "disk_count": 1,
        "hourly_cost": Decimal("3.342"),
        "hourly_cost_preemptible": Decimal("1.671"),
        "locations": ["ewr"],
        "gpu_type": "NVIDIA_L40S",
        "gpu_vram_gb": 96,
        "gpu_count": 2,
    }
    return Plan.model_validate(fields | changes)


def metal(**changes: Any) -> MetalPlan:
    fields: dict[str, Any] = {
        "id": "vbm-72c-480gb-gh200-gpu",
        "cpu_count": 72,
        "cpu_threads": 72,
        "ram": 491520,
        "disk": 960,
        "type": "NVMe",
        "hourly_cost": Decimal("2.99"),
        "locations": ["atl"],
    }
    return MetalPlan.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("NVIDIA_A40", "A40"),
        ("nvidia a40", "A40"),
        ("A100_80GB", "A100"),
        ("NVIDIA_A100-80GB", "A100"),
        ("A100", "A100"),
        ("h100", "H100"),
        ("AMD_MI300X", "MI300X"),
        ("NVIDIA_L40S", "L40S"),
        ("RTX_A6000", "RTX-A6000"),
        ("  ", ""),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_one_gpu_has_one_name(given: str, name: str) -> None:
    assert gpu_model_name(given) == name


@pytest.mark.parametrize(
    ("changes", "gpu"),
    [
        ({}, Gpu("L40S", 2, 48)),
        ({"gpu_count": None}, Gpu("L40S", 2, 48)),
        ({"gpu_type": "NVIDIA_A16", "gpu_vram_gb": 2, "gpu_count": 1}, Gpu("A16", 1, 2)),
        ({"gpu_type": "NVIDIA_A16", "gpu_vram_gb": 2, "gpu_count": None}, Gpu("A16", 1, 2)),
        ({"gpu_type": "NVIDIA_A100", "gpu_vram_gb": 4, "gpu_count": 0}, Gpu("A100", 1, 4)),
        ({"gpu_type": "NVIDIA_X9", "gpu_vram_gb": 10, "gpu_count": None}, None),
        ({"gpu_type": "", "gpu_vram_gb": 10}, None),
        ({"gpu_vram_gb": 0}, None),
    ],
)
def test_the_gpus_of_a_plan_are_those_the_api_tells(changes: dict[str, Any], gpu: Gpu | None) -> None:
    assert gpu_of_plan(plan(**changes)) == gpu


def test_whole_gpu_vms_and_bare_metal_are_known_by_a_list() -> None:
    whole = plan(id="vcg-a40-24c-120g-48vram", type="vdm", gpu_type="", gpu_vram_gb=None, gpu_count=None)

    offers, skipped = offers_of([whole, metal()])

    assert not skipped
    by_plan = {offer.plan: offer for offer in offers}
    assert (by_plan[whole.id].gpu_model, by_plan[whole.id].gpu_memory_gib) == ("A40", 48)
    gh200 = by_plan["vbm-72c-480gb-gh200-gpu"]
    assert (gh200.kind, gh200.cpu_arch, gh200.gpu_model) == (PlanKind.BARE_METAL, "arm64", "GH200")
    assert gh200.memory_gib == 480


def test_the_list_of_known_gpus_is_plausible() -> None:
    for name, gpu in KNOWN_GPUS.items():
        assert gpu.model == gpu_model_name(gpu.model)
        assert 1 <= gpu.count <= 16 and 16 <= gpu.memory_gib <= 288
        assert (gpu.cpu_arch == "arm64") == (gpu.model == "GH200"), name


def test_unknown_and_preemptible_gpu_plans_are_named_and_cpu_plans_are_not() -> None:
    offers, skipped = offers_of(
        [
            plan(id="vcg-new", type="vdm", gpu_type=""),
            plan(id="vcg-h100-216c-1914gb-640vram", type="vdm", deploy_ondemand=False, locations=[]),
            plan(id="vcg-nowhere", locations=[]),
            metal(id="vbm-1c-9-x100-gpu"),
            plan(id="vc2-1c-1gb", type="vc2", gpu_type=""),
            metal(id="vbm-4c-32gb"),
            plan(id="vcg-free", hourly_cost=Decimal(0)),
        ]
    )

    assert offers == []
    why = {each.plan: each.why for each in skipped}
    assert set(why) == {
        "vcg-new",
        "vcg-h100-216c-1914gb-640vram",
        "vcg-nowhere",
        "vbm-1c-9-x100-gpu",
        "vcg-free",
    }
    assert "preemptible" in why["vcg-h100-216c-1914gb-640vram"]
    assert "not known" in why["vcg-new"] and "no region" in why["vcg-nowhere"]


def test_a_dearer_region_has_its_own_price() -> None:
    costs = {"sao": {"monthly_cost": 1, "hourly_cost": Decimal("5.013")}, "mia": {"monthly_cost": 1}}

    offers, _ = offers_of([plan(locations=["sao", "ewr", "mia", ""], location_cost=costs)])

    assert {offer.region: offer.price_per_hour_usd for offer in offers} == {
        "ewr": Decimal("3.342"),
        "mia": Decimal("3.342"),
        "sao": Decimal("5.013"),
    }


def test_an_empty_list_where_an_object_belongs_is_no_price() -> None:
    offers, _ = offers_of([plan(location_cost=[])])

    assert offers[0].price_per_hour_usd == Decimal("3.342")


@pytest.mark.parametrize(
    ("image", "fields"),
    [
        ("ubuntu-22.04", {"os_id": 1743}),
        ("ubuntu-24.04", {"os_id": 2284}),
        ("debian-12", {"os_id": 2136}),
        ("os:1743", {"os_id": 1743}),
        ("app:17", {"app_id": 17}),
        ("image:docker", {"image_id": "docker"}),
    ],
)
def test_images_stand_for_fields_of_the_create_call(image: str, fields: dict[str, object]) -> None:
    assert boot_fields(image, PlanKind.VM) == fields == boot_fields(image, PlanKind.BARE_METAL)


def test_without_an_image_both_kinds_get_one_with_docker() -> None:
    assert boot_fields(None, PlanKind.VM) == {"os_id": 1743}
    assert boot_fields(None, PlanKind.BARE_METAL) == {"image_id": "docker"}


@pytest.mark.parametrize(
    "image", ["", "ubuntu", "os:", "os:0", "os:-1", "os:1743x", "app:x", "image:", "image:../x", "snapshot:1", "os:१"]
)
def test_other_images_are_refused(image: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        boot_fields(image, PlanKind.VM)

    assert caught.value.field == "image"
