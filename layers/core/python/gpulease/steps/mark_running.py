"""The lease is proven ready, for the first time or after a pause: hand it to its user."""

from gpulease.domain.lease import IN_PROVISION, LeaseState, ResumeMode
from gpulease.domain.resource import ResourceState
from gpulease.domain.resume import now_running
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.machine import machine_of
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"running", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION, LeaseState.RUNNING)
    if record.lease.state is LeaseState.RUNNING:
        return Outcome("running")
    machine = machine_of(record)
    resume = record.lease.resume
    text = f"{record.lease.name} is running at {machine.address if machine else ''}"
    deps.ledger.commit(now_running(record, deps.clock.now(), text))
    if resume is not None and resume.mode is ResumeMode.NEW:
        record = deps.ledger.load(command.lease_id)
        if any(resource.state is ResourceState.RELEASING for resource in record.resources):
            # The stopped machine that this one replaces. Should the start be lost, its overdue turn brings it back.
            start_release(record, deps, "replaced")
    return Outcome("running")
