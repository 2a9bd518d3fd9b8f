"""The simulated account survives in its file exactly as it was."""

from dataclasses import replace
from pathlib import Path

import pytest
from gpulease_sim.vultr import ConnectionCut, MachineRule, Settings, VultrCloud, lost_answer
from gpulease_sim.vultr.state_file import StateFile

from tests.support.vultr_world import START, VultrWorld, steady


def open_world(path: Path, now: float = START, settings: Settings | None = None) -> VultrWorld:
    world = VultrWorld(now=now)
    world.cloud = VultrCloud(lambda: world.now, 1, settings, StateFile(path))
    return world


def test_reopened_it_shows_the_same_and_goes_on_the_same(tmp_path: Path) -> None:
    def begin(world: VultrWorld) -> None:
        vpc = world.create_vpc(description="d")
        world.create_vm(label="a", tags=["t"], attach_vpc=[vpc], user_data="aGk=")
        world.create_metal(label="m")
        doomed = world.create_vm(label="b")["id"]
        world.wait(100)
        world.call("DELETE", f"/instances/{doomed}")
        world.call("POST", "/ssh-keys", {"name": "k", "ssh_key": "ssh-ed25519 x"})
        group = world.call("POST", "/firewalls", {"description": "g"}).json()["firewall_group"]["id"]
        rule = {"ip_type": "v4", "protocol": "tcp", "subnet": "10.0.0.0", "subnet_size": 8, "port": "22"}
        world.call("POST", f"/firewalls/{group}/rules", rule)
        world.call("POST", "/reserved-ips", {"region": "ord", "ip_type": "v4"})

    def rest(world: VultrWorld) -> list[object]:
        shown: list[object] = []
        for seconds in (0, 5, 10, 3000):
            world.wait(seconds)
            for path in ("/instances", "/bare-metals", "/vpcs", "/ssh-keys", "/firewalls", "/reserved-ips"):
                shown.append(world.get(path))
            shown.append(world.cloud.book.objects())
            shown.append(world.create_vm()["id"])
        return shown

    uninterrupted = open_world(tmp_path / "one.db", settings=steady())
    begin(uninterrupted)
    interrupted = open_world(tmp_path / "two.db", settings=steady())
    begin(interrupted)

    reopened = open_world(tmp_path / "two.db", now=interrupted.now)

    assert rest(reopened) == rest(uninterrupted)


def test_it_is_as_it_was_without_a_file(tmp_path: Path) -> None:
    plain, kept = VultrWorld(), open_world(tmp_path / "state.db", settings=steady())

    assert plain.create_vm() == kept.create_vm()
    assert plain.cloud.book.objects() == kept.cloud.book.objects()


def test_deleted_things_stay_deleted_and_the_book_remembers_them(tmp_path: Path) -> None:
    world = open_world(tmp_path / "state.db", settings=steady())
    vpc = world.create_vpc()
    world.call("DELETE", f"/vpcs/{vpc}")

    reopened = open_world(tmp_path / "state.db", now=world.now)

    assert reopened.get("/vpcs")["vpcs"] == []
    assert [each.id for each in reopened.cloud.book.objects()] == [vpc]
    assert reopened.cloud.book.billed() == []


def test_settings_are_kept_and_given_ones_win(tmp_path: Path) -> None:
    rule = MachineRule(match="x", change={"stuck": "pending"})
    world = open_world(tmp_path / "state.db", settings=steady())
    world.cloud.settings = replace(steady(), rules=(rule,), capacity={"ord/*": 3})

    assert open_world(tmp_path / "state.db").cloud.settings == replace(steady(), rules=(rule,), capacity={"ord/*": 3})
    assert open_world(tmp_path / "state.db", settings=steady(reworded=True)).cloud.settings == steady(reworded=True)


def test_reset_empties_the_file_too(tmp_path: Path) -> None:
    world = open_world(tmp_path / "state.db", settings=steady())
    first = world.create_vm()["id"]
    world.cloud.reset()

    reopened = open_world(tmp_path / "state.db")

    assert reopened.cloud.book.objects() == []
    assert reopened.create_vm()["id"] == first


def test_a_create_whose_answer_is_lost_is_kept(tmp_path: Path) -> None:
    world = open_world(tmp_path / "state.db", settings=steady())
    world.cloud.faults.add(lost_answer("POST", "/instances"))
    with pytest.raises(ConnectionCut):
        world.create_vm(label="lost")

    reopened = open_world(tmp_path / "state.db", now=world.now)

    assert [each["label"] for each in reopened.get("/instances")["instances"]] == ["lost"]


def test_a_machine_removed_by_hand_stays_removed(tmp_path: Path) -> None:
    world = open_world(tmp_path / "state.db", settings=steady())
    world.cloud.remove_by_hand(world.running_vm())

    assert open_world(tmp_path / "state.db", now=world.now).cloud.book.billed() == []
