"""A simulated Vultr on a virtual clock, with the few calls that its tests make all the time."""

import json
from dataclasses import dataclass, field
from typing import Any

from gpulease_sim.vultr import Behaviour, Settings, SimResponse, VultrCloud

START = 1_790_000_000.0
KEY = "sim-key"
GPU_VM = "vcg-l40s-16c-180g-48vram"
GPU_METAL = "vbm-112c-2048gb-8-h100-gpu"

STEADY = Behaviour(
    active_seconds=(20, 20),
    ok_seconds=(40, 40),
    slow_ok_probability=0,
    locked_seconds=(5, 5),
    lock_tail_seconds=(0, 0),
    ssh_seconds=(30, 30),
    restart_seconds=(10, 10),
    list_lag_seconds=(0, 0),
    destruction_seconds=(10, 10),
    destruction_get_error_probability=0,
    quota_hold_seconds=(60, 60),
    vpc_hold_seconds=(15, 15),
    slow_vpc_hold_probability=0,
    create_vpc_seconds=(7, 7),
    vpc_address_seconds=(0, 0),
    attach_failures=(0, 0),
    attach_seconds=(5, 5),
    detach_seconds=(20, 20),
)
"""A VM without luck: active at 20 s, unlocked at 25 s, ok at 60 s, SSH at 90 s."""

STEADY_METAL = Behaviour(
    active_seconds=(1800, 1800),
    ok_seconds=(0, 0),
    slow_ok_probability=0,
    locked_seconds=(0, 0),
    lock_tail_seconds=(0, 0),
    ssh_seconds=(120, 120),
    list_lag_seconds=(0, 0),
    destruction_seconds=(10, 10),
    destruction_get_error_probability=0,
    vpc_hold_seconds=(15, 15),
    slow_vpc_hold_probability=0,
    vpc_address_seconds=(0, 0),
    attach_failures=(0, 0),
    attach_seconds=(5, 5),
)


def steady(**values: Any) -> Settings:
    """Settings under which nothing is left to chance."""
    return Settings(**({"vm": STEADY, "metal": STEADY_METAL, "requests_per_second": None} | values))


@dataclass
class VultrWorld:
    """A cloud, its clock, and a client that sends what the real ones send."""

    settings: Settings = field(default_factory=steady)
    seed: int = 1
    now: float = START

    def __post_init__(self) -> None:
        self.cloud = VultrCloud(lambda: self.now, self.seed, self.settings)

    def call(
        self, method: str, path: str, body: object = None, key: str = KEY, client: str = "192.0.2.1", **query: str
    ) -> SimResponse:
        """One API call; the clock moves by what it took."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if content:
            headers["Content-Type"] = "application/json"
        response = self.cloud.handle(method, path, query, headers, content, client)
        self.now += response.elapsed_seconds
        return response

    def get(self, path: str, **query: str) -> Any:
        """The decoded body of a GET that must work."""
        response = self.call("GET", path, **query)
        assert response.status == 200, response
        return response.json()

    def create_vm(self, **body: Any) -> dict[str, Any]:
        """A GPU VM that must be accepted."""
        response = self.call("POST", "/instances", {"region": "ord", "plan": GPU_VM, "os_id": 1743, **body})
        assert response.status == 202, response
        instance: dict[str, Any] = response.json()["instance"]
        return instance

    def create_metal(self, **body: Any) -> dict[str, Any]:
        """A GPU bare metal machine that must be accepted."""
        response = self.call("POST", "/bare-metals", {"region": "sea", "plan": GPU_METAL, "os_id": 1743, **body})
        assert response.status == 202, response
        machine: dict[str, Any] = response.json()["bare_metal"]
        return machine

    def create_vpc(self, region: str = "ord", description: str = "") -> str:
        """The id of a new VPC."""
        response = self.call("POST", "/vpcs", {"region": region, "description": description})
        assert response.status == 201, response
        return str(response.json()["vpc"]["id"])

    def vm(self, machine_id: str) -> dict[str, Any]:
        """A VM as the API shows it."""
        instance: dict[str, Any] = self.get(f"/instances/{machine_id}")["instance"]
        return instance

    def state(self, machine_id: str) -> tuple[str, str, str]:
        """(status, power_status, server_status)."""
        shown = self.vm(machine_id)
        return shown["status"], shown["power_status"], shown["server_status"]

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.now += seconds

    def running_vm(self, **body: Any) -> str:
        """The id of a VM that is ready."""
        instance = self.create_vm(**body)
        self.wait(100)
        return str(instance["id"])


def error_of(response: SimResponse) -> tuple[int, str]:
    """Status and text of a refusal."""
    body = response.json()
    assert body["status"] == response.status
    return response.status, body["error"]
