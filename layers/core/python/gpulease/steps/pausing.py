"""What the steps that pause and resume share."""

from decimal import Decimal

from gpulease.domain.cost import rate_now
from gpulease.domain.lease import LeaseState, PauseMode
from gpulease.domain.pause import is_stuck, seen_stopped
from gpulease.domain.pause_plan import BilledPart, per_hour
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import ABSENCES_NEEDED
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.transitions import event
from gpulease.pause_facts import cache_part, machine_held
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import record_fact, ref_of
from gpulease.steps.facts import adopt
from gpulease.steps.losing import end
from gpulease.steps.starting import machine_for, start_release, workflow_name


def decided(change: Change, deps: Deps) -> LeaseRecord:
    """Write a decision and start the workflow that carries it out. Should this die in between, or the start be lost,
    `check_leases` finds a lease in motion without a workflow."""
    deps.ledger.commit(change)
    record = deps.ledger.load(change.lease_id)
    machine = machine_for(record.lease)
    if machine is not None:
        deps.workflows.start(machine, workflow_name(record.lease, machine), record.lease.id, record.lease.epoch)
    elif any(resource.state is ResourceState.RELEASING for resource in record.resources):
        # Nothing moves a paused lease, and what new machines' tries have left must not wait until that is noticed.
        start_release(record, deps)
    return record


def paused_text(record: LeaseRecord, deps: Deps) -> str:
    """What is said when a lease has become `paused`."""
    machine = machine_held(record)
    parts = [BilledPart("its disk", rate_now(machine))] if machine is not None else []
    cache = cache_part(record.lease, deps)
    parts += [cache] if cache is not None else []
    billed = ", ".join(f"{part.what} {per_hour(part.usd_per_hour)}" for part in parts) or "nothing"
    return f"{record.lease.name} is paused; billed meanwhile: {billed}"


def gone(record: LeaseRecord, machine: Resource, provider: Provider, deps: Deps) -> bool:
    """It was read as absent by id. When that is so twice, and by marker too, the lease ends as lost: True."""
    found = provider.find(ref_of(machine))
    others = [seen for seen in found if seen.provider_id != machine.provider_id]
    if others:
        adopt(deps, machine, others)
    here = len(found) > len(others)
    absences = 0 if here else machine.absences + 1
    if absences != machine.absences:
        counted = machine.model_copy(update={"absences": absences})
        deps.ledger.commit(Change(lease_id=record.lease.id, resources=(counted,), epoch=record.lease.epoch))
    if absences < ABSENCES_NEEDED:
        return False
    end(deps, deps.ledger.load(record.lease.id), machine, f"missing since {deps.clock.now():%H:%M} UTC")
    return True


def tell_if_stuck(record: LeaseRecord, deps: Deps) -> LeaseRecord:
    """Ten minutes after a pause was asked for its machine is billed still: people are told, once. Returns the lease as
    it is then."""
    progress, machine, now = record.lease.pause, machine_held(record), deps.clock.now()
    if progress is None or machine is None or progress.mode is not PauseMode.STOP:
        return record
    if not is_stuck(progress, now, record.lease.flush):
        return record
    # Told before it is noted as told: cut off in between, it is told twice and not never.
    alarms.pause_stuck(deps, machine, "still_billed", progress.last_error)
    told = event(
        record.lease.id,
        now,
        "pause_stuck",
        f"{machine.kind} {machine.provider_id} has not stopped for 10 minutes; it is still billed, and asked again",
        "error",
        provider=machine.provider,
        region=machine.region,
        resource_id=machine.id,
        provider_id=machine.provider_id,
        reason="still_billed",
    )
    lease = record.lease.model_copy(update={"pause": progress.model_copy(update={"alarmed_at": now})})
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, events=(told,), epoch=lease.epoch))
    return deps.ledger.load(lease.id)


def note_stopped(record: LeaseRecord, machine: Resource, words: str, price: Decimal, deps: Deps) -> None:
    """A fact, whatever the epoch: from now on it costs what a stopped one costs."""

    def change(found: LeaseRecord, resource: Resource) -> Change | None:
        now = deps.clock.now()
        noted = seen_stopped(resource, now, words, price)
        if noted is resource or resource.state is ResourceState.RELEASED:
            return None
        if found.lease.state in (LeaseState.RESUMING, LeaseState.RUNNING):
            # Seen before it was started again: what it costs now is another matter.
            return None
        told = event(found.lease.id, now, "instance_stopped", f"the provider shows {words}", resource_id=resource.id)
        return Change(lease_id=found.lease.id, resources=(noted,), events=(told,))

    record_fact(deps, record.lease.id, machine.id, change)
