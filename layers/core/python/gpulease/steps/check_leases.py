"""What the one-minute schedule does: look at the leases that are due, and at no others.

Workflows that died are started again from the ledger under their next name, leases whose time is up are ended, and
releases that nobody works on are taken up again. One lease that fails does not stop the others.
"""

from datetime import datetime, timedelta

from gpulease.domain.lease import LeaseKind, LeaseState, Reason
from gpulease.domain.next_step import expires_at
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, cancel, event
from gpulease.errors import LeaseConflict, LeaseSuperseded
from gpulease.ports import Deps
from gpulease.steps.shared_network import check_members
from gpulease.steps.starting import go_on, start_overdue_release, start_release, workflow_name

BATCH = 100
MACHINE_OF_STATE = {
    LeaseState.REQUESTED: "provision",
    LeaseState.PROVISIONING: "provision",
    LeaseState.RELEASING: "release",
}
GRACE = timedelta(minutes=15)
"""After an attempt's last deadline; its workflow acts within one poll of it when it can act at all."""
TIME_LIMIT = timedelta(seconds=40)
"""Stop taking up leases after this; the next minute goes on with the most overdue."""


def run(deps: Deps) -> dict[str, int]:
    started = deps.clock.now()
    counts = {"checked": 0, "restarted": 0, "expired": 0, "failed": 0}
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


def check(lease_id: str, deps: Deps) -> str:
    """Check one lease. Returns "restarted", "expired" or ""."""
    now = deps.clock.now()
    record = deps.ledger.load(lease_id)
    lease = record.lease
    if lease.next_check_at is None or lease.next_check_at > now:
        return ""
    end = expires_at(record)
    if lease.state is LeaseState.RUNNING and end is not None and end <= now:
        deps.ledger.commit(cancel(record, now=now, reason=Reason.EXPIRED, detail="its maximum duration is over"))
        start_release(deps.ledger.load(lease_id), deps)
        return "expired"
    if _is_given_up_on(record, now):
        detail = "its workflow could not end it by its deadline"
        deps.ledger.commit(cancel(record, now=now, reason=Reason.NOT_READY_IN_TIME, detail=detail))
        start_release(deps.ledger.load(lease_id), deps)
        return "expired"
    restarted = start_overdue_release(record, deps, now)
    if lease.kind is LeaseKind.NETWORK and lease.state is LeaseState.RUNNING:
        check_members(record, deps)
        return "restarted" if restarted else ""
    machine = MACHINE_OF_STATE.get(lease.state)
    if machine is not None and not deps.workflows.is_running(machine, workflow_name(lease, machine)):
        _restart(record, machine, now, deps)
        return "restarted"
    deps.ledger.commit(
        Change(lease_id=lease_id, lease=lease.model_copy(update={"next_check_at": _next_check(record, now)}))
    )
    return "restarted" if restarted else ""


def _is_given_up_on(record: LeaseRecord, now: datetime) -> bool:
    """Whether a machine is so late that its own workflow must be unable to see it: a fault in a step must not cost a
    machine that is never handed over."""
    attempt = record.lease.attempt if record.lease.state is LeaseState.PROVISIONING else None
    if attempt is None or not record.of_kind(ResourceKind.INSTANCE, attempt.number):
        return False
    return now >= max(attempt.ready_deadline, attempt.network_deadline or attempt.ready_deadline) + GRACE


def _restart(record: LeaseRecord, machine: str, now: datetime, deps: Deps) -> None:
    text = f"the {machine} workflow had stopped; it goes on from the ledger"
    restarts = record.lease.restarts + 1
    told = event(record.lease.id, now, "workflow_restarted", text, "warning", machine=machine, restarts=restarts)
    go_on(record, machine, deps, told)


def _next_check(record: LeaseRecord, now: datetime) -> datetime | None:
    in_motion = record.lease.state in MACHINE_OF_STATE
    leftovers = any(r.state is ResourceState.RELEASING for r in record.resources)
    if in_motion or leftovers:
        return now + CHECK_WORKFLOW_EVERY
    return expires_at(record) if record.lease.state is LeaseState.RUNNING else None
