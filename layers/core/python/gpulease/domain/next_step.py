"""What happens next to a lease and when: the answer to the question asked at 2 a.m."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpulease.domain.lease import LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceState


@dataclass(frozen=True, slots=True)
class NextStep:
    text: str
    at: datetime | None = None
    """Latest moment at which it happens; None = nothing is planned, or it is under way."""


def expires_at(record: LeaseRecord) -> datetime | None:
    """When the lease's maximum duration ends; None = it has none or is not running yet."""
    lease = record.lease
    if lease.running_at is None or lease.spec.max_duration_seconds is None:
        return None
    return lease.running_at + timedelta(seconds=lease.spec.max_duration_seconds)


def what_next(record: LeaseRecord, now: datetime) -> NextStep:
    lease = record.lease
    if lease.state is LeaseState.RELEASED:
        return NextStep("nothing: everything is proven gone")
    if lease.state is LeaseState.RELEASING:
        open_ = [r for r in record.resources if r.state is not ResourceState.RELEASED]
        if not open_:
            return NextStep("the lease is closed")
        names = ", ".join(f"{r.kind} at {r.provider}/{r.region}" for r in open_)
        return NextStep(f"released once it is proven gone: {names}")
    if lease.state is LeaseState.RUNNING:
        end = expires_at(record)
        if end is None:
            return NextStep("runs until you give it back (no maximum duration)")
        return NextStep("released: maximum duration", end)
    attempt = lease.attempt
    if attempt is None:
        return NextStep(lease.waiting_for or "the next offer is chosen")
    return NextStep(f"given up unless ready: {attempt.offer.key}", attempt.ready_deadline)
