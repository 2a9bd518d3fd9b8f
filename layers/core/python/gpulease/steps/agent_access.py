"""A machine's agent gets its token, and loses it.

Invariants: the token leaves only in the create call, its hash is stored before that is sent, and only the one caller
who wrote the machine's intent stores it, so that two who create at once never leave the machine with a token that
nobody knows. Cut off before the hash is stored, nothing was sent, and the intent is closed like any other.
"""

from typing import Any

from gpulease.agent_program import machine_data
from gpulease.domain.agent import AgentRecord, for_new_machine, for_start
from gpulease.domain.agent_config import AgentConfig, agent_config
from gpulease.domain.agent_protocol import new_token, token_digest
from gpulease.domain.cache_for_agent import cache_for_agent
from gpulease.domain.lease import Attempt, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.domain.resume import kept_before
from gpulease.domain.spec import PrivateNetwork
from gpulease.errors import LeaseConflict
from gpulease.ports import Deps, Provider
from gpulease.steps.cache import cache_of

TRIES = 5


def config_for(record: LeaseRecord, attempt: Attempt, deps: Deps) -> AgentConfig | None:
    """What this attempt's agent is told, with a new token; None = machines get no agent."""
    if not deps.policy.agent_url:
        return None
    lease = record.lease
    return agent_config(
        url=deps.policy.agent_url,
        token=new_token(lease.id, deps.ids.token()),
        lease_id=lease.id,
        gpus=attempt.offer.gpu_count,
        script_bytes=lease.start_script_bytes,
        ssh_port=deps.policy.ssh_port,
        cache=_cache(record, deps),
        start_when_told=lease.spec.private_network is not PrivateNetwork.NONE,
    )


def data_for(record: LeaseRecord, config: AgentConfig | None, provider: Provider, deps: Deps) -> bytes:
    """The machine's user data. Raises UserDataTooLarge."""
    lease = record.lease
    script = deps.ledger.start_script(lease.id) if lease.start_script_bytes else b""
    return machine_data(lease.spec, script, config, provider.capabilities.max_user_data_bytes)


def let_in(record: LeaseRecord, attempt: Attempt, config: AgentConfig, deps: Deps) -> None:
    """Store the token's hash for this attempt's machine; the token of an earlier attempt's is dead from then on, unless
    its stopped machine is kept and started again."""
    digest = token_digest(config.token)
    for _ in range(TRIES):
        known = deps.agents.load(record.lease.id)
        if known is not None and known.attempt > attempt.number:
            raise LeaseConflict(f"{record.lease.id} has a later attempt than {attempt.number}")
        fresh = AgentRecord(lease_id=record.lease.id, attempt=attempt.number, token_sha256=digest)
        try:
            deps.agents.save(for_new_machine(known, fresh, _kept_attempt(record)))
        except LeaseConflict:
            continue
        return
    raise LeaseConflict(f"the agent's row of {record.lease.id}: {TRIES} writes in a row lost against others")


def _kept_attempt(record: LeaseRecord) -> int:
    kept = kept_before(record) if record.lease.resume is not None else None
    return kept.attempt if kept is not None else 0


def kept_agent(known: AgentRecord, deps: Deps) -> tuple[AgentRecord, bool] | None:
    """The row as that of the kept machine's agent, and whether that machine is the lease's own again: new ones were
    tried in vain. Until then it stands by, and so it does while a start of it is asked for, which restores its row
    itself. None = it was given back. Raises LeaseNotFound."""
    record = deps.ledger.load(known.lease_id)
    held = (m for m in record.of_kind(ResourceKind.INSTANCE, known.kept_attempt) if m.state is ResourceState.HELD)
    if next(held, None) is None:
        return None
    attempt = record.lease.attempt
    its_own = attempt is not None and attempt.number == known.kept_attempt
    return for_start(known, known.kept_attempt), its_own and record.lease.state is not LeaseState.RESUMING


def shut_out(lease_id: str, deps: Deps) -> None:
    """The lease ends: no token opens anything any more. What was told stays."""
    if not deps.policy.agent_url:
        return
    for _ in range(TRIES):
        known = deps.agents.load(lease_id)
        if known is None or not known.token_sha256:
            return
        try:
            deps.agents.save(known.model_copy(update={"token_sha256": "", "kept_token_sha256": ""}))
        except LeaseConflict:
            continue
        return
    raise LeaseConflict(f"the agent's row of {lease_id}: {TRIES} writes in a row lost against others")


def _cache(record: LeaseRecord, deps: Deps) -> dict[str, Any] | None:
    cache = cache_of(record.lease, deps)
    return cache_for_agent(record.lease, cache) if cache is not None else None
