"""Leases on their way through a pause, as records in memory."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpulease.domain.lease import (
    Attempt,
    Lease,
    LeaseState,
    PauseMode,
    Reason,
)
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.pause import (
    paused,
    request_pause,
    seen_stopped,
)
from gpulease.domain.policy import Capacity, LeasePolicy
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import BillingRule, Rate, Resource, ResourceKind, ResourceState, resource_id
from gpulease.domain.resume import (
    request_resume,
)
from gpulease.domain.spec import LeaseSpec

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
LEASE = "l-aaaaaaaaaaaa"
FULL, STOPPED = Decimal("0.80"), Decimal("0.01")
OFFER = Offer(
    provider="aws",
    region="us-east-1",
    zone="us-east-1a",
    plan="g6.xlarge",
    kind=PlanKind.VM,
    gpu_model="L4",
    gpu_count=1,
    gpu_memory_gib=24,
    vcpus=4,
    memory_gib=16,
    disk_gb=100,
    price_per_hour_usd=FULL,
)


def later(**time: float) -> datetime:
    return NOW + timedelta(**time)


def machine(attempt: int = 1, **update: object) -> Resource:
    identity = resource_id(LEASE, ResourceKind.INSTANCE, attempt)
    made = Resource(
        id=identity,
        lease_id=LEASE,
        attempt=attempt,
        kind=ResourceKind.INSTANCE,
        provider="aws",
        account="aws",
        region="us-east-1",
        marker=identity,
        state=ResourceState.HELD,
        intended_at=NOW,
        provider_id=f"i-{attempt}",
        billing=BillingRule.PER_SECOND,
        rates=(Rate(since=NOW, usd_per_hour=FULL),),
        address="203.0.113.7",
    )
    return made.model_copy(update=update)


def running(policy: LeasePolicy | None = None) -> LeaseRecord:
    attempt = Attempt(number=1, offer=OFFER, started_at=NOW, ready_deadline=later(minutes=10))
    lease = Lease(
        id=LEASE,
        owner="ada",
        name="train",
        spec=LeaseSpec(policy=policy or LeasePolicy()),
        state=LeaseState.RUNNING,
        epoch=1,
        version=1,
        created_at=NOW,
        updated_at=NOW,
        running_at=NOW,
        ready_at=NOW,
        attempts=(attempt,),
    )
    return LeaseRecord(lease, (machine(),))


def after(record: LeaseRecord, change: Change) -> LeaseRecord:
    """The record as the ledger has it after the change."""
    rows = {r.id: r for r in record.resources} | {r.id: r for r in change.resources}
    return LeaseRecord(change.lease or record.lease, tuple(rows.values()))


def pausing(mode: PauseMode = PauseMode.STOP) -> LeaseRecord:
    record = running()
    return after(record, request_pause(record, now=NOW, mode=mode, reason=Reason.USER))


def stopped(record: LeaseRecord, at: datetime) -> LeaseRecord:
    (kept,) = record.resources
    return LeaseRecord(record.lease, (seen_stopped(kept, at, "stopped", STOPPED),))


def resting() -> LeaseRecord:
    record = stopped(pausing(), later(minutes=1))
    return after(record, paused(record, later(minutes=1), "paused"))


def resuming(on_no_capacity: Capacity | None = None) -> LeaseRecord:
    record = resting()
    return after(record, request_resume(record, now=later(hours=1), on_no_capacity=on_no_capacity))
