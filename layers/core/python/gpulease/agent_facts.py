"""The agent's row of a lease, as far as it says something about the present machine. For API and steps."""

from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import Lease, LeaseState
from gpulease.errors import LedgerUnavailable
from gpulease.ports import Deps


def agent_of(lease: Lease, deps: Deps) -> AgentRecord | None:
    """What the agent of its machine has told; None = there is none. Raises LedgerUnavailable."""
    if not deps.policy.agent_url or lease.attempt is None:
        return None
    agent = deps.agents.load(lease.id)
    return agent if agent is not None and agent.attempt == lease.attempt.number else None


def agent_to_show(lease: Lease, deps: Deps) -> AgentRecord | None:
    """The same for a view, which never fails for that: None also while the machine is stopped, or where the row cannot
    be read now."""
    if lease.state is LeaseState.PAUSED:
        return None
    try:
        return agent_of(lease, deps)
    except LedgerUnavailable as error:
        deps.log.warning("agent_not_read", lease_id=lease.id, reason=str(error))
        return None
