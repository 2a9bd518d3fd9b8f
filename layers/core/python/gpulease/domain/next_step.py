"""What happens next to a lease and when: the answer to the question asked at 2 a.m."""

from dataclasses import dataclass
from datetime import datetime

from gpulease.domain.agent import AgentRecord
from gpulease.domain.cost import lease_cost
from gpulease.domain.flush import open_flush
from gpulease.domain.idle import Action, Verdict, decide
from gpulease.domain.lease import LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceState


@dataclass(frozen=True, slots=True)
class NextStep:
    text: str
    at: datetime | None = None
    """Latest moment at which it happens; None = nothing is planned, or it is under way."""


def planned(record: LeaseRecord, agent: AgentRecord | None, now: datetime) -> Verdict:
    """What the clock decides about a lease that has run, and when to ask again."""
    return decide(record.lease, agent, now, lambda when: lease_cost(record, when))


def what_next(
    record: LeaseRecord, now: datetime, agent: AgentRecord | None = None, *, keeps_something: bool = True
) -> NextStep:
    """`keeps_something`: whether a pause would. Where it would not, what its policy calls a pause gives it back."""
    lease = record.lease
    flush = open_flush(lease)
    if flush is not None:
        then = "given back" if lease.state is LeaseState.RELEASING else "stopped, or given back and its cache kept"
        return NextStep(
            f"its machine is {then} once its cache is saved, at {flush.latest:%H:%M} UTC at most", flush.latest
        )
    if lease.state is LeaseState.RELEASED:
        return NextStep("nothing: everything is proven gone")
    if lease.state is LeaseState.RELEASING:
        open_ = [r for r in record.resources if r.state is not ResourceState.RELEASED]
        if not open_:
            return NextStep("the lease is closed")
        names = ", ".join(f"{r.kind} at {r.provider}/{r.region}" for r in open_)
        return NextStep(f"released once it is proven gone: {names}")
    if lease.state in (LeaseState.RUNNING, LeaseState.PAUSED):
        verdict = planned(record, agent, now)
        if verdict.action is not Action.NONE:
            text = f"within a minute: {verdict.action}d ({verdict.reason}): {verdict.detail}"
            return NextStep(text if keeps_something else _given_back(text), now)
        if verdict.plan:
            return NextStep(verdict.plan if keeps_something else _given_back(verdict.plan), verdict.plan_at)
        if lease.state is LeaseState.PAUSED:
            return NextStep("stays paused until you resume it or give it back")
        unmeasured = "" if agent is not None else "; no agent measures whether it is used"
        return NextStep(f"runs until you give it back (no limit of time or use applies{unmeasured})")
    attempt = lease.attempt
    if lease.state is LeaseState.PAUSING:
        return NextStep("paused once nothing of its machine's compute is billed")
    if attempt is None:
        return NextStep(lease.waiting_for or "the next offer is chosen")
    return NextStep(f"given up unless ready: {attempt.offer.key}", attempt.ready_deadline)


def _given_back(text: str) -> str:
    """The same of a machine of which a pause would keep nothing."""
    kept = text.replace("paused (", "released (", 1)
    return kept if kept == text else f"{kept}; a pause would keep nothing of it"
