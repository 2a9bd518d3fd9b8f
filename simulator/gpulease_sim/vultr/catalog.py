"""What the simulated provider sells: regions, plans, operating systems, applications.

Ids, prices and GPU sizes are the publicly known ones of 2026 where there are any; CPU plans are a sample. Two products
share the prefix `vcg-`: `type: vcg` (with `gpu_*` fields) and `type: vdm` (whole GPUs, without). `locations` is what
the plan list claims, `stock` where machines can really be had; they differ on purpose.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

VM_CAP_HOURS = 672
"""Hours after which a month of a CPU plan or of a bare metal machine is paid in full."""
CLOUD_GPU_CAP_HOURS = 730


@dataclass(frozen=True, slots=True)
class Region:
    """A place with machines."""

    id: str
    city: str
    country: str
    continent: str
    block_nvme: bool
    price_factor: Decimal = Decimal(1)

    def wire(self) -> dict[str, Any]:
        """As `GET /regions` shows it."""
        options = ["ddos_protection", *(["block_storage_high_perf"] if self.block_nvme else []), "kubernetes"]
        if self.id != "syd":
            options.insert(1, "block_storage_storage_opt")
        return {
            "id": self.id,
            "city": self.city,
            "country": self.country,
            "continent": self.continent,
            "options": options,
            "connectivity": ["public_ip", "nat_gateway"],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Something that can be rented by the hour."""

    id: str
    type: str
    cpus: int
    ram_mb: int
    disk_gb: int
    monthly_usd: Decimal
    locations: tuple[str, ...]
    stock: tuple[str, ...]
    disk_count: int = 1
    disk_type: str = "SSD"
    gpu_type: str = ""
    gpu_vram_gb: int = 0
    gpu_count: int = 0
    on_demand: bool = True
    cpu_model: str = ""

    @property
    def metal(self) -> bool:
        """Bare metal, rented through its own routes."""
        return self.id.startswith("vbm-")

    @property
    def cap_hours(self) -> int:
        """After how many hours of a month the month is paid in full."""
        return CLOUD_GPU_CAP_HOURS if self.id.startswith("vcg-") else VM_CAP_HOURS

    @property
    def shown_hourly_usd(self) -> Decimal:
        """`hourly_cost` of the API: monthly/672 for bare metal, monthly/730 for every VM."""
        return _hourly(self.monthly_usd, VM_CAP_HOURS if self.metal else CLOUD_GPU_CAP_HOURS)

    @property
    def billed_hourly_usd(self) -> Decimal:
        """What an hour really costs: for a CPU VM more than `hourly_cost` says."""
        return _hourly(self.monthly_usd, self.cap_hours)

    def wire(self) -> dict[str, Any]:
        """As `GET /plans` or `GET /plans-metal` shows it."""
        monthly, hourly = float(self.monthly_usd), float(self.shown_hourly_usd)
        costs = {
            "monthly_cost": monthly,
            "hourly_cost": hourly,
            "monthly_cost_preemptible": float(round(self.monthly_usd / 2, 2)),
            "hourly_cost_preemptible": float(round(self.shown_hourly_usd / 2, 3)),
        }
        if self.metal:
            return {
                "id": self.id,
                "physical_cpus": 1 if self.cpus < 100 else 2,
                "cpu_count": self.cpus,
                "cpu_cores": self.cpus,
                "cpu_threads": self.cpus * 2,
                "cpu_model": self.cpu_model,
                "cpu_mhz": 2000,
                "ram": self.ram_mb,
                "disk": self.disk_gb,
                "disk_count": self.disk_count,
                "bandwidth": 10240,
                **costs,
                "type": "NVMe",
                "locations": list(self.locations),
                "deploy_ondemand": self.on_demand,
            }
        plan: dict[str, Any] = {
            "id": self.id,
            "vcpu_count": self.cpus,
            "ram": self.ram_mb,
            "disk": self.disk_gb,
            "disk_count": self.disk_count,
            "disk_type": self.disk_type,
            "bandwidth": 10240,
            "invoice_type": "hourly",
            **costs,
            "type": self.type,
            "locations": list(self.locations),
            "location_cost": {
                region: {
                    "monthly_cost": float(round(self.monthly_usd * factor, 2)),
                    "hourly_cost": float(round(self.shown_hourly_usd * factor, 3)),
                }
                for region, factor in _DEARER.items()
                if region in self.locations
            },
            "deploy_ondemand": self.on_demand,
        }
        if self.gpu_type:
            plan |= {"gpu_vram_gb": self.gpu_vram_gb, "gpu_type": self.gpu_type, "gpu_count": self.gpu_count}
        return plan


def _hourly(monthly: Decimal, hours: int) -> Decimal:
    return round(monthly / hours, 3)


_DEARER = {"sao": Decimal("1.5")}

_NVME = {"atl", "ams", "blr", "ord", "lax", "lhr", "ewr", "sea", "sgp", "syd", "nrt"}

REGIONS: dict[str, Region] = {
    row[0]: Region(*row, block_nvme=row[0] in _NVME, price_factor=_DEARER.get(row[0], Decimal(1)))
    for row in (
        ("atl", "Atlanta", "US", "North America"),
        ("dfw", "Dallas", "US", "North America"),
        ("ewr", "New Jersey", "US", "North America"),
        ("hnl", "Honolulu", "US", "North America"),
        ("lax", "Los Angeles", "US", "North America"),
        ("mex", "Mexico City", "MX", "North America"),
        ("mia", "Miami", "US", "North America"),
        ("ord", "Chicago", "US", "North America"),
        ("sao", "São Paulo", "BR", "South America"),
        ("scl", "Santiago", "CL", "South America"),
        ("sea", "Seattle", "US", "North America"),
        ("sjc", "Silicon Valley", "US", "North America"),
        ("yto", "Toronto", "CA", "North America"),
        ("ams", "Amsterdam", "NL", "Europe"),
        ("cdg", "Paris", "FR", "Europe"),
        ("fra", "Frankfurt", "DE", "Europe"),
        ("lhr", "London", "GB", "Europe"),
        ("mad", "Madrid", "ES", "Europe"),
        ("man", "Manchester", "GB", "Europe"),
        ("mxp", "Milan", "IT", "Europe"),
        ("sto", "Stockholm", "SE", "Europe"),
        ("waw", "Warsaw", "PL", "Europe"),
        ("blr", "Bangalore", "IN", "Asia"),
        ("bom", "Mumbai", "IN", "Asia"),
        ("del", "Delhi NCR", "IN", "Asia"),
        ("icn", "Seoul", "KR", "Asia"),
        ("itm", "Osaka", "JP", "Asia"),
        ("mel", "Melbourne", "AU", "Australia"),
        ("nrt", "Tokyo", "JP", "Asia"),
        ("sgp", "Singapore", "SG", "Asia"),
        ("syd", "Sydney", "AU", "Australia"),
        ("jnb", "Johannesburg", "ZA", "Africa"),
        ("tlv", "Tel Aviv", "IL", "Asia"),
    )
}
EVERYWHERE = tuple(REGIONS)


def _vm(
    plan_id: str,
    kind: str,
    cpus: int,
    ram_gb: int,
    disk_gb: int,
    monthly: str,
    locations: str | tuple[str, ...],
    stock: str | tuple[str, ...],
    gpu: str = "",
    vram_gb: int = 0,
    gpus: int = 0,
    on_demand: bool = True,
) -> Plan:
    disk_type = {"vcg": "CLOUDGPU", "vdm": "DEDICATEDMETAL", "vhf": "NVMe", "vhp": "NVMe"}.get(kind, "SSD")
    return Plan(
        plan_id,
        kind,
        cpus,
        ram_gb * 1024,
        disk_gb,
        Decimal(monthly),
        tuple(locations.split()) if isinstance(locations, str) else locations,
        tuple(stock.split()) if isinstance(stock, str) else stock,
        disk_type=disk_type,
        gpu_type=gpu,
        gpu_vram_gb=vram_gb,
        gpu_count=gpus,
        on_demand=on_demand,
    )


def _metal(
    plan_id: str,
    cpus: int,
    ram_gb: int,
    disk_gb: int,
    disks: int,
    monthly: str,
    locations: str,
    stock: str,
    cpu: str,
) -> Plan:
    return Plan(
        plan_id,
        "vbm",
        cpus,
        ram_gb * 1024,
        disk_gb,
        Decimal(monthly),
        tuple(locations.split()),
        tuple(stock.split()),
        disk_count=disks,
        cpu_model=cpu,
    )


_LARGE = "atl ewr ord lax sea ams fra lhr nrt sgp syd blr"

PLANS: dict[str, Plan] = {
    plan.id: plan
    for plan in (
        # CPU plans
        _vm("vc2-1c-1gb", "vc2", 1, 1, 25, "5", EVERYWHERE, EVERYWHERE),
        _vm("vc2-2c-4gb", "vc2", 2, 4, 80, "20", EVERYWHERE, EVERYWHERE),
        _vm("vhf-2c-4gb", "vhf", 2, 4, 128, "24", EVERYWHERE, EVERYWHERE),
        _vm("vhp-4c-8gb-amd", "vhp", 4, 8, 180, "48", _LARGE, _LARGE),
        _vm("voc-c-8c-16gb-150s-amd", "voc", 8, 16, 150, "160", _LARGE, _LARGE),
        # Fractional and whole GPUs sold as cloud GPU
        _vm(
            "vcg-a16-2c-8g-2vram",
            "vcg",
            2,
            8,
            50,
            "43",
            _LARGE,
            "ewr ord ams fra nrt blr",
            "NVIDIA_A16",
            2,
            1,
        ),
        _vm(
            "vcg-a40-12c-60g-24vram",
            "vcg",
            12,
            60,
            700,
            "625",
            "ewr lax ams blr",
            "ewr lax ams blr",
            "NVIDIA_A40",
            24,
            1,
        ),
        _vm(
            "vcg-a100-1c-6g-4vram",
            "vcg",
            1,
            6,
            70,
            "90",
            "ewr ord sea ams",
            "ewr ord ams",
            "NVIDIA_A100",
            4,
            1,
        ),
        _vm(
            "vcg-l40s-16c-180g-48vram",
            "vcg",
            16,
            180,
            1200,
            "1219.83",
            "ewr ord fra sgp",
            "ewr ord fra sgp",
            "NVIDIA_L40S",
            48,
            1,
        ),
        _vm(
            "vcg-l40s-32c-360g-96vram",
            "vcg",
            32,
            360,
            2400,
            "2439.66",
            "ewr ord fra",
            "ord fra",
            "NVIDIA_L40S",
            96,
            2,
        ),
        # Whole GPUs: no GPU fields, and `locations` says little
        _vm("vcg-a16-6c-64g-16vram", "vdm", 6, 64, 350, "350.40", "ewr ams", "ewr ord ams nrt"),
        _vm("vcg-a40-24c-120g-48vram", "vdm", 24, 120, 1400, "1249.76", "ewr lax ams blr", "blr"),
        _vm("vcg-a100-12c-120g-80vram", "vdm", 12, 120, 1400, "1750", "ewr", "ewr ord sea ams"),
        _vm("vcg-a100-96c-960g-640vram", "vdm", 96, 960, 2500, "14000", "ewr", "ewr ord"),
        _vm("vcg-h100-216c-1914gb-640vram", "vdm", 216, 1914, 8000, "15768", "", "ord", on_demand=False),
        _vm("vcg-b200-248c-2826g-1536vram", "vdm", 248, 2826, 10000, "28032", "", "ord", on_demand=False),
        _vm("vcg-mi325x-252c-2872g-1536vram", "vdm", 252, 2872, 10000, "17520", "", "ord", on_demand=False),
        _vm("vcg-mi355x-252c-2872g-2304vram", "vdm", 252, 2872, 10000, "20440", "ord", "ord atl"),
        # Bare metal
        _metal("vbm-4c-32gb", 4, 32, 240, 2, "120", _LARGE, _LARGE, "E3-1270 v6"),
        _metal("vbm-72c-480gb-gh200-gpu", 72, 480, 960, 1, "2009", "atl ewr", "atl", "NVIDIA Grace"),
        _metal("vbm-48c-1024gb-4-a100-gpu", 48, 1024, 450, 2, "7000", "ewr sea ams", "ewr ams", "EPYC 7443"),
        _metal(
            "vbm-112c-2048gb-8-a100-gpu",
            112,
            2048,
            960,
            2,
            "15053",
            "ewr sea fra",
            "ewr sea",
            "Platinum 8480+",
        ),
        _metal("vbm-64c-2048gb-8-l40-gpu", 64, 2048, 480, 2, "12000", "ewr ord", "ord", "EPYC 9354"),
        _metal(
            "vbm-112c-2048gb-8-h100-gpu",
            112,
            2048,
            960,
            2,
            "16074.24",
            "ewr sea blr",
            "ewr sea",
            "Platinum 8480+",
        ),
        _metal("vbm-256c-2048gb-8-mi300x-gpu", 128, 2048, 480, 2, "11773.44", "ord atl", "ord", "EPYC 9534"),
        _metal("vbm-256c-3072gb-8-b200-gpu", 128, 3072, 960, 2, "45696", "ord", "ord", "EPYC 9575F"),
        # Not a plan of the real provider: stands for a new one that clients have no data of
        _metal("vbm-192c-3072gb-8-h200-gpu", 96, 3072, 960, 2, "20160", "ord", "ord", "EPYC 9654"),
        _metal("vbm-24c-256gb-amd", 24, 256, 480, 2, "725", _LARGE, "ewr ord ams", "EPYC 7443P"),
    )
}

AVAILABILITY_TYPES = (
    *("all", "vbm", "vdc", "vhp", "vhf", "vc2", "voc", "vcg", "vdg", "vdm", "vx1"),
    *("voc-g", "voc-s", "voc-c", "voc-m"),
)

SYSTEMS: dict[int, dict[str, Any]] = {
    os_id: {"id": os_id, "name": name, "arch": "x64", "family": family}
    for os_id, name, family in (
        (159, "Custom", "iso"),
        (164, "Snapshot", "snapshot"),
        (186, "Application", "application"),
        (1743, "Ubuntu 22.04 LTS x64", "ubuntu"),
        (2284, "Ubuntu 24.04 LTS x64", "ubuntu"),
        (2760, "Ubuntu 26.04 LTS x64", "ubuntu"),
        (2136, "Debian 12 x64 (bookworm)", "debian"),
        (2625, "Debian 13 x64 (trixie)", "debian"),
    )
}

APPLICATIONS: tuple[dict[str, Any], ...] = tuple(
    {
        "id": app_id,
        "name": name,
        "short_name": short,
        "deploy_name": f"{name} on Ubuntu 22.04 x64",
        "type": kind,
        "vendor": "vultr",
        "image_id": image,
    }
    for app_id, name, short, kind, image in (
        (17, "Docker", "docker", "one-click", ""),
        (1028, "Docker", "docker", "marketplace", "docker"),
        (1056, "NVIDIA CUDA", "cuda", "marketplace", "nvidia-cuda"),
    )
)
