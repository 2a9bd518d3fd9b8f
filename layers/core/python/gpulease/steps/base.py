"""What all steps share: their input, their outcome, and how they read and write the ledger."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from gpulease.domain.event import Event, Fact
from gpulease.domain.lease import Attempt, Lease, LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, resource_id
from gpulease.errors import LeaseConflict, LeaseSuperseded, ProviderError
from gpulease.ports import Deps, Provider, Ref

FACT_TRIES = 8
LOCKED_OUT = "to accept the key"
"""Part of what a lease waits for while its provider refuses the account's key."""


class StepCommand(BaseModel):
    """Task input. `started_at` is the execution's own start, for handing over before the service's history limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease_id: str
    epoch: int
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the state machine chooses by. `wait_seconds` feeds the Wait state where the outcome leads to one."""

    outcome: str
    wait_seconds: int = 1
    may_stay: bool = True
    """Whether the same step can go on after the pause, in the same call (`steps/staying.py`)."""

    def as_json(self) -> dict[str, str | int]:
        return {"outcome": self.outcome, "wait_seconds": max(1, self.wait_seconds)}


def load_current(command: StepCommand, deps: Deps, *states: LeaseState) -> LeaseRecord:
    """The lease of this workflow. Raises LeaseSuperseded when its epoch moved on or it is in none of `states`."""
    record = deps.ledger.load(command.lease_id)
    if record.lease.epoch != command.epoch:
        raise LeaseSuperseded(f"{command.lease_id}: epoch is {record.lease.epoch}, not {command.epoch}")
    if states and record.lease.state not in states:
        raise LeaseSuperseded(f"{command.lease_id} is {record.lease.state}")
    return record


def record_fact(
    deps: Deps,
    lease_id: str,
    resource_id: str,
    change: Callable[[LeaseRecord, Resource], Change | None],
) -> LeaseRecord:
    """Write down something that is so, whatever the epoch. `change` is asked again when another writer came between.

    Returns the record as it was read for the write that succeeded (or for the one that was not needed).
    """
    for _ in range(FACT_TRIES):
        record = deps.ledger.load(lease_id)
        resource = record.resource(resource_id)
        if resource is None:
            raise LeaseConflict(f"{resource_id} is not in the ledger")
        wanted = change(record, resource)
        if wanted is None:
            return record
        try:
            deps.ledger.commit(wanted)
        except LeaseConflict:
            continue
        return record
    raise LeaseConflict(f"{resource_id}: {FACT_TRIES} writes in a row lost against others")


def ref_of(resource: Resource) -> Ref:
    return Ref(
        kind=resource.kind,
        region=resource.region,
        marker=resource.marker,
        provider_id=resource.provider_id,
        subkind=resource.subkind,
        account_identity=resource.account_identity,
        zone=resource.zone,
    )


def account_identity(provider: Provider, deps: Deps) -> str:
    """To be kept with an intent. Empty where it cannot be read now: a create does not wait for that."""
    try:
        return provider.identity()
    except ProviderError as error:
        deps.log.warning("account_identity_unknown", provider=provider.name, reason=str(error))
        return ""


def with_attempt(lease: Lease, attempt: Attempt) -> Lease:
    """The lease with its attempt of the same number replaced."""
    return lease.model_copy(
        update={"attempts": tuple(attempt if a.number == attempt.number else a for a in lease.attempts)}
    )


def fail_attempt(
    record: LeaseRecord, now: datetime, reason: Reason, detail: str, *resources: Resource, status: int = 0
) -> Change:
    """Note why the current attempt failed. Its resources are marked for giving back by `ReleaseAttempt`.

    `status`: the provider's own code where an answer of it was the end.
    """
    attempt = record.lease.attempt
    if attempt is None:
        raise LeaseSuperseded(f"{record.lease.id} has no attempt under way")
    lease = with_attempt(record.lease, attempt.model_copy(update={"reason": reason, "detail": detail[:500]}))
    text = f"{attempt.offer.key}: {reason}" + (f": {detail}" if detail else "")
    event = Event(
        lease_id=lease.id,
        at=now,
        kind="attempt_failed",
        text=text[:600],
        level="warning",
        facts={
            "attempt": attempt.number,
            "reason": reason.value,
            "offer": attempt.offer.key,
            "provider": attempt.offer.provider,
            "region": attempt.offer.region,
            **_machine_facts(record, attempt),
            **({"status": status} if status else {}),
        },
    )
    return Change(
        lease_id=lease.id,
        lease=lease.model_copy(update={"updated_at": now}),
        resources=resources,
        events=(event,),
        epoch=lease.epoch,
    )


def _machine_facts(record: LeaseRecord, attempt: Attempt) -> dict[str, Fact]:
    machine = record.resource(resource_id(record.lease.id, ResourceKind.INSTANCE, attempt.number))
    return {"resource_id": machine.id, "provider_id": machine.provider_id} if machine else {}


def waiting_for(record: LeaseRecord, now: datetime, text: str) -> Change | None:
    """Tell people what the lease waits for; None when it says so already (a write costs money)."""
    if record.lease.waiting_for == text:
        return None
    lease = record.lease.model_copy(update={"waiting_for": text, "updated_at": now})
    return Change(lease_id=lease.id, lease=lease, epoch=lease.epoch)
