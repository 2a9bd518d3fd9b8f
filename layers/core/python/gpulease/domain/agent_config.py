"""What the agent on a machine is told at its creation: `/etc/gpulease/agent.json`, readable by root alone."""

from typing import Any

from gpulease.domain.model import Model
from gpulease.domain.user_data import START_SCRIPT_PATH


class AgentConfig(Model):
    """More can be set where the agent is tried out (`root`, `commands`, `proc`, seconds): see `guest/agent.py`."""

    url: str
    token: str
    lease_id: str
    gpus_expected: int
    interval_seconds: int = 60
    ssh_port: int = 22
    start_script: str = ""
    """Its path; empty = there is none."""
    start_when_told: bool = False
    """The script waits for `AgentAnswer.start`: to join a network or get a volume, machines are rebooted."""
    cache: dict[str, Any] | None = None
    """As `domain/cache_for_agent.py` writes it."""


def agent_config(
    *,
    url: str,
    token: str,
    lease_id: str,
    gpus: int,
    script_bytes: int,
    ssh_port: int,
    cache: dict[str, Any] | None,
    start_when_told: bool = False,
) -> AgentConfig:
    """The configuration of one machine's agent."""
    return AgentConfig(
        url=url,
        token=token,
        lease_id=lease_id,
        gpus_expected=gpus,
        ssh_port=ssh_port,
        start_script=START_SCRIPT_PATH if script_bytes else "",
        cache=cache,
        start_when_told=start_when_told,
    )
