"""What the agent reads of a machine's GPUs, and what of it counts as use."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpulease.runtime.world import monotonic, sleep

from tests.support.agent_module import agent_module

AGENT: Any = agent_module()


def test_lines_of_nvidia_smi_are_read() -> None:
    gpus = AGENT.parse_gpus("NVIDIA A100-SXM4-80GB, 81920, 3, 97\nOdd, Name, 46068, [N/A], [Not Supported]\n\n")

    assert gpus == [
        {"name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920, "used_mib": 3, "percent": 97},
        {"name": "Odd, Name", "memory_mib": 46068, "used_mib": 0, "percent": 0},
    ]


@pytest.mark.parametrize("text", ["", "No devices were found\n", "garbage", ",,,\n", "\0\xff"])
def test_what_is_no_gpu_counts_as_none(text: str) -> None:
    assert AGENT.parse_gpus(text) == []


def an_agent(tmp_path: Path, **config: Any) -> Any:
    return AGENT.Agent({"url": "http://127.0.0.1:1", "token": "gla_secret", "root": str(tmp_path), **config})


def tool(tmp_path: Path, text: str) -> str:
    file = tmp_path / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def test_without_the_tool_gpus_on_the_bus_count(tmp_path: Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x1002", "0x030000")):
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n", encoding="utf-8")
        (device / "class").write_text(f"{kind}\n", encoding="utf-8")

    agent = an_agent(tmp_path, nvidia_smi=str(tmp_path / "none"), sys=str(tmp_path / "sys"))

    assert agent.count_gpus() == 1
    assert an_agent(tmp_path, nvidia_smi=str(tmp_path / "none"), sys=str(tmp_path / "no")).count_gpus() == 0


def test_a_driver_that_shows_no_gpu_has_none(tmp_path: Path) -> None:
    agent = an_agent(tmp_path, nvidia_smi=tool(tmp_path, "echo No devices were found; exit 6"))

    assert agent.count_gpus() == 0


def test_a_command_that_hangs_is_left_behind_in_time(tmp_path: Path) -> None:
    agent = an_agent(tmp_path)
    began = monotonic()

    with pytest.raises(AGENT.Problem, match="did not end"):
        agent.run("sleep", "30", limit=0.2)

    assert monotonic() - began < 5


def test_a_process_that_computes_on_a_quiet_gpu_is_use(tmp_path: Path) -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        script = f'case "$1" in --query-gpu*) echo "G, 100, 1, 0";; *) echo {busy.pid};; esac'
        agent = an_agent(tmp_path, nvidia_smi=tool(tmp_path, script), gpu_every_seconds=0)
        end = monotonic() + 15
        while "gpu" not in agent.seen and monotonic() < end:
            agent.look(monotonic())
            sleep(0.3)
    finally:
        busy.kill()
        busy.wait()

    assert "gpu" in agent.seen


def test_a_process_that_only_holds_a_gpu_is_no_use(tmp_path: Path) -> None:
    script = f'case "$1" in --query-gpu*) echo "G, 100, 1, 0";; *) echo {os.getppid()};; esac'
    agent = an_agent(tmp_path, nvidia_smi=tool(tmp_path, script), gpu_every_seconds=0)

    with subprocess.Popen(["/bin/sleep", "30"]) as idle:
        tool(tmp_path, script.replace(str(os.getppid()), str(idle.pid)))
        agent.look(monotonic())
        sleep(0.3)
        agent.look(monotonic())
        idle.kill()

    assert "gpu" not in agent.seen


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo Failed to initialize NVML: Driver/library version mismatch; exit 18", "ended with 18: Failed to"),
        ('case "$1" in --query-gpu*) echo "G, 100, 90, 0";; *) exit 1;; esac', ""),
    ],
)
@pytest.mark.parametrize("computes", [True, False])
def test_work_goes_on_counting_where_the_drivers_tool_fails(
    tmp_path: Path, script: str, said: str, computes: bool
) -> None:
    """An upgrade of the driver breaks its tool and not what runs already: whoever has the device open is seen."""
    words = [sys.executable, "-c", "while True: pass"] if computes else ["/bin/sleep", "30"]
    with subprocess.Popen(words) as job:  # noqa: S603 - our own
        agent = an_agent(tmp_path, nvidia_smi=tool(tmp_path, script), gpu_every_seconds=0)
        agent.machine.gpu_holders = lambda: [str(job.pid)]
        end = monotonic() + (15 if computes else 1)
        while "gpu" not in agent.seen and monotonic() < end:
            agent.look(monotonic())
            sleep(0.3)
        job.kill()

    assert ("gpu" in agent.seen) is computes
    assert said in agent.problems.get("nvidia-smi", "")


def test_who_has_a_gpu_open_is_told_by_the_kernel(tmp_path: Path) -> None:
    for pid, target in (("7", "/dev/nvidia0"), ("8", "/dev/nvidiactl"), ("9", "/dev/null"), ("x", "/dev/nvidia1")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd" / "3").symlink_to(target)

    assert AGENT.Machine(str(tmp_path)).gpu_holders() == ["7"]


@pytest.mark.parametrize(("holds", "use"), [(True, True), (False, False)])
def test_where_a_gpu_does_not_tell_how_busy_it_is_whoever_holds_it_counts(
    tmp_path: Path, holds: bool, use: bool
) -> None:
    pid = os.getppid() if holds else ""
    script = f'case "$1" in --query-gpu*) echo "A100, 40960, 19000, [N/A]";; *) echo {pid};; esac'
    agent = an_agent(tmp_path, nvidia_smi=tool(tmp_path, script), gpu_every_seconds=0)

    agent.look(monotonic())

    assert ("gpu" in agent.seen) is use
