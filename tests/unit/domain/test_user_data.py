"""The start script arrives byte for byte, and only the given keys open the machine."""

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpulease.domain.spec import MAX_START_SCRIPT_BYTES
from gpulease.domain.user_data import (
    START_LOG_PATH,
    START_SCRIPT_PATH,
    agent_config_in,
    build_user_data,
    read_user_data,
)
from hypothesis import given
from hypothesis import strategies as st

KEYS = ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ada@host", 'ssh-rsa AAAAB3 it\'s "quoted" $HOME: # ü')

SCRIPTS = [
    b"echo hi\n",
    b"#!/usr/bin/env python3\nprint('hi')\n",
    b"""echo "it's $HOME `date` \\ $(id)" # don't\n""",
    b"echo one\r\necho two\r\n",
    "echo Grüße, 世界\n".encode(),
    "echo Grüße\n".encode("latin-1"),
    b"\n\n  echo leading blanks\n",
    b"a\x00b\x00",
    b"%YAML 1.1\n--- !!python/object\n...\n",
    bytes(range(256)),
    b"x" * MAX_START_SCRIPT_BYTES,
    b"no newline at the end",
]


def document(user_data: bytes) -> dict[str, Any]:
    assert user_data.splitlines()[0] == b"#cloud-config"
    loaded = yaml.safe_load(user_data)
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_script_arrives_byte_for_byte(script: bytes) -> None:
    (file,) = document(build_user_data(ssh_keys=KEYS, start_script=script))["write_files"]

    assert file["encoding"] == "b64" and base64.b64decode(file["content"], validate=True) == script
    assert (file["path"], file["permissions"], file["owner"]) == (START_SCRIPT_PATH, "0700", "root:root")


@given(st.binary(min_size=1, max_size=300), st.lists(st.text(max_size=30), max_size=3))
def test_any_bytes_and_any_key_text_arrive(script: bytes, keys: list[str]) -> None:
    loaded = document(build_user_data(ssh_keys=keys, start_script=script))

    assert base64.b64decode(loaded["write_files"][0]["content"]) == script
    assert loaded["users"][0]["ssh_authorized_keys"] == keys


def test_root_gets_the_keys_and_passwords_no_longer_open_ssh() -> None:
    loaded = document(build_user_data(ssh_keys=KEYS, hostname="lease-1"))

    assert loaded["users"] == [{"name": "root", "lock_passwd": False, "ssh_authorized_keys": list(KEYS)}]
    assert loaded["disable_root"] is False and loaded["ssh_pwauth"] is False
    assert loaded["hostname"] == "lease-1"


def test_without_keys_the_password_still_opens_ssh() -> None:
    assert "ssh_pwauth" not in document(build_user_data(ssh_keys=()))


def test_without_a_script_nothing_runs() -> None:
    loaded = document(build_user_data(ssh_keys=KEYS))

    assert "runcmd" not in loaded and "write_files" not in loaded and "hostname" not in loaded


@pytest.mark.parametrize(
    ("script", "output"),
    [
        (b"#!/bin/sh\necho as it is\n", "as it is\n"),
        (b"[[ 1 == 1 ]] && echo by bash\n", "by bash\n"),
        (b"\n#!/bin/sh\n[[ 1 == 1 ]] && echo by bash, too\n", "by bash, too\n"),
        (b"echo to both; echo and errors >&2\n", "to both\nand errors\n"),
    ],
)
def test_the_run_command_works(script: bytes, output: str, tmp_path: Path) -> None:
    loaded = document(build_user_data(ssh_keys=(), start_script=script))
    file, log = tmp_path / "script", tmp_path / "log"
    file.write_bytes(base64.b64decode(loaded["write_files"][0]["content"]))
    file.chmod(0o700)
    ((shell, option, command),) = loaded["runcmd"]

    command = command.replace(START_SCRIPT_PATH, str(file)).replace(START_LOG_PATH, str(log))
    subprocess.run([shell, option, command], check=True)  # noqa: S603 the command is what is tested

    assert log.read_text() == output


def test_the_largest_script_fits_into_what_providers_carry() -> None:
    keys = ["ssh-ed25519 " + "A" * 68 + " someone@somewhere"] * 20

    assert len(build_user_data(ssh_keys=keys, start_script=b"x" * MAX_START_SCRIPT_BYTES)) < 64 * 1024


@given(st.lists(st.text(max_size=30), max_size=3))
def test_it_can_be_read_without_a_yaml_parser(keys: list[str]) -> None:
    data = build_user_data(ssh_keys=keys, start_script=b"x")

    assert read_user_data(data) == document(data)
    assert agent_config_in(data) is None
