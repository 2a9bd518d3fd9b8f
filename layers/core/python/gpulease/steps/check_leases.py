"""What the one-minute schedule does: look at the leases that are due, and at no others.

Workflows that died are started again from the ledger under their next name, leases whose time is up are ended, and
releases that nobody works on are taken up again. One lease that fails does not stop the others.

A lease whose workflow is said to have failed (`ports.FailedExecutions`) is looked at before it is due. The message says
where to look and nothing else, so one that comes twice or late changes nothing, and for one that never comes the
lease's own due time stands.
"""

from datetime import datetime, timedelta

from gpulease.domain.cache import is_usable, to_leave
from gpulease.domain.event import Fact
from gpulease.domain.idle import Action, Verdict
from gpulease.domain.lease import LeaseKind, LeaseState, Reason
from gpulease.domain.pause import release_warning_at
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, cancel, event
from gpulease.errors import GpuleaseError, LeaseConflict, LeaseNotFound, LeaseSuperseded
from gpulease.ports import Deps, FailedExecution
from gpulease.steps import alarms
from gpulease.steps.base import LOCKED_OUT
from gpulease.steps.cache import check_cache
from gpulease.steps.check_pausing import check_pausing, give_up_resuming
from gpulease.steps.limits import act, budget_warning
from gpulease.steps.shared_network import check_members
from gpulease.steps.starting import go_on, machine_for, start_overdue_release, start_release, workflow_name

BATCH = 100
GRACE = timedelta(minutes=15)
"""After an attempt's last deadline; its workflow acts within one poll of it when it can act at all."""
DONE = {Action.RELEASE: "expired", Action.PAUSE: "paused", Action.RESUME: "resumed"}
TIME_LIMIT = timedelta(seconds=40)
"""Stop taking up leases after this; the next minute goes on with the most overdue."""
TOLD_TIME_LIMIT = timedelta(seconds=15)
"""Stop reading messages after this; what is due must have its turn in every run."""
QUICK_RESTARTS = 5
"""Workflows of one decision that are started again as soon as they are said to have failed. What fails that often fails
for a reason that stays, and goes on at the pace of CHECK_WORKFLOW_EVERY."""
TRIES = 3
LOOK_AGAIN = timedelta(seconds=30)
"""After a message whose execution is shown as running still: the service's answer may be older than the message."""


def run(deps: Deps) -> dict[str, int]:
    started = deps.clock.now()
    counts = {"checked": 0, "restarted": 0, "expired": 0, "paused": 0, "resumed": 0, "failed": 0, "told": 0}
    _look_where_told(deps, started + TOLD_TIME_LIMIT, counts)
    for lease_id in deps.ledger.due(started, limit=BATCH):
        if deps.clock.now() - started > TIME_LIMIT:
            break
        counts["checked"] += 1
        try:
            what = check(lease_id, deps)
        except (LeaseConflict, LeaseSuperseded):
            # Somebody else moved the lease on while we looked: it will be due again by its new time.
            continue
        except Exception as error:  # whatever it is, the leases after this one must be looked at
            deps.log.error("check_failed", lease_id=lease_id, error=type(error).__name__, reason=str(error))
            counts["failed"] += 1
            continue
        if what:
            counts[what] += 1
    return counts


def _look_where_told(deps: Deps, until: datetime, counts: dict[str, int]) -> None:
    """Look at the leases whose workflows are said to have failed. What cannot be dealt with now stays in the queue."""
    while deps.clock.now() < until:
        try:
            messages = deps.failed_executions.receive()
        except GpuleaseError as error:
            deps.log.error("queue_not_read", error=type(error).__name__, reason=str(error))
            return
        if not messages:
            return
        for message in messages:
            try:
                what = _deal_with(message, deps)
                deps.failed_executions.done(message)
            except Exception as error:  # the messages after this one must be looked at
                deps.log.warning(
                    "message_left", lease_id=message.lease_id, error=type(error).__name__, reason=str(error)
                )
                continue
            counts["told"] += 1
            if what:
                counts[what] += 1


def _deal_with(message: FailedExecution, deps: Deps) -> str:
    """Returns what `check` did. A step that was under way when its workflow ended may still write: then look again."""
    for _ in range(TRIES - 1):
        try:
            return _told(message, deps)
        except (LeaseConflict, LeaseSuperseded):
            continue
    return _told(message, deps)


def _told(message: FailedExecution, deps: Deps) -> str:
    try:
        lease = deps.ledger.load(message.lease_id).lease
    except LeaseNotFound:
        deps.log.warning("message_of_no_lease", lease_id=message.lease_id, execution=message.name)
        return ""
    machine = machine_for(lease)
    if machine is None or message.name != workflow_name(lease, machine):
        # Late or doubled: the lease is past that workflow. Or a release beside it, which its overdue turn brings back.
        return ""
    return check(lease.id, deps, told=True) if lease.restarts < QUICK_RESTARTS else ""


def check(lease_id: str, deps: Deps, *, told: bool = False) -> str:
    """Check one lease that is due, or whose workflow is `told` to have failed: "restarted", "expired" or ""."""
    now = deps.clock.now()
    record = deps.ledger.load(lease_id)
    lease = record.lease
    due = lease.next_check_at is not None and lease.next_check_at <= now
    if not due and not told:
        return ""
    warned = budget_warning(record, now)
    if warned is not None:
        # Told before it is noted as told: cut off in between, it is told twice and not never.
        alarms.budget_nearly_spent(deps, record)
        deps.ledger.commit(warned)
        record = deps.ledger.load(lease_id)
    record = check_pausing(record, deps, now)
    lease = record.lease
    verdict = act(record, deps, now)
    if verdict is not None and verdict.action is not Action.NONE:
        return DONE[verdict.action]
    if _is_given_up_on(record, now):
        detail = "its workflow could not end it by its deadline"
        deps.ledger.commit(cancel(record, now=now, reason=Reason.NOT_READY_IN_TIME, detail=detail))
        start_release(deps.ledger.load(lease_id), deps)
        return "expired"
    if give_up_resuming(record, deps, now):
        return "expired"
    restarted = start_overdue_release(record, deps, now)
    if lease.kind is LeaseKind.NETWORK and lease.state is LeaseState.RUNNING:
        check_members(record, deps)
        return "restarted" if restarted else ""
    if is_usable(lease):
        return check_cache(record, deps) or ("restarted" if restarted else "")
    machine = machine_for(lease)
    if machine is not None and not deps.workflows.is_running(machine, workflow_name(lease, machine)):
        _restart(record, machine, now, deps, told=told)
        return "restarted"
    next_check = now + LOOK_AGAIN if told else _next_check(record, verdict, now)
    deps.ledger.commit(Change(lease_id=lease_id, lease=lease.model_copy(update={"next_check_at": next_check})))
    return "restarted" if restarted else ""


def _is_given_up_on(record: LeaseRecord, now: datetime) -> bool:
    """Whether a machine is so late that its own workflow must be unable to see it: a fault in a step must not cost a
    machine that is never handed over. Where the key is refused nobody could see it, and nothing is concluded (C64)."""
    if LOCKED_OUT in record.lease.waiting_for:
        return False
    attempt = record.lease.attempt if record.lease.state is LeaseState.PROVISIONING else None
    if attempt is None or not record.of_kind(ResourceKind.INSTANCE, attempt.number):
        return False
    deadlines = (attempt.ready_deadline, attempt.network_deadline, attempt.volume.deadline if attempt.volume else None)
    return now >= max(deadline for deadline in deadlines if deadline is not None) + GRACE


def _restart(record: LeaseRecord, machine: str, now: datetime, deps: Deps, *, told: bool) -> None:
    lease = record.lease
    text = f"the {machine} workflow had stopped; it goes on from the ledger"
    facts: dict[str, Fact] = {"machine": machine, "restarts": lease.restarts + 1, "told": told}
    if not told:
        # A start that was lost, or a message that did not come: if this is frequent, messages do not arrive at all.
        deps.log.warning("stopped_untold", lease_id=lease.id, execution=workflow_name(lease, machine))
    go_on(record, machine, deps, event(lease.id, now, "workflow_restarted", text, "warning", **facts))


def _next_check(record: LeaseRecord, verdict: Verdict | None, now: datetime) -> datetime | None:
    in_motion = machine_for(record.lease) is not None
    leftovers = any(r.state is ResourceState.RELEASING for r in record.resources) or bool(to_leave(record))
    moments = [verdict.at] if verdict is not None and verdict.at is not None else []
    warn = release_warning_at(record.lease)
    moments += [warn] if warn is not None else []
    if in_motion or leftovers:
        moments.append(now + CHECK_WORKFLOW_EVERY)
    return min(moments, default=None)
