"""The demo's machines: folders of this computer with the real agent on them, a real process that talks to the real API.

A `gpulease_sim.guests.GuestHost`. The agent's program, its configuration and the start script are taken out of the
simulated machine's own user data, as cloud-init would; a volume is a folder that outlives the machines. Only what a
developer's computer lacks is put elsewhere: the root folder, `nvidia-smi`, and the agent's seconds, since the
simulated provider's clock runs fast.
"""

import base64
import gzip
import json
import shutil
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

from gpulease.domain.user_data import AGENT_CONFIG_PATH, AGENT_PATH, agent_config_in, read_user_data

STOP_SECONDS = 10.0
HURRY = {
    "look_every_seconds": 0.2,
    "least_seconds": 0.2,
    "most_seconds": 0.5,
    "interval_seconds": 0.5,
    "gpu_every_seconds": 0.5,
    "gpu_wait_seconds": 1,
    "script_grace_seconds": 0.2,
    "backoff_seconds": 0.3,
    "volume_wait_seconds": 5,
}


class DemoMachines:
    """All machines of one demo, under `folder`. `close` ends what still runs."""

    def __init__(self, folder: Path, *, clock_speed: float, forgetful: bool = False) -> None:
        """`clock_speed`: of the API's clock. `forgetful`: volumes are empty when attached, to see that this is told."""
        self._folder, self._speed, self._forgetful = folder, clock_speed, forgetful
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._waiting: dict[str, tuple[Path, dict[str, Any]]] = {}
        """Booted, with a cache whose volume is not attached yet."""
        self._volumes: dict[str, str] = {}

    def volume(self, volume_id: str) -> Path:
        """The folder that is this volume."""
        return self._folder / "volumes" / volume_id

    # --- what the simulated provider tells ---

    def booted(self, machine_id: str, user_data: bytes, gpus: int, at: datetime) -> None:
        """Do what cloud-init does, and start the agent (with a cache: once its volume is there)."""
        config = agent_config_in(user_data)
        if config is None:
            return
        root = self._folder / "machines" / machine_id
        for file in read_user_data(user_data)["write_files"]:
            content = base64.b64decode(file["content"])
            _write(
                root / file["path"].lstrip("/"), gzip.decompress(content) if file["encoding"] == "gz+b64" else content
            )
        smi = "".join('echo "NVIDIA L40S, 46068, 3, 0"\n' for _ in range(gpus))
        _write(root / "nvidia-smi", f'#!/bin/sh\ncase "$1" in --query-gpu*) :\n{smi};; esac\n'.encode())
        config |= {"root": str(root), "nvidia_smi": str(root / "nvidia-smi"), "clock_speed": self._speed, **HURRY}
        with self._lock:
            self._waiting[machine_id] = (root, config)
        self._start_if_complete(machine_id)

    def stopped(self, machine_id: str, at: datetime) -> None:
        self._kill(machine_id)

    def _kill(self, machine_id: str) -> None:
        with self._lock:
            self._waiting.pop(machine_id, None)
            process = self._running.pop(machine_id, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(STOP_SECONDS)

    def ended(self, machine_id: str, at: datetime) -> None:
        self.stopped(machine_id, at)
        self._volumes.pop(machine_id, None)

    def volume_attached(self, machine_id: str, volume_id: str, at: datetime) -> None:
        if self._forgetful:
            shutil.rmtree(self.volume(volume_id), ignore_errors=True)
        self.volume(volume_id).mkdir(parents=True, exist_ok=True)
        self._volumes[machine_id] = volume_id
        self._start_if_complete(machine_id)

    def volume_detached(self, machine_id: str, volume_id: str, at: datetime) -> None:
        self._volumes.pop(machine_id, None)

    def close(self) -> None:
        """End all agents."""
        for machine_id in list(self._running):
            self._kill(machine_id)

    # --- parts ---

    def _start_if_complete(self, machine_id: str) -> None:
        with self._lock:
            waiting = self._waiting.get(machine_id)
            if waiting is None:
                return
            root, config = waiting
            if config.get("cache"):
                volume_id = self._volumes.get(machine_id)
                if volume_id is None:
                    return
                place = {"kind": "directory", "path": str(self.volume(volume_id))}
                config = {**config, "cache": {**config["cache"], "volume": place}}
            del self._waiting[machine_id]
            _write(_on(root, AGENT_CONFIG_PATH), json.dumps(config).encode())
            with (root / "agent.log").open("ab") as log:
                self._running[machine_id] = subprocess.Popen(  # noqa: S603 - our own program
                    [
                        sys.executable,
                        "-B",
                        str(root / AGENT_PATH.lstrip("/")),
                        str(root / AGENT_CONFIG_PATH.lstrip("/")),
                    ],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                )


def _on(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(0o700)
