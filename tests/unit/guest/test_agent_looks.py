"""What the agent reads of a machine: sessions, connections, the user's word, devices; and how it judges a disk."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpulease.runtime.world import monotonic, sleep

from tests.support.agent_module import agent_module

AGENT: Any = agent_module()
MIB = 1024 * 1024


def an_agent(tmp_path: Path, **config: Any) -> Any:
    return AGENT.Agent({"url": "http://127.0.0.1:1", "token": "gla_secret", "root": str(tmp_path), **config})


# --- sessions and connections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["sshd: root@pts/0", "sshd-session: ada@pts/12 ", "sshd: a@b@pts/1"])
def test_sessions_with_a_terminal(title: str) -> None:
    assert AGENT.has_terminal(title)


@pytest.mark.parametrize(
    "title", ["sshd: root@notty", "sshd: root [priv]", "python sshd: x@pts/1", "/usr/sbin/sshd -D", ""]
)
def test_what_is_no_session_with_a_terminal(title: str) -> None:
    assert not AGENT.has_terminal(title)


def test_rows_of_proc_net_tcp_are_read() -> None:
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 123 1 0 100\n"
        "   1: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000200000A:C001 01 "
        "00000000:00000000 00:00000000 00000000     0        0 456 1 0\n"
        "   cut off\n"
    )

    assert AGENT.parse_tcp(text) == [
        ("0100007F:1F90", "00000000:0000", "0A", "123"),
        ("0100007F:1F90", "0200000A:C001", "01", "456"),
    ]


def a_process(proc: Path, pid: int, comm: str, *inodes: int, tcp: str = "", net: str = "net:[1]") -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "ns").mkdir()
    (folder / "net").mkdir()
    (folder / "comm").write_text(f"{comm}\n", encoding="utf-8")
    (folder / "ns/net").symlink_to(net)
    (folder / "net/tcp").write_text("head\n" + tcp, encoding="utf-8")
    for number, inode in enumerate(inodes):
        (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


def row(local: str, remote: str, state: str, inode: int) -> str:
    return f" 0: {local} {remote} {state} 0:0 00:0 0 0 0 {inode} 1\n"


LISTEN = row("00000000:1F90", "00000000:0000", "0A", 10)
FAR, HERE, OTHER = "0A0A0A0A:C000", "0100007F:1F90", "0100007F:C000"


def test_somebody_connected_to_a_users_port_is_use(tmp_path: Path) -> None:
    a_process(tmp_path, 7, "python", 10, tcp=LISTEN + row("0F02000A:1F90", FAR, "01", 11))

    assert AGENT.Machine(str(tmp_path)).has_connection(22)


def test_ssh_the_systems_own_and_outgoing_connections_are_no_use(tmp_path: Path) -> None:
    ssh = row("00000000:0016", "00000000:0000", "0A", 1) + row("0F02000A:0016", FAR, "01", 2)
    outgoing = row("0F02000A:C123", "01010101:01BB", "01", 3)
    a_process(tmp_path, 1, "sshd", 1, 2, tcp=ssh + outgoing + LISTEN + row("0F02000A:1F90", FAR, "01", 11))
    a_process(tmp_path, 5, "node_exporter", 10, net="net:[9]")

    assert not AGENT.Machine(str(tmp_path)).has_connection(22)


def test_two_ends_on_this_machine_are_no_use_unless_one_is_an_ssh_tunnel(tmp_path: Path) -> None:
    both = LISTEN + row(HERE, OTHER, "01", 11) + row(OTHER, HERE, "01", 12)
    a_process(tmp_path / "a", 7, "python", 10, 11, 12, tcp=both)
    a_process(tmp_path / "b", 7, "python", 10, 11, tcp=both)
    a_process(tmp_path / "b", 8, "sshd-session", 12, tcp=both)

    assert not AGENT.Machine(str(tmp_path / "a")).has_connection(22)
    assert AGENT.Machine(str(tmp_path / "b")).has_connection(22)


def test_connections_to_containers_are_seen(tmp_path: Path) -> None:
    a_process(tmp_path, 1, "init")
    a_process(tmp_path, 7, "vllm", 10, tcp=LISTEN + row("020011AC:1F90", FAR, "01", 11), net="net:[2]")

    assert AGENT.Machine(str(tmp_path)).has_connection(22)


def test_a_real_connection_within_this_computer_is_no_use() -> None:
    machine = AGENT.Machine()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = f"{server.getsockname()[1]:04X}"
        with socket.create_connection(server.getsockname()), server.accept()[0]:
            rows = AGENT.parse_tcp(Path("/proc/self/net/tcp").read_text(encoding="utf-8"))

            assert any(r[0].endswith(":" + port) and r[2] == "01" for r in rows)
            assert any(r[0].endswith(":" + port) and r[2] == "0A" for r in rows)
            assert isinstance(machine.has_connection(22), bool)


# --- the user's own word ----------------------------------------------------------------------------------------------


def test_gpulease_busy_counts_as_long_as_its_command_runs(tmp_path: Path) -> None:
    agent = an_agent(tmp_path, nvidia_smi="/none")
    agent.begin()
    wrapper = tmp_path / "gpulease-busy"
    wrapper.write_text(AGENT.BUSY % (tmp_path / "run/gpulease"), encoding="utf-8")
    with subprocess.Popen(["/bin/sh", str(wrapper), "sleep", "30"]) as command:  # noqa: S603 - our own
        end = monotonic() + 10
        while not agent._busy() and monotonic() < end:
            sleep(0.05)
        assert agent._busy()
        command.kill()

    assert not agent._busy()
    assert list((tmp_path / "run/gpulease/busy").iterdir()) == []


def test_a_command_in_a_container_counts_although_it_has_another_number_there(tmp_path: Path) -> None:
    agent = an_agent(tmp_path, nvidia_smi="/none")
    agent.begin()
    wrapper = tmp_path / "gpulease-busy"
    wrapper.write_text(AGENT.BUSY % (tmp_path / "run/gpulease"), encoding="utf-8")
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", str(wrapper), "sleep", "30"]
    try:
        probe = subprocess.run([*words[:5], "true"], check=False, capture_output=True, timeout=10)  # noqa: S603
    except FileNotFoundError:
        pytest.skip("unshare is not here")
    if probe.returncode:
        pytest.skip("processes cannot be put into a namespace of their own here")
    with subprocess.Popen(words) as command:  # noqa: S603 - our own
        end = monotonic() + 10
        while not agent._busy() and monotonic() < end:
            sleep(0.05)
        names = [file.name for file in (tmp_path / "run/gpulease/busy").iterdir()]
        assert agent._busy() and agent._busy()
        command.kill()

    assert names[0].startswith("1-"), "the number that it has inside"
    sleep(0.2)
    assert not agent._busy()


def test_a_note_that_is_being_written_is_not_taken_for_an_old_one(tmp_path: Path) -> None:
    agent = an_agent(tmp_path, nvidia_smi="/none")
    agent.begin()
    (tmp_path / "run/gpulease/busy/.77-1").write_text("", encoding="utf-8")

    assert not agent._busy()
    assert (tmp_path / "run/gpulease/busy/.77-1").exists()
    assert '>"$d/.$$' in AGENT.BUSY and "mv " in AGENT.BUSY


def test_what_others_put_among_the_busy_files_does_no_harm(tmp_path: Path) -> None:
    agent = an_agent(tmp_path, nvidia_smi="/none")
    agent.begin()
    folder = tmp_path / "run/gpulease/busy"
    (tmp_path / "secret").write_text(f"{os.getpid()} {agent.machine.started(str(os.getpid()))}", encoding="utf-8")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    (folder / "1").write_text("1 999999999999", encoding="utf-8")
    (folder / "big").write_bytes(b"\xff" * 100_000)

    assert not agent._busy()
    assert (tmp_path / "secret").exists()


def test_a_touch_counts_once(tmp_path: Path) -> None:
    agent = an_agent(tmp_path, nvidia_smi="/none")
    agent.begin()

    before = agent._busy()
    os.utime(tmp_path / "run/gpulease/touch", (5e9, 5e9))

    assert (before, agent._busy(), agent._busy()) == (False, True, False)


# --- volumes ----------------------------------------------------------------------------------------------------------


def test_a_disk_is_found_by_its_link_or_by_what_the_kernel_says(tmp_path: Path) -> None:
    links, block = tmp_path / "dev/disk/by-id", tmp_path / "sys/block"
    links.mkdir(parents=True)
    (tmp_path / "dev/nvme1n1").write_bytes(b"")
    (links / "nvme-Amazon_Elastic_Block_Store_vol0abc").symlink_to(tmp_path / "dev/nvme1n1")
    (links / "nvme-Amazon_Elastic_Block_Store_vol0abc-part1").symlink_to(tmp_path / "dev/nvme1n1p1")
    (block / "vdb").mkdir(parents=True)
    (block / "vdb/serial").write_text("ewr-ec6d1eccaa704f\n", encoding="utf-8")
    machine = AGENT.Machine("/proc", str(tmp_path / "sys"), str(tmp_path / "dev"))

    assert machine.find_device(["vol0abc"]) == str((tmp_path / "dev/nvme1n1").resolve())
    assert machine.find_device(["ewr-ec6d1eccaa704f"]) == str(tmp_path / "dev/vdb")
    assert machine.find_device(["vol0ab", "abc"]) is None


@pytest.mark.parametrize(("at", "blank"), [(None, True), (0, False), (3 * MIB - 1, False), (1024 * 1024 - 1, False)])
def test_a_disk_is_blank_only_if_both_its_ends_are_zero(tmp_path: Path, at: int | None, blank: bool) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(3 * MIB))
    if at is not None:
        with disk.open("r+b") as file:
            file.seek(at)
            file.write(b"\x01")

    assert AGENT.is_blank(str(disk)) is blank


@pytest.mark.parametrize("at", [128 * MIB + 1024, 3 * 128 * MIB + 1024, 256 * MIB, 512 * MIB - 4096, 896 * MIB])
def test_a_disk_whose_ends_were_wiped_is_not_blank(tmp_path: Path, at: int) -> None:
    """Second copies of what describes a file system: of ext4 in its groups, of XFS at quarters; or a file's content."""
    disk = tmp_path / "disk"
    disk.touch()
    os.truncate(disk, 1024 * MIB)
    with disk.open("r+b") as file:
        file.seek(at)
        file.write(b"\x01" * 4096)

    assert not AGENT.is_blank(str(disk))


def test_an_empty_file_is_no_blank_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(b"")

    assert not AGENT.is_blank(str(tmp_path / "disk"))


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_pauses_after_failures_grow_to_five_minutes_and_no_further(tmp_path: Path) -> None:
    agent = an_agent(tmp_path)

    pauses = [agent._back_off("no answer") for _ in range(40)]

    assert 2.5 <= pauses[0] <= 5
    assert all(pause <= 300 for pause in pauses)
    assert min(pauses[10:]) >= 150


def test_a_store_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    assert an_agent(tmp_path)._back_off("answer 503", 60) >= 60


def test_the_token_goes_to_https_or_this_computer_only(tmp_path: Path) -> None:
    agent = an_agent(tmp_path)
    agent.config["url"] = "http://example.com"

    with pytest.raises(ValueError, match="https"):
        agent.call("GET", "/v1/agent/program")


def test_the_token_is_masked_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    an_agent(tmp_path).log("sent gla_secret there")

    assert capsys.readouterr().err == "sent *** there\n"


# --- Docker -----------------------------------------------------------------------------------------------------------


def test_dockers_settings_are_merged_and_broken_ones_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "etc/docker/daemon.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"runtimes": {"nvidia": {}}, "features": {"buildkit": true}}', encoding="utf-8")
    cache = {"volume": {"kind": "directory", "path": str(tmp_path / "volume")}, "docker": True}
    agent = an_agent(tmp_path, cache=cache, commands={"systemctl": ["true"]})

    agent.fill()
    merged = AGENT.json.loads(file.read_text(encoding="utf-8"))
    file.write_text("{not json", encoding="utf-8")
    agent.fill()

    assert merged["runtimes"] == {"nvidia": {}}
    assert merged["data-root"] == str(tmp_path / "volume/docker")
    assert merged["features"] == {"buildkit": True, "containerd-snapshotter": False}
    assert file.read_text(encoding="utf-8") == "{not json"
    assert "docker" in agent.problems
