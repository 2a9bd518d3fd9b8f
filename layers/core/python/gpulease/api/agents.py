"""The agent's row of a lease, as far as it says something about the present machine."""

from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import Lease, LeaseState
from gpulease.errors import LedgerUnavailable
from gpulease.ports import Deps


def agent_of(lease: Lease, deps: Deps) -> AgentRecord | None:
    """None = there is none, or it cannot be read now: a view never fails for that."""
    if not deps.policy.agent_url or lease.attempt is None or lease.state is LeaseState.PAUSED:
        return None
    try:
        agent = deps.agents.load(lease.id)
    except LedgerUnavailable as error:
        deps.log.warning("agent_not_read", lease_id=lease.id, reason=str(error))
        return None
    return agent if agent is not None and agent.attempt == lease.attempt.number else None
