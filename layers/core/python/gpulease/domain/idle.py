"""What the clock decides about a lease: paused, resumed or released, why, and when it has to be looked at again.

Invariants (law 10): idle is measured, and counts from the latest of the last use, becoming ready, the owner's word and
a window that kept it warm. Silence is not idleness: without reports nothing is idle, and a machine whose agent fell
silent has a limit of its own. One quiet report proves nothing; several in a row do.

A machine's verdict also says when the next one may differ, so that a lease is read only when something may be due.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from gpulease.domain import windows
from gpulease.domain.agent import REPORT_EVERY_SECONDS, AgentRecord, is_silent, last_activity
from gpulease.domain.lease import Lease, LeaseState, Reason
from gpulease.domain.policy import LeasePolicy, Signal, Then, in_words

QUIET_REPORTS_NEEDED = 3
LOOK_AGAIN = timedelta(minutes=5)
"""At a machine whose agent is silent."""
BUDGET_LEAD = timedelta(minutes=5)
"""Acted on so much before the money is spent: giving back takes a while, and the next started hour would be billed."""
BUDGET_WARN = Decimal("0.8")
BUDGET_HORIZON = timedelta(days=31)


class Action(StrEnum):
    NONE = "none"
    PAUSE = "pause"
    RESUME = "resume"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`at`: for an action since when it is due; for `none` the latest time to ask again, None = nothing is planned.

    `plan` and `plan_at` tell people what the clock will do next if nobody does anything.
    """

    action: Action
    reason: Reason | None = None
    detail: str = ""
    at: datetime | None = None
    plan: str = ""
    plan_at: datetime | None = None


Cost = Callable[[datetime], Decimal]
"""US dollars that a lease has cost by then, if nothing changes."""


def decide(lease: Lease, agent: AgentRecord | None, now: datetime, cost: Cost) -> Verdict:
    """What is due now for a lease that has run. On the way to a pause and back only limits of time and money hold.

    The agent's row is that of its present machine.
    """
    due = [verdict for verdict in _limits(lease, agent, cost, now) if verdict.at is not None]
    over = [verdict for verdict in due if verdict.at is not None and verdict.at <= now]
    if over:
        # Releasing beats pausing: what ends for good is not stopped first. Then what was due first.
        return min(over, key=lambda verdict: (verdict.action is not Action.RELEASE, verdict.at))
    times = [verdict.at for verdict in due if verdict.at is not None]
    planned = min(
        (verdict for verdict in due if verdict.action is not Action.NONE), key=lambda v: v.at or now, default=None
    )
    return Verdict(
        Action.NONE,
        at=min(times, default=None),
        plan=_plan(planned),
        plan_at=planned.at if planned is not None else None,
    )


def idle_since(lease: Lease, agent: AgentRecord | None, now: datetime) -> datetime | None:
    """From when on idleness counts; None = it is not measured. May lie ahead, by the owner's word."""
    policy = lease.rules
    if agent is None or agent.first_report_at is None or lease.ready_at is None:
        return None
    moments = (
        lease.ready_at,
        last_activity(agent, policy.idle.signals),
        lease.touched_at,
        lease.keep_until,
        windows.warm_until_now(windows.usable(policy.windows), now) if policy.windows else None,
    )
    return max(moment for moment in moments if moment is not None)


def expires_at(lease: Lease) -> datetime | None:
    """When the lease's maximum duration ends; None = it has none or never ran."""
    seconds = lease.rules.max_duration_seconds
    if lease.running_at is None or seconds is None:
        return None
    return lease.running_at + timedelta(seconds=seconds)


def is_over_warning(lease: Lease, spent: Decimal) -> bool:
    """Whether its owner must be told now that most of the budget is spent."""
    budget = lease.rules.budget_usd
    return budget is not None and lease.budget_warned_at is None and spent >= budget * BUDGET_WARN


def _limits(lease: Lease, agent: AgentRecord | None, cost: Cost, now: datetime) -> list[Verdict]:
    policy = lease.rules
    found = []
    end = expires_at(lease)
    if end is not None:
        found.append(Verdict(Action.RELEASE, Reason.EXPIRED, "its maximum duration is over", end))
    found += _budget(lease, policy, cost, now)
    if lease.state is LeaseState.RUNNING:
        found += _windows_off(lease, policy, now)
        found += _use(lease, policy, agent, now)
    elif lease.state is LeaseState.PAUSED:
        found += _paused(lease, policy, now)
    return found


def _budget(lease: Lease, policy: LeasePolicy, cost: Cost, now: datetime) -> list[Verdict]:
    if policy.budget_usd is None:
        return []
    over = _reaches(cost, policy.budget_usd, now)
    found = []
    if over is not None:
        detail = f"its budget of ${policy.budget_usd} would be passed"
        found.append(Verdict(Action.RELEASE, Reason.BUDGET, detail, over - BUDGET_LEAD))
    if lease.budget_warned_at is None:
        warn = _reaches(cost, policy.budget_usd * BUDGET_WARN, now)
        if warn is not None:
            found.append(Verdict(Action.NONE, at=max(warn, now + timedelta(seconds=1))))
    if over is None:
        found.append(Verdict(Action.NONE, at=now + BUDGET_HORIZON))
    return found


def _reaches(cost: Cost, money: Decimal, now: datetime) -> datetime | None:
    """The first minute at which the lease will have cost more than this; None = not within the horizon."""
    low, high = now, now + BUDGET_HORIZON
    if cost(low) > money:
        return low
    if cost(high) <= money:
        return None
    while high - low > timedelta(seconds=30):
        middle = low + (high - low) / 2
        if cost(middle) > money:
            high = middle
        else:
            low = middle
    return high


def _windows_off(lease: Lease, policy: LeasePolicy, now: datetime) -> list[Verdict]:
    """The owner's word that it is kept is newer than the policy: until then no window pauses it."""
    known = windows.usable(policy.windows)
    if not known or lease.ready_at is None:
        return []
    found = []
    free = max(now, lease.keep_until) if lease.keep_until is not None else now
    since = windows.off_since(known, free, lease.ready_at)
    if since is not None:
        at = since if free == now else free
        found.append(Verdict(Action.PAUSE, Reason.WINDOW, "a window of its policy keeps it off", at))
    off = windows.next_off(known, free)
    if off is not None:
        found.append(Verdict(Action.PAUSE, Reason.WINDOW, off.text(), off.at))
    change = windows.next_change(known, now)
    if change is not None:
        found.append(Verdict(Action.NONE, None, change.text(), change.at))
    return found


def _use(lease: Lease, policy: LeasePolicy, agent: AgentRecord | None, now: datetime) -> list[Verdict]:
    """Idle or unreachable: at most one of them can be so."""
    if agent is None or agent.last_report_at is None:
        return []
    found = []
    if policy.unreachable.enabled:
        limit = timedelta(seconds=policy.unreachable.after_seconds)
        at = agent.last_report_at + limit
        detail = f"its agent has been silent for {in_words(int(limit.total_seconds()))}"
        # Of an agent that reports nothing is planned; only somebody has to look then.
        silent = at <= now or is_silent(agent, now)
        action = _action(policy.unreachable.then) if silent else Action.NONE
        found.append(Verdict(action, Reason.UNREACHABLE, detail, at))
    if not policy.idle.enabled:
        return found
    since = idle_since(lease, agent, now)
    if since is None:
        return found
    limit = timedelta(seconds=policy.idle.after_seconds)
    due = since + limit
    if is_silent(agent, now):
        # Its agent may come back with reports of quiet, and nobody else would look.
        found.append(Verdict(Action.NONE, at=now + LOOK_AGAIN))
    elif due <= now and not _is_quiet(agent, policy.idle.signals):
        found.append(Verdict(Action.NONE, at=now + timedelta(seconds=REPORT_EVERY_SECONDS)))
    else:
        detail = f"nothing has used it for {in_words(int(limit.total_seconds()))}"
        found.append(Verdict(_action(policy.idle.then), Reason.IDLE, detail, due))
    return found


def _is_quiet(agent: AgentRecord, signals: tuple[Signal, ...]) -> bool:
    """Whether several reports in a row told of none of these signals. Others may be there: they do not count."""
    if agent.quiet_reports >= QUIET_REPORTS_NEEDED:
        return True
    if set(signals) == set(Signal) or agent.first_report_at is None or agent.last_report_at is None:
        return False
    since = max(agent.first_report_at, last_activity(agent, signals) or agent.first_report_at)
    return agent.last_report_at - since >= timedelta(seconds=QUIET_REPORTS_NEEDED * REPORT_EVERY_SECONDS)


def _paused(lease: Lease, policy: LeasePolicy, now: datetime) -> list[Verdict]:
    found = []
    if policy.paused.release_after_seconds is not None and lease.paused_at is not None:
        limit = timedelta(seconds=policy.paused.release_after_seconds)
        detail = f"it has been paused for {in_words(int(limit.total_seconds()))}"
        found.append(Verdict(Action.RELEASE, Reason.EXPIRED, detail, lease.paused_at + limit))
    by_itself = lease.pause is not None and lease.pause.reason in (Reason.IDLE, Reason.WINDOW)
    if (known := windows.usable(policy.windows)) and by_itself and lease.pause is not None:
        by_window = lease.pause.reason is Reason.WINDOW
        since = windows.on_since(known, now, lease.pause.requested_at, by_window=by_window)
        if since is not None and lease.resume_after is not None:
            since = max(since, lease.resume_after)
        if since is not None:
            found.append(Verdict(Action.RESUME, Reason.WINDOW, "a window of its policy wants it to run", since))
        elif (on := windows.next_on(known, now, by_window=by_window)) is not None:
            found.append(Verdict(Action.RESUME, Reason.WINDOW, on.text(), on.at))
        change = windows.next_change(known, now)
        if change is not None:
            found.append(Verdict(Action.NONE, None, change.text(), change.at))
    return found


def _action(then: Then) -> Action:
    return Action.PAUSE if then is Then.PAUSE else Action.RELEASE


def _plan(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    done = {Action.PAUSE: "paused", Action.RELEASE: "released", Action.RESUME: "resumed"}[verdict.action]
    return f"{done} ({verdict.reason}): {verdict.detail}"
