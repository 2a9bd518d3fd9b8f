"""Whatever is asked of the simulated account in whatever order: list, book and file agree, and all of it can end."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpulease_sim.vultr import Behaviour, MachineRule, Settings, VultrCloud
from gpulease_sim.vultr.settings import METAL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.vultr_world import GPU_VM, KEY, START, VultrWorld

OPEN = replace(Behaviour(), list_lag_seconds=(0, 0))
OPEN_METAL = replace(METAL, list_lag_seconds=(0, 0), get_lag_seconds=(0, 0))
STATE_CONFLICTS = {204, 202, 201, 400, 404, 500}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["vm", "metal", "vpc"]), st.just(0), st.just(0)),
        st.tuples(
            st.sampled_from(["delete", "attach", "detach", "halt", "start", "reboot", "reinstall", "remove"]),
            st.integers(0, 9),
            st.integers(0, 4),
        ),
        st.tuples(st.just("drop"), st.just(0), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.integers(1, 900), st.just(0)),
    ),
    max_size=40,
)


class Chaos:
    """Does what a list of steps says and keeps what it made."""

    def __init__(self, seed: int) -> None:
        self.world = VultrWorld(Settings(requests_per_second=None, vm=OPEN, metal=OPEN_METAL), seed)
        self.machines: list[str] = []
        self.vpcs: list[str] = []

    def do(self, step: tuple[str, int, int]) -> None:
        kind, first, second = step
        world = self.world
        if kind == "wait":
            world.wait(first)
        elif kind == "vm":
            self.machines.append(f"/instances/{world.create_vm()['id']}")
        elif kind == "metal":
            self.machines.append(f"/bare-metals/{world.create_metal(region='ewr')['id']}")
        elif kind == "vpc":
            answer = world.call("POST", "/vpcs", {"region": "ord"})
            if answer.status == 201:
                self.vpcs.append(answer.json()["vpc"]["id"])
        elif kind == "drop" and self.vpcs:
            self.allowed("DELETE", f"/vpcs/{self.vpcs[second % len(self.vpcs)]}")
        elif self.machines:
            path = self.machines[first % len(self.machines)]
            if kind == "remove" and path.rsplit("/", 1)[1] in world.cloud.account.machines:
                world.cloud.remove_by_hand(path.rsplit("/", 1)[1])
            elif kind == "delete":
                self.allowed("DELETE", path)
            elif kind in ("halt", "start", "reboot"):
                self.allowed("POST", f"{path}/{kind}")
            elif kind == "reinstall":
                self.allowed("POST", f"{path}/reinstall", {})
            elif kind in ("attach", "detach") and self.vpcs:
                body = {"vpc_id": self.vpcs[second % len(self.vpcs)]}
                self.allowed("POST", f"{path}/vpcs/{kind}", body)

    def allowed(self, method: str, path: str, body: object = None) -> None:
        assert self.world.call(method, path, body).status in STATE_CONFLICTS

    def listed(self) -> Iterator[str]:
        for path, key in (("/instances", "instances"), ("/bare-metals", "bare_metals"), ("/vpcs", "vpcs")):
            yield from (each["id"] for each in self.world.get(path, per_page="500")[key])

    def book_agrees(self) -> None:
        assert sorted(self.listed()) == sorted(each.id for each in self.world.cloud.book.billed())

    def give_everything_back(self) -> None:
        for _ in range(400):
            left = list(self.listed())
            if not left:
                return
            for object_id in left:
                for collection in ("instances", "bare-metals", "vpcs"):
                    self.world.call("DELETE", f"/{collection}/{object_id}")
            self.world.wait(30)
        raise AssertionError(f"still there: {self.world.cloud.book.billed()}")


@given(st.integers(0, 1000), STEPS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_lists_and_book_agree_at_every_moment_and_everything_can_be_given_back(
    seed: int, steps: list[tuple[str, int, int]]
) -> None:
    chaos = Chaos(seed)

    for step in steps:
        chaos.do(step)
        chaos.book_agrees()

    chaos.give_everything_back()
    assert chaos.world.cloud.book.billed() == []


def test_calls_from_many_threads_make_one_object_each() -> None:
    cloud = VultrCloud(lambda: START, settings=Settings(requests_per_second=None))
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    body = json.dumps({"region": "ord", "plan": GPU_VM, "os_id": 1743}).encode()
    made: list[Any] = []

    def create() -> None:
        for _ in range(50):
            made.append(cloud.handle("POST", "/instances", {}, headers, body).json()["instance"])

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({each["id"] for each in made}) == len(cloud.book.billed()) == 400
    assert len({cloud.machine(each["id"]).address for each in made}) == 400


def test_the_calls_that_were_made_are_remembered() -> None:
    world = VultrWorld()
    world.create_vm()
    world.call("GET", "/instances/none")

    assert [(call.method, call.path, call.status) for call in world.cloud.calls] == [
        ("POST", "/instances", 202),
        ("GET", "/instances/none", 404),
    ]


@pytest.mark.parametrize("minutes", [42, 0.5])
def test_a_boot_time_for_one_plan_is_exact(minutes: float) -> None:
    rule = MachineRule(plan="vbm-.*h100.*", change={"active_seconds": minutes * 60, "ssh_seconds": 300})
    world = VultrWorld(Settings(rules=(rule,)))
    machine = world.cloud.machine(world.create_metal()["id"])

    assert machine.active_at() == START + minutes * 60
    world.now = machine.active_at() + 299
    assert not world.cloud.ssh_open(machine.address)
    world.wait(1)
    assert world.cloud.ssh_open(machine.address)
