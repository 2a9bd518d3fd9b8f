"""Whether a machine's agent has proven it ready, as a pure rule."""

from dataclasses import dataclass

from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import Attempt, Reason


@dataclass(frozen=True, slots=True)
class Word:
    """What the agent's reports say of its machine. `reason` is set where the machine is of no use.

    Neither ready nor a reason: it has not said so yet, since this attempt began or was started again.
    """

    ready: bool = False
    reason: Reason | None = None
    detail: str = ""


def word_of(agent: AgentRecord, attempt: Attempt) -> Word:
    """Silence is no failure here: the deadline ends it (C32). GPUs are counted against the offer (C30)."""
    if agent.first_report_at is None or agent.first_report_at < attempt.begun_at:
        return Word(detail="; ".join(agent.problems))
    expected, told = attempt.offer.gpu_count, "; ".join(agent.problems)
    if agent.gpus is None or agent.gpus < expected:
        counted = f"{agent.gpus or 0}/{expected} GPUs are there"
        why = (problem for problem in agent.problems if not problem.startswith("GPUs:"))
        return Word(reason=Reason.GPU_CHECK_FAILED, detail="; ".join([counted, *why]))
    if agent.start_script == "failed" and attempt.resumed_at is None:
        # Of a machine that once ran it is old news.
        code = "was cut off" if agent.start_script_exit is None else f"ended with {agent.start_script_exit}"
        return Word(reason=Reason.BOOT_FAILED, detail=f"its start script {code}" + (f"; {told}" if told else ""))
    return Word(ready=True, detail=told)


def is_shown_ready(attempt: Attempt) -> bool:
    """Whether nothing but the agent's word is missing, as far as `PollReadiness` has seen."""
    return attempt.shown_ready_at is not None and attempt.shown_ready_at >= attempt.begun_at


def agent_of_attempt(agent: AgentRecord | None, attempt: Attempt) -> AgentRecord | None:
    """The row if it is of this attempt's machine; None = no agent is expected on it."""
    return agent if agent is not None and agent.attempt == attempt.number and agent.token_sha256 else None
