"""A ministack server (a local AWS in one process, MIT) for tests of DynamoDB, Lambda and Step Functions.

It pins botocore, so it lives in a virtual environment of its own (``make .venv-ministack``) and runs as a
child process on loopback. Invariants: one server per test process however many folders use it, nothing is
written outside its temporary folder, and it ends with the test process.

Use from a conftest: ``from tests.support.ministack import ministack`` and take the ``ministack`` fixture.
"""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

REGION = "us-east-1"
ACCOUNT = "000000000000"

_REPOSITORY = Path(__file__).resolve().parents[2]
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder of our own there
_ENOUGH_BYTES = 4 * 1024**3
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0


class MinistackMissing(RuntimeError):
    """The server's executable is not installed; the tests that need it fail, they are not skipped."""


@dataclass(frozen=True)
class Ministack:
    """A running server."""

    endpoint_url: str
    log: Path

    def client(self, service: str, **options: Any) -> Any:
        """Return a boto3 client for this server; calls are sent once (no retries), errors surface at once."""
        config = Config(retries={"total_max_attempts": 1}, max_pool_connections=32, connect_timeout=5)
        make: Any = boto3.client  # the service is chosen at run time, which the typed overloads cannot say
        return make(
            service,
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the server accepts anything
            config=config.merge(options.pop("config", Config())),
            **options,
        )


def executable() -> Path:
    """Return the ministack command: ``GPULEASE_MINISTACK``, else ``.venv-ministack`` of the repository."""
    named = os.environ.get("GPULEASE_MINISTACK")
    path = Path(named) if named else _REPOSITORY / ".venv-ministack" / "bin" / "ministack"
    if not os.access(path, os.X_OK):
        raise MinistackMissing(
            f"{path} is not there: run `make .venv-ministack` (pip install 'ministack[full]==1.5.33' in its "
            "own virtual environment) or set GPULEASE_MINISTACK to the executable"
        )
    return path


def free_port() -> int:
    """Return a TCP port on loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quick_folder() -> Path | None:
    """Where files are in memory, if there is room. Each function that is called has its layers unpacked, two thousand
    files, and removed at an update: on a busy disk that takes longer than all the rest."""
    try:
        roomy = os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free >= _ENOUGH_BYTES
    except OSError:
        return None
    return _IN_MEMORY if roomy else None


@functools.cache
def server(*, checks_policies: bool = False) -> Ministack:
    """Start the server of this test process, wait until it answers, and stop it at exit.

    `checks_policies`: signatures and IAM policies are enforced for everybody but the root user, who is "test".
    """
    command = executable()
    home = Path(tempfile.mkdtemp(prefix="gpulease-ministack-", dir=_quick_folder()))
    port = free_port()
    log = home / "log.txt"
    environment = {
        "PATH": f"{command.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "HOME": str(home),
        "TMPDIR": str(home),
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",
        "MINISTACK_REGION": REGION,
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "AUTH": str(checks_policies).lower(),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own executable
            [str(command)],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its Lambda workers belong to its group and end with it
        )
    atexit.register(_stop, process, home)
    running = Ministack(endpoint_url=f"http://127.0.0.1:{port}", log=log)
    _wait_until_healthy(running, process)
    return running


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    """The running server, shared by every test of the process."""
    yield server()


def _wait_until_healthy(running: Ministack, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
            urllib.request.urlopen(f"{running.endpoint_url}/_ministack/ready", timeout=2) as answer,  # noqa: S310
        ):
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"ministack did not become ready:\n{running.log.read_text()[-4000:]}")


def _stop(process: subprocess.Popen[bytes], home: Path) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            if sign is signal.SIGTERM:
                continue  # its workers may still run: the second signal reaches the whole group
    shutil.rmtree(home, ignore_errors=True)
