"""The agent's cache on a real block device (a loop device) and with a stand-in for rclone that copies between folders.

Loop devices need root and a kernel that has some to give; without them the first half is skipped.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_module import agent_module

AGENT: Any = agent_module()
MIB = 1024 * 1024
SERIAL = "ewr-ec6d1eccaa704f"
MOUNTS = ["/root/.cache", "/data"]
Disk = Callable[[bytes], Path]


def sh(*argv: str) -> str:
    """The output of a command that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603 - our own


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Makes a loop device whose first bytes are given; unmounted and taken off at the end."""
    devices: list[str] = []

    def make(content: bytes) -> Path:
        image = tmp_path / "image"
        image.write_bytes(content)
        os.truncate(image, 64 * MIB)
        try:
            devices.append(sh("losetup", "-f", "--show", str(image)))
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            pytest.skip(f"no loop devices here: {error}")
        links = tmp_path / "dev/disk/by-id"
        links.mkdir(parents=True, exist_ok=True)
        (links / f"virtio-{SERIAL}").symlink_to(devices[-1])
        return Path(devices[-1])

    if os.geteuid() != 0:
        pytest.skip("loop devices are for root")
    yield make
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    for line in reversed([each for each in mounts if str(tmp_path) in each]):
        sh("umount", "--lazy", line.split()[1])
    for device in devices:
        sh("losetup", "-d", device)


def a_machine(tmp_path: Path, name: str, **cache: Any) -> Any:
    """An agent on a folder of its own, with the volume of that serial number."""
    cache = {"volume": {"serials": [SERIAL]}, "mounts": MOUNTS, "docker": False, "object_store": None, **cache}
    config = {"url": "http://127.0.0.1:1", "token": "gla_x", "lease_id": "l-x", "root": str(tmp_path / name)}
    return AGENT.Agent({**config, "dev": str(tmp_path / "dev"), "cache": cache, "volume_attach_seconds": 0})


def test_a_blank_volume_is_formatted_once_and_what_is_on_it_survives(tmp_path: Path, disk: Disk) -> None:
    device = disk(b"")
    first, second = a_machine(tmp_path, "a"), a_machine(tmp_path, "b")
    old = on(first, "/root/.cache/old")
    old.parent.mkdir(parents=True)
    old.write_text("was here", encoding="utf-8")

    first.fill()
    mounted, problems = list(first.mounted), dict(first.problems)
    on(first, "/data/new").write_text("kept", encoding="utf-8")
    first.flush()
    uuid = sh("blkid", "-p", "-s", "UUID", "-o", "value", str(device))
    second.fill()

    assert (mounted, problems) == (MOUNTS, {})
    assert first.flushed and str(tmp_path / "a") not in Path("/proc/mounts").read_text(encoding="utf-8")
    assert not on(first, "/data/new").exists()
    assert sh("blkid", "-p", "-s", "UUID", "-o", "value", str(device)) == uuid
    assert on(second, "/data/new").read_text(encoding="utf-8") == "kept"
    assert on(second, "/root/.cache/old").read_text(encoding="utf-8") == "was here"


def test_who_holds_the_cache_is_ended_so_that_it_can_be_let_go_of(tmp_path: Path, disk: Disk) -> None:
    disk(b"")
    machine = a_machine(tmp_path, "a")
    machine.fill()
    with subprocess.Popen(["/bin/sleep", "60"], cwd=on(machine, "/data")) as holder:
        machine.flush()

        assert holder.wait(timeout=10) != 0
    assert machine.flushed
    assert "unmount" not in machine.problems
    assert str(tmp_path / "a") not in Path("/proc/mounts").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [b"\0" * 1000 + b"my notes", bytes(MIB - 1) + b"\x01"])
def test_a_volume_that_holds_something_is_never_formatted(tmp_path: Path, disk: Disk, content: bytes) -> None:
    disk(content)
    machine = a_machine(tmp_path, "a")

    machine.fill()

    assert "left alone" in machine.problems["cache"]
    assert (tmp_path / "image").read_bytes()[: len(content)] == content
    assert not machine.in_use


def test_a_file_system_that_is_not_ours_is_left_alone(tmp_path: Path, disk: Disk) -> None:
    device = disk(b"")
    sh("mkswap", str(device))
    before = (tmp_path / "image").read_bytes()
    machine = a_machine(tmp_path, "a")

    machine.fill()

    assert "swap" in machine.problems["cache"]
    assert (tmp_path / "image").read_bytes() == before


def test_a_volume_that_does_not_come_holds_nothing_up(tmp_path: Path) -> None:
    machine = a_machine(tmp_path, "a")

    machine.fill()

    assert "did not appear" in machine.problems["cache"]
    assert machine.report(0.0)["problems"]


# --- the object store -------------------------------------------------------------------------------------------------

RCLONE = """#!/bin/sh
# Copies between folders, with rclone's words and exit codes; what it was called with is kept.
echo "$RCLONE_CONFIG_CACHE_ENDPOINT $RCLONE_CONFIG_CACHE_ACCESS_KEY_ID $*" >>"$0.calls"
[ "$RCLONE_CONFIG" = /dev/null ] || [ "$1" = version ] || exit 1
remote() { echo "$1" | sed "s|^cache:|$0.store/|"; }
case "$*" in *--links*) ;; version) exit 0;; *) exit 1;; esac
case "$1" in
  cat) f=$(remote "$2"); [ -f "$f" ] && cat "$f" || exit 4;;
  copy) [ -e "$0.broken" ] && exit 5; f=$(remote "$2"); t=$(remote "$3"); mkdir -p "$t"; cp -an "$f/." "$t/";;
  copyto) t=$(remote "$3"); mkdir -p "$(dirname "$t")"; cp "$2" "$t";;
  check) diff -r "$2" "$(remote "$3")" >/dev/null;;
esac
"""


@pytest.fixture
def rclone(tmp_path: Path) -> Path:
    """A stand-in for rclone; its store is the folder `rclone.store` beside it."""
    file = tmp_path / "rclone"
    file.write_text(RCLONE, encoding="utf-8")
    file.chmod(0o755)
    return file


def with_store(tmp_path: Path, name: str, rclone: Path) -> Any:
    """An agent whose cache has an object store and a folder for a volume."""
    volume = {"kind": "directory", "path": str(tmp_path / f"volume-{name}")}
    machine = a_machine(tmp_path, name, volume=volume, mounts=["/data"], object_store={"bucket": "b"})
    machine.config["commands"] = {"rclone": [str(rclone)], "apt-get": ["false"]}
    keys = {"bucket": "bucket", "prefix": "team/x", "endpoint": "https://s3.invalid", "access_key_id": "AKIA"}
    machine.fetch = lambda: {**keys, "secret_access_key": "CANARY-SECRET", "provider": "Other"}
    return machine


def test_content_goes_out_and_comes_in_elsewhere(tmp_path: Path, rclone: Path) -> None:
    first, second = with_store(tmp_path, "a", rclone), with_store(tmp_path, "b", rclone)

    first.fill()
    on(first, "/data/model").write_text("weights", encoding="utf-8")
    on(first, "/data/snapshot").symlink_to("model")
    first.flush()
    second.fill()

    assert (first.problems, second.problems) == ({}, {})
    assert on(second, "/data/model").read_text(encoding="utf-8") == "weights"
    assert on(second, "/data/snapshot").is_symlink()
    calls = Path(f"{rclone}.calls").read_text(encoding="utf-8")
    assert "https://s3.invalid AKIA" in calls
    assert "CANARY-SECRET" not in calls
    keys = tmp_path / "a/run/gpulease/cache-credentials.json"
    assert keys.stat().st_mode & 0o777 == 0o600


def test_a_set_that_was_not_saved_whole_is_not_taken(tmp_path: Path, rclone: Path) -> None:
    store = Path(f"{rclone}.store/bucket/team/x/files/data")
    store.mkdir(parents=True)
    (store / "half").write_text("half a model", encoding="utf-8")
    machine = with_store(tmp_path, "a", rclone)

    machine.fill()

    assert machine.problems == {}
    assert not on(machine, "/data/half").exists()


def test_a_store_that_fails_is_told_and_holds_nothing_up(tmp_path: Path, rclone: Path) -> None:
    store = Path(f"{rclone}.store/bucket/team/x")
    store.mkdir(parents=True)
    (store / ".gpulease-complete").write_text("{}", encoding="utf-8")
    Path(f"{rclone}.broken").touch()
    machine = with_store(tmp_path, "a", rclone)

    machine.fill()
    told = dict(machine.problems)
    machine.flush()

    assert "rclone 5" in told["object store"]
    assert machine.mounted == [] and machine.flushed
    assert "not saved whole" in machine.problems["object store"]


def test_without_keys_the_start_is_cold(tmp_path: Path, rclone: Path) -> None:
    def refuse() -> dict[str, Any]:
        raise AGENT.Problem("no keys: answer 503")

    machine = with_store(tmp_path, "a", rclone)
    machine.fetch = refuse

    machine.fill()

    assert "no keys" in machine.problems["object store"]
    assert machine.mounted == ["/data"]


def test_a_save_says_that_it_is_whole_last(tmp_path: Path, rclone: Path) -> None:
    machine = with_store(tmp_path, "a", rclone)
    machine.fill()

    machine.save(60.0, True)

    words = Path(f"{rclone}.calls").read_text(encoding="utf-8").split()
    saved = [word for word in words if word in ("copy", "check", "copyto")][-3:]
    marker = json.loads(Path(f"{rclone}.store/bucket/team/x/.gpulease-complete").read_text(encoding="utf-8"))
    assert saved == ["copy", "check", "copyto"]
    assert marker["lease"] == "l-x"


def on(machine: Any, path: str) -> Path:
    """Where a path of the machine lies on this computer."""
    return Path(machine.path(path))
