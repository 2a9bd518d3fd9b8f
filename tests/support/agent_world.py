"""The agent as a real process against the real local API, on a folder that stands for a machine's disk.

The program, its configuration and the start script are taken out of the simulated machine's own user data, as
cloud-init would; only what a developer's computer lacks is put in another place (root folder, `nvidia-smi`, seconds).
"""

import base64
import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import Lease
from gpulease.domain.user_data import AGENT_CONFIG_PATH, AGENT_PATH, agent_config_in, read_user_data
from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import Client
from gpulease_local.server import LocalServer, Options
from gpulease_sim.vultr import Settings
from gpulease_sim.vultr.settings import with_boot_seconds

_numbers = count(1)
SCALE = 20.0
BOOT_SECONDS = 30.0
QUICK = {
    "look_every_seconds": 0.3,
    "least_seconds": 0.2,
    "most_seconds": 1,
    "interval_seconds": 1,
    "gpu_every_seconds": 0.3,
    "gpu_wait_seconds": 1,
    "script_grace_seconds": 0.4,
    "backoff_seconds": 0.4,
    "volume_wait_seconds": 3,
}
"""The same agent, in a hurry."""


def until(what: Callable[[], Any], seconds: float = 45.0) -> Any:
    """What `what` gives as soon as it is something. Fails when that takes too long."""
    end = monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert monotonic() < end, "it did not happen in time"
        sleep(0.05)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class AgentServer:
    """A local server whose machines get agents. Started and closed at will; its folder and port stay."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._thread: threading.Thread | None = None
        self.server: LocalServer | None = None

    def start(self) -> None:
        """Serve; leases go on where they were."""
        options = Options(
            port=self.port,
            data_dir=self._folder,
            time_scale=SCALE,
            agent_url=self.url,
            simulator=with_boot_seconds(Settings(), BOOT_SECONDS),
        )
        self.server = server = LocalServer(options, {"GPULEASE_HOME": str(self._folder / "home")})
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None and self._thread is not None:
            self.server.stopping.set()
            self._thread.join()
            self.server.close()
            self.server = None

    @property
    def deps(self) -> Any:
        """The stack's parts."""
        assert self.server is not None
        return self.server.stack.deps

    @property
    def client(self) -> Client:
        """As its user."""
        token = json.loads((self._folder / "api.json").read_text(encoding="utf-8"))["token"]
        return Client(self.url, token, timeout_seconds=20)

    def up(self, **request: Any) -> str:
        """Ask for a lease; its id."""
        return self.client.create_lease(request, idempotency_key=f"key-{next(_numbers)}").id

    def lease(self, lease_id: str) -> Lease:
        """As it is in the ledger."""
        lease: Lease = self.deps.ledger.load(lease_id).lease
        return lease

    def agent(self, lease_id: str) -> AgentRecord:
        """What the agent has told."""
        record = self.deps.agents.load(lease_id)
        assert record is not None
        return record  # type: ignore[no-any-return]

    def user_data(self, lease_id: str) -> bytes:
        """Of the lease's newest machine, as soon as it was asked for."""

        def found() -> bytes | None:
            assert self.server is not None
            assert self.server.cloud is not None
            for each in reversed(self.server.cloud.book_objects()):
                data = each.user_data_bytes
                config = agent_config_in(data) if data else None
                if config is not None and config["lease_id"] == lease_id:
                    return data
            return None

        data = until(found)
        assert isinstance(data, bytes)
        return data


class Machine:
    """A folder that stands for the machine's disk, and the agent on it."""

    def __init__(self, folder: Path, user_data: bytes, *, gpus: int, **config: Any) -> None:
        self.root = folder / "disk"
        self.log = folder / "agent.log"
        for file in read_user_data(user_data)["write_files"]:
            content = base64.b64decode(file["content"])
            self.write(file["path"], gzip.decompress(content) if file["encoding"] == "gz+b64" else content)
        self.nvidia_smi = folder / "nvidia-smi"
        self.has_gpus(gpus)
        own = json.loads(self.path(AGENT_CONFIG_PATH).read_text(encoding="utf-8"))
        self.token: str = own["token"]
        places = {"root": str(self.root), "nvidia_smi": str(self.nvidia_smi)}
        self.config: dict[str, Any] = {**own, **places, **QUICK, **config}
        self._process: subprocess.Popen[bytes] | None = None

    def path(self, path: str) -> Path:
        """Where a path of the machine lies on this computer."""
        return self.root / path.lstrip("/")

    def write(self, path: str, content: bytes) -> None:
        """As cloud-init writes it."""
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o700)

    def has_gpus(self, count: int, percent: int = 0) -> None:
        """Put a stand-in for nvidia-smi in place that shows so many."""
        lines = "".join(f'echo "NVIDIA L40S, 46068, 3, {percent}"\n' for _ in range(count))
        partial = self.nvidia_smi.with_suffix(".new")
        partial.write_text(f'#!/bin/sh\ncase "$1" in --query-gpu*) :\n{lines};; esac\n', encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(self.nvidia_smi)

    def boot(self) -> None:
        """Start the agent, as systemd would."""
        self.path(AGENT_CONFIG_PATH).write_text(json.dumps(self.config), encoding="utf-8")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-B", str(self.path(AGENT_PATH)), str(self.path(AGENT_CONFIG_PATH))],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the agent; its exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(how)
        status = self._process.wait(timeout=30)
        self._process = None
        return status

    def cpu_seconds(self) -> float:
        """What the agent has used so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(encoding="utf-8")
