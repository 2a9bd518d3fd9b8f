"""Machines that are stopped or started otherwise than by us: from inside, or at the provider by hand (C41, C42).

Invariants: a list is a suspicion, the machine itself is looked at before anything is written. A stopped machine whose
provider does not bill it makes its lease paused; one that is billed in full is never shown as anything but billed, and
its owner is told. One that somebody started is taken as resumed: who starts it wants it, its bill runs, and idleness is
measured as after any other resume.
"""

from gpulease.domain.lease import LeaseState, PauseMode, Reason
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.pause import HALTED_WARNING, request_pause, seen_started, without
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.resume import request_resume
from gpulease.domain.transitions import event
from gpulease.errors import LeaseNotFound
from gpulease.pause_facts import can_be_stopped, offer_of_machine
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import ref_of
from gpulease.steps.pausing import decided


def as_shown(deps: Deps, provider: Provider, resource_id: str) -> str:
    """What was done about a machine that was listed otherwise than the ledger has it; "" = nothing."""
    try:
        record = deps.ledger.load(resource_id.partition(".")[0])
    except LeaseNotFound:
        return ""
    machine = record.resource(resource_id)
    if machine is None or machine.state is not ResourceState.HELD:
        return ""
    if record.lease.state not in (LeaseState.RUNNING, LeaseState.PAUSED):
        # A workflow looks at the machine itself and knows what follows.
        return ""
    seen = provider.observe(ref_of(machine))
    if isinstance(seen, Absent):
        return ""
    if seen.condition is Condition.STOPPED and machine.stopped_at is None:
        return _stopped(record, machine, seen, deps)
    if seen.condition in (Condition.READY, Condition.PENDING) and machine.stopped_at is not None:
        return _started(record, machine, seen, deps)
    return ""


def _stopped(record: LeaseRecord, machine: Resource, seen: Observation, deps: Deps) -> str:
    now = deps.clock.now()
    if record.lease.state is not LeaseState.RUNNING:
        return ""
    if can_be_stopped(offer_of_machine(record.lease, machine), deps):
        why = f"it was stopped from inside or at {machine.provider}"
        decided(request_pause(record, now=now, mode=PauseMode.STOP, reason=Reason.STOPPED, detail=why), deps)
        return why
    text = f"{HALTED_WARNING} ({seen.words}); start it, or give it back"
    # Told before it is noted as told: cut off in between, it is told twice and not never.
    alarms.pause_stuck(deps, machine, alarms.STOPPED_STILL_BILLED, seen.words)
    lease = record.lease.model_copy(update={"warnings": (*record.lease.warnings, text), "updated_at": now})
    told = event(
        lease.id,
        now,
        "stopped_still_billed",
        f"{lease.name}: {text}",
        "error",
        provider=machine.provider,
        region=machine.region,
        resource_id=machine.id,
        provider_id=machine.provider_id,
        reason=alarms.STOPPED_STILL_BILLED,
    )
    noted = machine.model_copy(update={"stopped_at": now, "status": seen.words})
    deps.ledger.commit(Change(lease.id, lease, (noted,), (told,), lease.epoch))
    return HALTED_WARNING


def _started(record: LeaseRecord, machine: Resource, seen: Observation, deps: Deps) -> str:
    lease, now = record.lease, deps.clock.now()
    price = offer_of_machine(lease, machine).price_per_hour_usd
    if lease.state is LeaseState.PAUSED:
        why = f"it was started at {machine.provider}"
        decided(request_resume(record, now=now, detail=why), deps)
        return why
    if seen.condition is not Condition.READY:
        return ""
    again = lease.model_copy(update={"warnings": without(lease.warnings, HALTED_WARNING), "updated_at": now})
    told = event(lease.id, now, "started_again", f"{lease.name}: its machine runs again", resource_id=machine.id)
    running = seen_started(machine, now, seen.words, price)
    deps.ledger.commit(Change(lease.id, again, (running,), (told,), lease.epoch))
    return "it runs again"
