"""A local server, and machines on which the real agent runs."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_world import AgentServer, Machine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    """A local server whose machines get agents."""
    server = AgentServer(tmp_path / "server")
    server.start()
    yield server
    server.close()


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    """Machines whose agents end with the test."""
    started: list[Machine] = []
    yield started
    for machine in started:
        machine.stop(signal.SIGKILL)
