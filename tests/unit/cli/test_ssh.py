"""Reaching a machine by SSH: the right host key, the present address, and files that ssh itself understands."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpulease_cli import ssh_hosts
from gpulease_cli.views import LeaseView

from tests.support.cli_world import Cli
from tests.support.fake_api import FakeApi, lease

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8PoPSnUF1yQNYrgHCaA8bJqTYRbbEm3zTQ0Q0cVb9x"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA3nCjW7xZbqgGmSlW8pUoP6WqgGGs7oWcRzQnyR9mYk"


def test_what_follows_the_name_is_for_ssh_and_what_is_ours_goes_before_it(cli: Cli, api: FakeApi) -> None:
    api.add(lease(agent={"host_keys": [KEY]}))

    forwarded = cli.run("ssh", "--print", "train", "-L", "8888:localhost:8888")
    misplaced = cli.run("ssh", "train", "--print")

    assert forwarded.out.rstrip().endswith("root@203.0.113.7 -L 8888:localhost:8888")
    assert (misplaced.code, misplaced.error) == (2, "'--print' belongs before the name: gpulease ssh --print train")


def with_keys(*keys: str, **more: Any) -> dict[str, Any]:
    return lease(**{"agent": {"host_keys": list(keys)}, **more})


def asked_of_ssh(cli: Cli, config: Path, name: str) -> dict[str, str]:
    """What the real ssh makes of our config, by its own words; it runs our command as a user's ssh would."""
    world = {**cli.env, "PYTHONPATH": ":".join(sys.path), "SHELL": "/bin/sh"}
    done = subprocess.run(  # noqa: S603
        ["env", *(f"{key}={value}" for key, value in world.items()), "ssh", "-G", "-F", str(config), name],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_ssh_itself_reads_the_include_file_as_meant(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    api.add(with_keys(KEY))
    folder = tmp_path / ".gpulease" / "ssh"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  User somebody\n")

    result = cli.run("config", "ssh", "--json")

    assert [host["name"] for host in json.loads(result.out)["hosts"]] == ["train"]
    said = asked_of_ssh(cli, tmp_path / ".ssh" / "config", "train")
    assert (said["hostname"], said["user"], said["port"]) == ("203.0.113.7", "root", "22")
    assert said["hostkeyalias"] == "gpulease-l-aaaaaaaaaaaa.1"
    assert said["stricthostkeychecking"] == "true"
    assert said["userknownhostsfile"] == str(folder / "known_hosts")
    assert (folder / "known_hosts").read_text() == f"gpulease-l-aaaaaaaaaaaa.1 {KEY}\n"


def test_c40_ssh_asks_for_the_address_when_it_connects(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    """A window may have paused and resumed the machine meanwhile, and nobody has run a command since."""
    view = with_keys(KEY)
    api.add(view)
    own = tmp_path / ".ssh" / "config"
    cli.run("config", "ssh")
    view["address"], view["agent"]["host_keys"] = "198.51.100.9", [OTHER]

    said = asked_of_ssh(cli, own, "train")
    view["state"], view["address"] = "paused", ""
    paused = asked_of_ssh(cli, own, "gpulease-train")

    assert (said["hostname"], said["user"]) == ("198.51.100.9", "root")
    assert paused["hostname"] == "gpulease-train", "no address is known"


@pytest.mark.parametrize("home", ["my own", "$HOME", "50%"])
def test_a_folder_with_a_rare_name_is_found_by_ssh(cli: Cli, api: FakeApi, tmp_path: Path, home: str) -> None:
    cli.env["GPULEASE_HOME"] = str(tmp_path / home)
    view = with_keys(KEY)
    api.add(view)
    cli.run("config", "ssh")
    view["address"] = "198.51.100.9"

    assert asked_of_ssh(cli, tmp_path / ".ssh" / "config", "train")["hostname"] == "198.51.100.9"


def test_c40_where_the_address_cannot_be_asked_for_none_is_used(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    api.add(with_keys(KEY))
    cli.run("config", "ssh")
    cli.env["GPULEASE_ENDPOINT"] = "http://127.0.0.1:9"

    said = asked_of_ssh(cli, tmp_path / ".ssh" / "config", "train")

    assert said["hostname"] == "train"


def test_other_hosts_are_none_of_our_business(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    api.add(with_keys(KEY))
    cli.run("config", "ssh")
    asked = len(api.seen)

    asked_of_ssh(cli, tmp_path / ".ssh" / "config", "train.example.org")

    assert len(api.seen) == asked


def test_names_that_are_none_reach_no_file_that_ssh_reads() -> None:
    text = ssh_hosts.entry(["train", "b\nHost *"], Path("/f"), ["true"])

    assert text.splitlines()[2:] == ['Match originalhost gpulease-*,train exec "true"', "  Include /f/machines"]


def test_a_command_that_ssh_cannot_be_told_is_left_out(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    """Then the file is as right as the last `gpulease` command has left it."""
    cli.env["GPULEASE_HOME"] = str(tmp_path / "it's mine")
    api.add(with_keys(KEY))

    cli.run("config", "ssh")

    assert asked_of_ssh(cli, tmp_path / ".ssh" / "config", "train")["hostname"] == "203.0.113.7"


def test_the_include_comes_once_and_goes_without_a_trace(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    api.add(with_keys(KEY))
    own = tmp_path / ".ssh" / "config"
    own.parent.mkdir()
    own.write_text("Host work\n  Port 2222\n")

    for _ in range(2):
        cli.run("config", "ssh")
    included = own.read_text()
    cli.run("config", "ssh", "--remove")

    assert included.count("Include ") == 1 and included.startswith("Include ")
    assert own.read_text() == "Host work\n  Port 2222\n"
    assert {each.name for each in (tmp_path / ".gpulease" / "ssh").iterdir()} == {"known_hosts"}


def test_the_command_pins_the_reported_host_key_and_names_the_machine_by_lease(cli: Cli, api: FakeApi) -> None:
    api.add(with_keys(KEY))

    result = cli.run("ssh", "--print", "train", "nvidia-smi", "-L")

    assert result.code == 0
    assert "StrictHostKeyChecking=yes" in result.out and "HostKeyAlias=gpulease-l-aaaaaaaaaaaa.1" in result.out
    assert result.out.rstrip().endswith("root@203.0.113.7 nvidia-smi -L")


def test_without_a_reported_key_the_first_one_seen_is_kept_and_a_changed_one_refused(cli: Cli, api: FakeApi) -> None:
    api.add(lease())

    assert "StrictHostKeyChecking=accept-new" in cli.run("ssh", "--print", "train").out


def test_c40_pause_resume_and_down_take_the_old_address_out_of_the_include_file(
    cli: Cli, api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / ".gpulease" / "ssh" / "machines"
    resumed = with_keys(KEY, address="198.51.100.9", ssh="ssh root@198.51.100.9")
    api.add(with_keys(KEY), with_keys(KEY), with_keys(KEY, state="pausing"))
    cli.run("config", "ssh")
    before = file.read_text()

    cli.run("pause", "train", "--no-wait")
    paused = file.read_text()
    api.scripts.clear()
    api.add(with_keys(KEY, state="paused"), with_keys(KEY, state="resuming"), resumed)
    cli.run("resume", "train")
    after = file.read_text()
    cli.run("down", "train", "--no-wait")

    assert "203.0.113.7" in before
    assert "Host " not in paused
    assert "198.51.100.9" in after and "203.0.113.7" not in after
    assert "Host " not in file.read_text()


def test_no_include_file_is_made_for_those_who_have_none(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    api.add(with_keys(KEY))

    cli.run("down", "train", "--no-wait")

    assert not (tmp_path / ".gpulease" / "ssh").exists()


@pytest.mark.parametrize(
    ("state", "word"),
    [("paused", "`gpulease resume train`"), ("provisioning", "needs a running machine"), ("resuming", "is resuming")],
)
def test_a_machine_that_does_not_run_is_not_contacted(cli: Cli, api: FakeApi, state: str, word: str) -> None:
    """C40: from pausing on the old address may be somebody else's; it is neither shown to ssh nor written."""
    api.add(with_keys(KEY, state=state))

    result = cli.run("ssh", "--print", "train")

    assert result.code == 5 and word in result.error
    assert json.loads(cli.run("config", "ssh", "--json").out)["hosts"] == []


def test_c40_after_a_resume_the_new_machine_has_the_new_key_and_the_old_one_is_gone(
    cli: Cli, api: FakeApi, tmp_path: Path
) -> None:
    view = with_keys(KEY)
    api.add(view)
    cli.run("config", "ssh")
    view["agent"]["host_keys"] = [OTHER]
    view["address"] = "198.51.100.9"

    cli.run("config", "ssh")

    folder = tmp_path / ".gpulease" / "ssh"
    assert (folder / "known_hosts").read_text() == f"gpulease-l-aaaaaaaaaaaa.1 {OTHER}\n"
    machines = (folder / "machines").read_text()
    assert "198.51.100.9" in machines and "203.0.113.7" not in machines


@pytest.mark.parametrize(
    "evil",
    [
        {"address": "203.0.113.7\n  ProxyCommand touch /tmp/owned"},
        {"address": "-oProxyCommand=touch"},
        {"name": "x\n  ProxyCommand touch"},
    ],
)
def test_what_an_api_says_cannot_put_other_options_into_ssh(evil: dict[str, str]) -> None:
    view = LeaseView.read(with_keys(KEY, **evil))
    raw = LeaseView.read({**view.raw, "address": evil.get("address", "203.0.113.7")})

    host = ssh_hosts.host_of(raw)

    assert host is None or "ProxyCommand" not in ssh_hosts.config([host], Path("/f"), None).replace("\n", " ").split()


def test_only_lines_that_are_keys_reach_known_hosts() -> None:
    host = ssh_hosts.host_of(LeaseView.read(with_keys(f"{KEY}\nevil.example {OTHER}", "* ssh-rsa AAAA", "nonsense")))

    assert host is not None
    assert ssh_hosts.known_hosts("", [host]) == f"{host.alias} {KEY}\n"


def test_lines_of_other_machines_stay() -> None:
    host = ssh_hosts.Host("train", "gpulease-l-a.1", "203.0.113.7", 22, (KEY,))

    text = ssh_hosts.known_hosts(f"gpulease-l-a.1 {OTHER}\ngpulease-l-b.1 {OTHER}\n", [host])

    assert text == f"gpulease-l-b.1 {OTHER}\ngpulease-l-a.1 {KEY}\n"


def test_who_has_no_key_gets_one_for_the_deployment(cli: Cli, api: FakeApi, tmp_path: Path) -> None:
    api.created.append([lease()])
    api.health = {"deployment": "abcd1234"}

    cli.run("up", "--gpu", "A100", "--no-wait")

    private = tmp_path / ".gpulease" / "ssh" / "abcd1234" / "id_ed25519"
    assert private.stat().st_mode & 0o077 == 0
    [asked] = api.of("POST")
    assert asked.body["ssh_keys"] == [private.with_suffix(".pub").read_text().strip()]
    api.add(with_keys(KEY))
    assert f"IdentityFile={private}" in cli.run("ssh", "--print", "train").out
