"""How a simulated machine comes up, step by step, on a virtual clock."""

import math
from dataclasses import replace

import pytest
from gpulease_sim.vultr import MachineRule, Settings

from tests.support.vultr_world import START, STEADY, STEADY_METAL, VultrWorld, error_of, steady


def test_a_vm_is_active_before_it_runs_and_running_before_it_is_ok() -> None:
    world = VultrWorld()
    instance = world.create_vm()

    seen: list[tuple[str, str, str]] = []
    for _ in range(100):
        state = world.state(instance["id"])
        if not seen or seen[-1] != state:
            seen.append(state)
        world.wait(1)

    assert seen == [
        ("pending", "running", "none"),
        ("active", "stopped", "locked"),
        ("active", "running", "installingbooting"),
        ("active", "running", "ok"),
    ]


def test_a_vm_has_no_address_until_it_is_active() -> None:
    world = VultrWorld()
    instance = world.create_vm()
    assert instance["main_ip"] == "0.0.0.0"  # noqa: S104

    world.wait(19)
    assert world.vm(instance["id"])["main_ip"] == "0.0.0.0"  # noqa: S104
    world.wait(1)
    assert world.vm(instance["id"])["main_ip"] == world.cloud.machine(instance["id"]).address


def test_default_vm_timings_stay_within_what_was_measured() -> None:
    world = VultrWorld(Settings(requests_per_second=None))
    for _ in range(200):
        world.create_vm()

    machines = list(world.cloud.account.machines.values())
    active = [machine.active_at() - START for machine in machines]
    ok = [machine.timeline[-1].at - START for machine in machines]

    assert min(active) >= 15 and max(active) <= 30
    assert min(ok) >= 30 and max(ok) <= 260
    assert 45 < sorted(ok)[100] < 75
    assert len({round(each, 3) for each in active}) > 150


def test_every_machine_has_an_address_of_its_own() -> None:
    world = VultrWorld()
    ids = [world.create_vm()["id"] for _ in range(300)]
    world.wait(100)

    assert len({world.cloud.machine(each).address for each in ids}) == 300


def test_the_password_is_in_the_create_answer_only() -> None:
    world = VultrWorld()
    instance = world.create_vm()

    assert instance["default_password"]
    assert "default_password" not in world.vm(instance["id"])


def test_ssh_opens_some_time_after_the_machine_is_ok_and_closes_with_it() -> None:
    world = VultrWorld()
    instance = world.create_vm()
    address = world.cloud.machine(instance["id"]).address

    world.wait(89)
    assert world.state(instance["id"])[2] == "ok"
    assert not world.cloud.ssh_open(address)
    world.wait(1)
    assert world.cloud.ssh_open(address)
    assert not world.cloud.ssh_open(address, 80)
    assert not world.cloud.ssh_open("198.51.100.9")

    world.call("DELETE", f"/instances/{instance['id']}")
    assert not world.cloud.ssh_open(address)


@pytest.mark.parametrize(
    ("stuck", "state"),
    [("pending", ("pending", "running", "none")), ("installingbooting", ("active", "running", "installingbooting"))],
)
def test_a_stuck_machine_stays_so_for_ever_and_can_be_deleted(stuck: str, state: tuple[str, str, str]) -> None:
    world = VultrWorld(steady(rules=(MachineRule(match="^bad", change={"stuck": stuck}),)))
    bad, good = world.create_vm(label="bad-1"), world.create_vm(label="good")

    world.wait(86_400)

    assert world.state(bad["id"]) == state
    assert world.state(good["id"]) == ("active", "running", "ok")
    assert not world.cloud.ssh_open(world.cloud.machine(bad["id"]).address)
    assert world.call("DELETE", f"/instances/{bad['id']}").status == 204


def test_rules_pick_machines_by_tag_plan_region_and_number() -> None:
    world = VultrWorld(
        steady(
            rules=(
                MachineRule(match="slow=1", change={"active_seconds": 500}),
                MachineRule(nth=(2,), change={"active_seconds": 600}),
                MachineRule(plan="vcg-a16-.*", change={"active_seconds": 700}),
                MachineRule(region="fra", change={"active_seconds": (800, 800)}),
            )
        )
    )

    ids = [
        world.create_vm(tags=["slow=1"])["id"],
        world.create_vm()["id"],
        world.create_vm(plan="vcg-a16-2c-8g-2vram")["id"],
        world.create_vm(region="fra")["id"],
        world.create_vm()["id"],
    ]

    assert [world.cloud.machine(each).active_at() - START for each in ids] == [500, 600, 700, 800, 20]


def test_a_rule_with_a_misspelt_field_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no such behaviour: activ_seconds"):
        MachineRule(change={"activ_seconds": 5})


def test_a_machine_without_address_is_active_and_never_reachable() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, no_address=True)))
    instance = world.create_vm()
    world.wait(1000)

    assert world.state(instance["id"]) == ("active", "running", "ok")
    assert world.vm(instance["id"])["main_ip"] == "0.0.0.0"  # noqa: S104
    assert not world.cloud.ssh_open(world.cloud.machine(instance["id"]).address)


def test_a_machine_that_vanishes_by_itself_is_gone_and_no_longer_billed() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, vanish_after_seconds=(500, 500))))
    instance = world.create_vm()
    world.wait(501)

    assert error_of(world.call("GET", f"/instances/{instance['id']}")) == (404, "instance not found")
    assert world.cloud.book.get(instance["id"]).destroyed == START + 500


def test_a_suspended_machine_says_so_and_is_still_billed() -> None:
    world = VultrWorld(steady(vm=replace(STEADY, suspend_after_seconds=(300, 300))))
    instance = world.create_vm()
    world.wait(301)

    assert world.state(instance["id"])[0] == "suspended"
    assert [each.id for each in world.cloud.book.billed()] == [instance["id"]]


def test_bare_metal_has_its_own_shape_and_boots_for_long() -> None:
    world = VultrWorld()
    created = world.create_metal(tags=["gpulease:d:1"])
    path = f"/bare-metals/{created['id']}"
    assert (created["main_ip"], created["mac_address"], created["status"]) == ("", 0, "pending")
    assert created["ram"] == "2097152 MB"
    assert "power_status" not in created and "internal_ip" not in created

    world.wait(1799)
    assert world.get(path)["bare_metal"]["status"] == "pending"
    world.wait(1)
    active = world.get(path)["bare_metal"]
    assert (active["status"], active["main_ip"]) == ("active", world.cloud.machine(created["id"]).address)
    assert isinstance(active["mac_address"], int) and active["mac_address"] > 0
    world.wait(120)
    assert world.cloud.ssh_open(active["main_ip"])


def test_bare_metal_may_show_its_address_while_still_pending() -> None:
    world = VultrWorld()
    machine = world.cloud.machine(world.create_metal()["id"])
    assert START + 900 <= machine.address_at < START + 1800

    world.now = machine.address_at
    shown = world.get(f"/bare-metals/{machine.id}")["bare_metal"]

    assert (shown["status"], shown["main_ip"]) == ("pending", machine.address)


def test_default_bare_metal_takes_10_to_40_minutes() -> None:
    world = VultrWorld(Settings(requests_per_second=None))
    for _ in range(50):
        world.create_metal()

    waits = [machine.active_at() - START for machine in world.cloud.account.machines.values()]

    assert 600 <= min(waits) < 1000 and 2000 < max(waits) <= 2400


def test_a_fresh_machine_may_be_missing_by_id_and_in_lists() -> None:
    lagging = replace(STEADY, get_lag_seconds=(60, 60), list_lag_seconds=(40, 40))
    world = VultrWorld(steady(vm=lagging))
    instance = world.create_vm(tags=["t"])
    path = f"/instances/{instance['id']}"

    assert error_of(world.call("GET", path)) == (404, "instance not found")
    assert error_of(world.call("DELETE", path))[0] == 404
    assert world.get("/instances", tag="t")["instances"] == []
    world.wait(40)
    assert [each["id"] for each in world.get("/instances", tag="t")["instances"]] == [instance["id"]]
    world.wait(20)
    assert world.vm(instance["id"])["status"] == "active"
    assert world.cloud.book.get(instance["id"]).active == START + 60


def test_halt_start_and_reboot_follow_with_a_delay_and_the_bill_goes_on() -> None:
    world = VultrWorld()
    machine_id = world.running_vm()
    path = f"/instances/{machine_id}"

    assert world.call("POST", f"{path}/halt").status == 204
    assert world.state(machine_id)[1] == "running"
    world.wait(10)
    assert world.state(machine_id) == ("active", "stopped", "ok")
    assert world.call("POST", f"{path}/halt").status == 204
    assert not world.cloud.ssh_open(world.cloud.machine(machine_id).address)
    world.wait(7200)
    assert world.cloud.book.get(machine_id).cost_usd == 3 * world.cloud.book.get(machine_id).hourly_usd

    assert world.call("POST", f"{path}/start").status == 204
    world.wait(10)
    assert world.state(machine_id) == ("active", "running", "ok")
    world.wait(30)
    assert world.cloud.ssh_open(world.cloud.machine(machine_id).address)

    assert world.call("POST", "/instances/reboot", {"instance_ids": [machine_id]}).status == 204
    world.wait(10)
    assert world.state(machine_id)[1] == "stopped"
    world.wait(10)
    assert world.state(machine_id)[1] == "running"


def test_reinstall_locks_the_machine_and_is_refused_while_locked() -> None:
    world = VultrWorld()
    machine_id = world.running_vm()

    assert world.call("POST", f"/instances/{machine_id}/reinstall", {"hostname": "again"}).status == 202
    assert world.state(machine_id) == ("active", "stopped", "locked")
    refusal = error_of(world.call("POST", f"/instances/{machine_id}/reinstall", {}))

    assert refusal == (500, "Unable to reinstall server: Server is currently locked")
    world.wait(40)
    assert world.state(machine_id) == ("active", "running", "ok")
    assert world.vm(machine_id)["hostname"] == "again"


def test_never_is_infinity() -> None:
    world = VultrWorld(steady(metal=replace(STEADY_METAL, ssh_seconds=(math.inf, math.inf))))
    machine_id = world.create_metal()["id"]
    world.wait(10**8)

    assert not world.cloud.ssh_open(world.cloud.machine(machine_id).address)
