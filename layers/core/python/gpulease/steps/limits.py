"""Carries out what the clock decides about a lease that runs or is paused; the rules are in `domain/idle.py`.

The decision is written first, on condition of the row it was read from: a lease that was touched, kept or changed in
the meantime is not acted on, and comes up again.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from gpulease.agent_facts import agent_of
from gpulease.domain.agent import AgentRecord
from gpulease.domain.cost import lease_cost
from gpulease.domain.idle import LOOK_AGAIN, Action, Verdict, is_over_warning
from gpulease.domain.lease import Lease, LeaseKind, LeaseState, PauseMode, Reason
from gpulease.domain.next_step import planned
from gpulease.domain.pause import BUDGET_NOTICE, request_pause
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resume import request_resume
from gpulease.domain.transitions import cancel, event
from gpulease.errors import LedgerUnavailable
from gpulease.pause_facts import is_configured, is_over_budget, machine_held, mode_of, offer_of
from gpulease.ports import Deps
from gpulease.saving import flush_before_end
from gpulease.steps.pausing import decided

RESUME_AGAIN = timedelta(minutes=15)
"""A resume by a window that found no capacity is tried again so much later."""
HAVE_LIMITS = frozenset({LeaseState.RUNNING, LeaseState.PAUSING, LeaseState.PAUSED, LeaseState.RESUMING})
"""On the way to a pause and back a machine may be billed for as long as its provider refuses to stop it: limits of time
and money hold there as well, and nothing else does."""
SILENT_FOR_SURE = 3
"""Times the limit of silence, after which a machine is given back although it answers on its SSH port."""


def act(record: LeaseRecord, deps: Deps, now: datetime) -> Verdict | None:
    """What was decided, done if it was an action. None = no clock runs for this lease."""
    lease = record.lease
    if lease.kind is not LeaseKind.MACHINE or lease.state not in HAVE_LIMITS:
        return None
    try:
        agent, unread = agent_of(lease, deps), False
    except LedgerUnavailable as error:
        # Never stops a check: without the row nothing is idle, and the limits of time and money still hold.
        deps.log.warning("agent_not_read", lease_id=lease.id, reason=str(error))
        agent, unread = None, True
    verdict = planned(record, agent, now)
    if unread and verdict.action is Action.NONE:
        # What its agent has told may have a limit of its own, and nobody else would look.
        soon = now + LOOK_AGAIN
        verdict = replace(verdict, at=min(verdict.at or soon, soon))
    if verdict.action is Action.PAUSE and not _can_be_asked(lease, deps):
        return replace(verdict, action=Action.NONE, at=now + LOOK_AGAIN)
    if verdict.action is Action.PAUSE and _may_only_be_cut_off(record, verdict, agent, deps, now):
        # Its silence holds up nothing else: a window and the limits of time and money need no agent.
        verdict = planned(record, None, now)
        if verdict.action is Action.NONE:
            soon = now + LOOK_AGAIN
            return replace(verdict, at=min(verdict.at or soon, soon))
    if verdict.action is Action.RESUME and is_over_budget(record, now, deps):
        _stays_paused(record, deps, now)
        return replace(verdict, action=Action.NONE, at=now + LOOK_AGAIN)
    if verdict.action is Action.RELEASE:
        _release(record, verdict, deps, now)
    elif verdict.action is Action.PAUSE:
        _pause(record, verdict, deps, now)
    elif verdict.action is Action.RESUME:
        _resume(record, verdict, deps, now)
    return verdict


def act_on_report(record: LeaseRecord, agent: AgentRecord, deps: Deps, now: datetime) -> Verdict | None:
    """What a report of a running machine's agent decides: nothing, or that it is idle, which is acted on at once.

    `check_leases` decides the same within a minute; here it costs the user that minute less. None = no clock runs.
    """
    lease, attempt = record.lease, record.lease.attempt
    if lease.state is not LeaseState.RUNNING or attempt is None or attempt.number != agent.attempt:
        return None
    verdict = planned(record, agent, now)
    if verdict.reason is Reason.IDLE and verdict.action is Action.PAUSE:
        if not _can_be_asked(lease, deps):
            return None
        _pause(record, verdict, deps, now)
    elif verdict.reason is Reason.IDLE and verdict.action is Action.RELEASE:
        _release(record, verdict, deps, now)
    return verdict


def _may_only_be_cut_off(
    record: LeaseRecord, verdict: Verdict, agent: AgentRecord | None, deps: Deps, now: datetime
) -> bool:
    """Whether a silent machine is left alone for now: a pause would destroy it, with a cache or without one, and it
    answers on its SSH port.

    Reports do not come either when our own API is down, throttled or flooded, and then from no machine at all. A second
    sign is wanted before something is lost; after three times the limit silence alone is enough.
    """
    lease = record.lease
    if verdict.reason is not Reason.UNREACHABLE or agent is None or agent.last_report_at is None:
        return False
    limit = timedelta(seconds=lease.rules.unreachable.after_seconds)
    if now >= agent.last_report_at + SILENT_FOR_SURE * limit or mode_of(record, deps) is PauseMode.STOP:
        return False
    machine = machine_held(record)
    if machine is None or not machine.address or not deps.probe.tcp_open(machine.address, deps.policy.ssh_port):
        return False
    deps.log.warning("silent_but_answers", lease_id=lease.id, provider_id=machine.provider_id)
    return True


def budget_warning(record: LeaseRecord, now: datetime) -> Change | None:
    """The one warning that most of the budget is spent; None = it is not due."""
    lease, spent = record.lease, lease_cost(record, now)
    if not is_over_warning(lease, spent):
        return None
    text = f"${spent:.2f} of the budget of ${lease.rules.budget_usd} is spent"
    warned = lease.model_copy(
        update={"budget_warned_at": now, "warnings": (*lease.warnings, text), "updated_at": now, "next_check_at": now}
    )
    told = event(lease.id, now, "budget_warning", f"{lease.name}: {text}", "warning")
    return Change(lease_id=lease.id, lease=warned, events=(told,), epoch=lease.epoch)


def _release(record: LeaseRecord, verdict: Verdict, deps: Deps, now: datetime) -> None:
    reason = verdict.reason or Reason.EXPIRED
    # Who is given back for its silence has nobody who could save anything.
    flush = None if reason is Reason.UNREACHABLE else flush_before_end(record, deps, now)
    decided(cancel(record, now=now, reason=reason, detail=verdict.detail, flush=flush), deps)


def _pause(record: LeaseRecord, verdict: Verdict, deps: Deps, now: datetime) -> None:
    """Pause it; where that would keep nothing, give it back, as its owner was told when it was asked for."""
    reason = verdict.reason or Reason.IDLE
    mode = mode_of(record, deps)
    if mode is None:
        detail = f"{verdict.detail}; a pause would keep nothing of it"
        _release(record, Verdict(Action.RELEASE, reason, detail), deps, now)
        return
    flush = flush_before_end(record, deps, now)
    decided(request_pause(record, now=now, mode=mode, reason=reason, detail=verdict.detail, flush=flush), deps)


def _resume(record: LeaseRecord, verdict: Verdict, deps: Deps, now: datetime) -> None:
    change = request_resume(record, now=now, detail=verdict.detail)
    if change.lease is not None:
        change = replace(change, lease=change.lease.model_copy(update={"resume_after": now + RESUME_AGAIN}))
    decided(change, deps)


def _stays_paused(record: LeaseRecord, deps: Deps, now: datetime) -> None:
    """Told once: whoever resumed it here would have it given back, with its disk."""
    lease = record.lease
    if BUDGET_NOTICE in lease.notices:
        return
    told = event(lease.id, now, "not_resumed", f"{lease.name}: {BUDGET_NOTICE}", "warning")
    noted = lease.model_copy(update={"notices": (*lease.notices, BUDGET_NOTICE), "updated_at": now})
    deps.ledger.commit(Change(lease_id=lease.id, lease=noted, events=(told,), epoch=lease.epoch))


def _can_be_asked(lease: Lease, deps: Deps) -> bool:
    """Whether its account is in the settings. If not, perhaps by mistake, a pause can neither be had nor become a
    release, which would be carried out when the account is back."""
    offer = offer_of(lease)
    known = offer is not None and is_configured(offer.provider, deps)
    if not known:
        deps.log.warning("pause_not_possible", lease_id=lease.id, reason="its account is not in the settings")
    return known
