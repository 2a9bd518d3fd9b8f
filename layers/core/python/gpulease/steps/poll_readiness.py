"""The last proof before `running`: ready at the provider, and the machine itself has said so.

Where it has an agent, the agent's report is that word, with its GPUs counted; the report itself moves the lease to
`running` when everything else is there (`steps/agent_report.py`), and this loop is the net under it. Without an agent
the SSH port has to answer.
"""

from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import IN_PROVISION, Attempt, LeaseState, Reason, ResumeMode
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.readiness import agent_of_attempt, is_shown_ready, word_of
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resume import fell_back, may_have_fallen_back
from gpulease.pause_facts import offer_of_machine
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, fail_attempt, load_current, waiting_for, with_attempt
from gpulease.steps.machine import look, machine_of, poll_pause_seconds
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"ready", "waiting", "stopped", "failed", "superseded"})
"""`stopped`: the start of a stopped machine came to nothing, and is to be asked for again."""
COMES_TO_NOTHING = frozenset({Reason.NO_CAPACITY, Reason.QUOTA_EXCEEDED, Reason.BOOT_FAILED, Reason.REJECTED})
"""Why a provider stops a machine that it has just begun to start; what a user does has other reasons."""
WAITS_FOR_AGENT = "its agent's first report"


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _look(command, deps), deps)


def _look(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION, LeaseState.RUNNING)
    if record.lease.state is LeaseState.RUNNING:
        # The agent's report was quicker.
        return Outcome("ready")
    attempt, machine = record.lease.attempt, machine_of(record)
    if attempt is None or attempt.reason is not None or machine is None:
        return Outcome("failed")
    seen = look(record, attempt, machine, deps)
    if seen.what == "failed":
        return Outcome("failed")
    pause = min(10, poll_pause_seconds(attempt, machine, deps))
    if seen.what == "waiting" or seen.observation is None:
        fell = _fallen(command, seen.observation, deps)
        return fell or Outcome("waiting", seen.wait_seconds or pause)
    agent = agent_of_attempt(deps.agents.load(command.lease_id), attempt) if deps.policy.agent_url else None
    # What was written by `look` is read again: the lease row may have changed with it.
    if agent is not None:
        return _by_agent(command, agent, seen.observation, pause, deps)
    if deps.probe.tcp_open(seen.observation.address, deps.policy.ssh_port):
        return Outcome("ready")
    where = f"{seen.observation.address}:{deps.policy.ssh_port}"
    record = load_current(command, deps, *IN_PROVISION)
    if deps.clock.now() >= attempt.ready_deadline:
        return _late(record, f"{seen.observation.words}, but nothing answers on {where}", deps)
    told = waiting_for(record, deps.clock.now(), f"SSH to answer on {where}")
    if told is not None:
        deps.ledger.commit(told)
    return Outcome("waiting", pause)


def _fallen(command: StepCommand, seen: Observation | None, deps: Deps) -> Outcome | None:
    """What follows when the machine stopped by itself before it was ready; None = it did not."""
    if seen is None or seen.condition is not Condition.STOPPED or seen.reason not in COMES_TO_NOTHING:
        return None
    record, now, reason = load_current(command, deps, *IN_PROVISION), deps.clock.now(), Reason(seen.reason)
    progress, machine = record.lease.resume, machine_of(record)
    if progress is None or progress.mode is ResumeMode.NEW or machine is None:
        deps.ledger.commit(fail_attempt(record, now, reason, f"the provider shows {seen.words}"))
        return Outcome("failed")
    if not may_have_fallen_back(progress, now):
        return None
    price = deps.providers.get(machine.account).stopped_price_per_hour(offer_of_machine(record.lease, machine))
    deps.ledger.commit(fell_back(record, machine, now, reason, words=seen.words, stopped_price=price))
    return Outcome("stopped", 1)


def _by_agent(command: StepCommand, agent: AgentRecord, seen: Observation, pause: int, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION, LeaseState.RUNNING)
    if record.lease.state is LeaseState.RUNNING:
        return Outcome("ready")
    attempt, now = record.lease.attempt, deps.clock.now()
    if attempt is None or attempt.number != agent.attempt or attempt.reason is not None:
        return Outcome("failed")
    word = word_of(agent, attempt)
    if word.ready:
        return Outcome("ready")
    if word.reason is not None:
        deps.ledger.commit(fail_attempt(record, now, word.reason, word.detail))
        return Outcome("failed")
    if now >= attempt.ready_deadline:
        said = "has not become ready" if agent.last_report_at is not None else "never reported"
        why = f" ({word.detail})" if word.detail else ""
        return _late(record, f"{seen.words}, but its agent {said}{why}", deps)
    told = _shown_ready(record, attempt, deps)
    if told is not None:
        deps.ledger.commit(told)
    return Outcome("waiting", pause)


def _shown_ready(record: LeaseRecord, attempt: Attempt, deps: Deps) -> Change | None:
    """Note that only the agent's word is missing, so that its report may move the lease; None = that is noted."""
    now = deps.clock.now()
    if is_shown_ready(attempt):
        return waiting_for(record, now, WAITS_FOR_AGENT)
    lease = with_attempt(record.lease, attempt.model_copy(update={"shown_ready_at": now}))
    lease = lease.model_copy(update={"waiting_for": WAITS_FOR_AGENT, "updated_at": now})
    return Change(lease_id=lease.id, lease=lease, epoch=lease.epoch)


def _late(record: LeaseRecord, detail: str, deps: Deps) -> Outcome:
    deps.ledger.commit(fail_attempt(record, deps.clock.now(), Reason.NOT_READY_IN_TIME, detail))
    return Outcome("failed")
