"""The lease is proven ready: hand it to its user."""

from gpulease.domain.lease import LeaseState
from gpulease.domain.record import Change
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, event, moved
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.machine import machine_of

OUTCOMES = frozenset({"running", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PROVISIONING, LeaseState.RUNNING)
    if record.lease.state is LeaseState.RUNNING:
        return Outcome("running")
    now = deps.clock.now()
    machine = machine_of(record)
    lease = moved(
        record.lease,
        LeaseState.RUNNING,
        now,
        running_at=record.lease.running_at or now,
        ready_at=now,
        waiting_for="",
        # The next check knows the limits that apply, and when the one after it has to come.
        next_check_at=now + CHECK_WORKFLOW_EVERY,
    )
    text = f"{lease.name} is running at {machine.address if machine else ''}"
    deps.ledger.commit(
        Change(lease_id=lease.id, lease=lease, events=(event(lease.id, now, "running", text),), epoch=command.epoch)
    )
    return Outcome("running")
