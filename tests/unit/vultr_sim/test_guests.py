"""What runs on simulated machines hears of their lives in order, at the machines' own times."""

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gpulease.providers.vultr.catalog import KNOWN_GPUS
from gpulease_sim.vultr import BlockBehaviour, VultrCloud
from gpulease_sim.vultr.catalog import PLANS
from gpulease_sim.vultr.gpus import gpus_of
from gpulease_sim.vultr.state_file import StateFile

from tests.support.vultr_world import GPU_METAL, START, STEADY, VultrWorld, steady

STEADY_BLOCK = BlockBehaviour(
    active_seconds=(0, 0), attach_seconds=(5, 5), detach_seconds=(5, 5), auto_detach_seconds=(20, 20)
)
USER_DATA = b"#cloud-config\n{}\n"


class Told:
    """A host that writes everything down: what, to whom, at which second, and the rest."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, float, object]] = []

    def booted(self, machine_id: str, user_data: bytes, gpus: int, at: datetime) -> None:
        self._note("booted", machine_id, at, (user_data, gpus))

    def stopped(self, machine_id: str, at: datetime) -> None:
        self._note("stopped", machine_id, at)

    def ended(self, machine_id: str, at: datetime) -> None:
        self._note("ended", machine_id, at)

    def volume_attached(self, machine_id: str, volume_id: str, at: datetime) -> None:
        self._note("attached", machine_id, at, volume_id)

    def volume_detached(self, machine_id: str, volume_id: str, at: datetime) -> None:
        self._note("detached", machine_id, at, volume_id)

    def _note(self, what: str, machine_id: str, at: datetime, rest: object = None) -> None:
        assert at.tzinfo is UTC
        self.events.append((what, machine_id, at.timestamp() - START, rest))

    def of(self, machine_id: str) -> list[tuple[str, float]]:
        return [(what, at) for what, whose, at, _ in self.events if whose == machine_id]


def guest_world(told: Told, **settings: Any) -> VultrWorld:
    world = VultrWorld(steady(block=STEADY_BLOCK, **settings))
    world.cloud = VultrCloud(lambda: world.now, 1, world.settings, guests=told)
    return world


def create(world: VultrWorld) -> str:
    return str(world.create_vm(user_data=base64.b64encode(USER_DATA).decode())["id"])


def pass_time(world: VultrWorld, seconds: float) -> None:
    world.wait(seconds)
    world.cloud.tell_guests()


def test_a_machine_boots_with_its_user_data_when_its_system_is_up_and_not_before() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)

    pass_time(world, 89)
    assert told.events == []
    assert world.cloud.next_guest_event() == START + 90
    pass_time(world, 1000)

    assert told.events == [("booted", machine_id, 90.0, (USER_DATA, 1))]
    assert world.cloud.next_guest_event() is None


def test_halt_start_and_reboot_are_told_once_each() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)
    pass_time(world, 100)

    world.call("POST", f"/instances/{machine_id}/halt")
    world.call("POST", f"/instances/{machine_id}/halt")
    pass_time(world, 100)
    world.call("POST", f"/instances/{machine_id}/start")
    pass_time(world, 100)
    world.call("POST", f"/instances/{machine_id}/reboot")
    pass_time(world, 100)

    assert told.of(machine_id) == [
        ("booted", 90.0),
        ("stopped", 110.0),
        ("booted", 240.0),
        ("stopped", 310.0),
        ("booted", 350.0),
    ]


def test_a_boot_that_a_halt_overtakes_never_happens() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)
    pass_time(world, 61)

    world.call("POST", f"/instances/{machine_id}/halt")
    pass_time(world, 1000)

    assert told.of(machine_id) == []


def test_a_destroyed_machine_stops_at_once_and_ends_when_it_is_gone() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)
    pass_time(world, 100)

    world.call("DELETE", f"/instances/{machine_id}")
    pass_time(world, 1000)

    assert told.of(machine_id) == [("booted", 90.0), ("stopped", 100.0), ("ended", 110.0)]


def test_a_machine_that_vanishes_or_is_removed_by_hand_ends() -> None:
    told = Told()
    world = guest_world(told, vm=replace(STEADY, vanish_after_seconds=(200, 200)))
    first = create(world)
    second = create(world)
    world.wait(100)

    world.cloud.remove_by_hand(second)
    pass_time(world, 1000)

    assert told.of(first) == [("booted", 90.0), ("ended", 200.0)]
    assert told.of(second) == [("booted", 90.0), ("ended", 100.0)]


def test_a_machine_that_gets_stuck_never_boots() -> None:
    told = Told()
    world = guest_world(told, vm=replace(STEADY, stuck="installingbooting"))
    create(world)

    pass_time(world, 100_000)

    assert told.events == []


def test_blocks_come_and_go_when_they_show() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)
    block_id = world.call("POST", "/blocks", {"region": "ord", "size_gb": 50}).json()["block"]["id"]
    pass_time(world, 100)

    world.call("POST", f"/blocks/{block_id}/attach", {"instance_id": machine_id, "live": True})
    pass_time(world, 10)
    world.call("POST", f"/blocks/{block_id}/detach", {"live": True})
    pass_time(world, 10)
    world.call("POST", f"/blocks/{block_id}/attach", {"instance_id": machine_id, "live": True})
    pass_time(world, 10)
    world.call("DELETE", f"/instances/{machine_id}")
    pass_time(world, 100)

    assert told.of(machine_id) == [
        ("booted", 90.0),
        ("attached", 105.0),
        ("detached", 115.0),
        ("attached", 125.0),
        ("stopped", 130.0),
        ("ended", 140.0),
    ]
    assert {rest for what, _, _, rest in told.events if what.startswith(("att", "det"))} == {block_id}


def test_every_call_to_the_api_tells_what_happened_before_it() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)
    world.wait(300)

    world.call("DELETE", f"/instances/{machine_id}")

    assert told.of(machine_id) == [("booted", 90.0)]
    world.wait(5)
    world.get("/vpcs")
    assert told.of(machine_id)[-1] == ("stopped", 300.0)


def test_how_often_anybody_looks_changes_nothing() -> None:
    def lives(step: float) -> list[tuple[str, str, float, object]]:
        told = Told()
        world = VultrWorld(seed=7)
        world.cloud = VultrCloud(lambda: world.now, 7, guests=told)
        ids = [create(world) for _ in range(10)]
        for _ in range(int(600 / step)):
            pass_time(world, step)
        for machine_id in ids:
            world.call("POST", f"/instances/{machine_id}/reboot")
        for _ in range(int(600 / step)):
            pass_time(world, step)
        return told.events

    assert lives(600) == lives(1) != []


def test_missing_gpus_are_not_seen_by_the_guest() -> None:
    told = Told()
    world = guest_world(told, vm=replace(STEADY, missing_gpus=1))
    create(world)

    pass_time(world, 100)

    assert told.events[0][3] == (USER_DATA, 0)


@pytest.mark.parametrize(
    ("plan", "count"),
    [
        ("vc2-1c-1gb", 0),
        ("vbm-4c-32gb", 0),
        ("vcg-l40s-32c-360g-96vram", 2),
        ("vcg-a100-96c-960g-640vram", 8),
        ("vbm-72c-480gb-gh200-gpu", 1),
        ("vbm-48c-1024gb-4-a100-gpu", 4),
        (GPU_METAL, 8),
    ],
)
def test_a_plan_has_the_gpus_that_it_is_sold_with(plan: str, count: int) -> None:
    assert gpus_of(plan) == count


def test_guests_see_as_many_gpus_as_offers_promise() -> None:
    known = {plan: KNOWN_GPUS[plan].count for plan in PLANS if plan in KNOWN_GPUS}

    assert len(known) > 10
    assert {plan: gpus_of(plan) for plan in known} == known
    assert all(gpus_of(plan) for plan in PLANS if plan.startswith("vcg-"))


def test_after_a_restart_of_the_simulator_machines_that_run_boot_anew(tmp_path: Path) -> None:
    world = VultrWorld(steady(block=STEADY_BLOCK))
    world.cloud = VultrCloud(lambda: world.now, 1, world.settings, StateFile(tmp_path / "state.db"), Told())
    up, halted = create(world), create(world)
    block_id = world.call("POST", "/blocks", {"region": "ord", "size_gb": 50}).json()["block"]["id"]
    world.wait(100)
    world.call("POST", f"/instances/{halted}/halt")
    world.call("POST", f"/blocks/{block_id}/attach", {"instance_id": up, "live": True})
    world.wait(100)
    starting = create(world)

    told = Told()
    world.cloud = VultrCloud(lambda: world.now, 1, None, StateFile(tmp_path / "state.db"), told)
    pass_time(world, 0)
    pass_time(world, 1000)

    assert told.of(up) == [("booted", 200.0), ("attached", 200.0)]
    assert told.of(halted) == []
    assert told.of(starting) == [("booted", 290.0)]


def test_an_emptied_account_ends_all_machines() -> None:
    told = Told()
    world = guest_world(told)
    machine_id = create(world)
    world.wait(100)

    world.cloud.reset()

    assert told.of(machine_id) == [("booted", 90.0), ("ended", 100.0)]
    pass_time(world, 1000)
    assert len(told.events) == 2
