"""Leases, resources and events of ordinary size and form, for tests and measurements of the ledgers."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count

from gpulease.domain.event import Event
from gpulease.domain.lease import Attempt, Lease, LeaseState
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.resource import BillingRule, Rate, Resource, ResourceKind, ResourceState, marker_for, resource_id
from gpulease.domain.spec import LeaseSpec

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A time so many seconds after NOW."""
    return NOW + timedelta(seconds=seconds)


def an_offer(**changes: object) -> Offer:
    """A bare-metal plan of Vultr."""
    offer = Offer(
        provider="vultr",
        region="ewr",
        plan="vbm-112c-2048gb-8-h100-gpu",
        kind=PlanKind.BARE_METAL,
        gpu_model="H100",
        gpu_count=8,
        gpu_memory_gib=80.0,
        vcpus=112,
        memory_gib=2048.0,
        disk_gb=960,
        price_per_hour_usd=Decimal("23.920"),
    )
    return offer.model_copy(update=changes)


def a_lease(lease_id: str = "l-aaaaaaaaaaaa", **changes: object) -> Lease:
    """A lease that was just asked for."""
    lease = Lease(
        id=lease_id,
        owner="ada",
        name="training",
        spec=LeaseSpec(gpu=("H100",), gpu_count=8, labels={"team": "vision"}, ssh_keys=("ssh-ed25519 AAAAC3Nz ada",)),
        state=LeaseState.REQUESTED,
        epoch=1,
        created_at=NOW,
        updated_at=NOW,
        next_check_at=at(60),
        attempts=(Attempt(number=1, offer=an_offer(), started_at=NOW, ready_deadline=at(3300)),),
    )
    return lease.model_copy(update=changes)


def a_resource(lease_id: str = "l-aaaaaaaaaaaa", attempt: int = 1, **changes: object) -> Resource:
    """The intent of a machine."""
    own_id = resource_id(lease_id, ResourceKind.INSTANCE, attempt)
    resource = Resource(
        id=own_id,
        lease_id=lease_id,
        attempt=attempt,
        kind=ResourceKind.INSTANCE,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker=marker_for("test", own_id),
        state=ResourceState.INTENDED,
        plan="vbm-112c-2048gb-8-h100-gpu",
        subkind="bare_metal",
        intended_at=NOW,
        billing=BillingRule.STARTED_HOUR,
        rates=(Rate(since=NOW, usd_per_hour=Decimal("23.920")),),
    )
    return resource.model_copy(update=changes)


def an_event(
    lease_id: str = "l-aaaaaaaaaaaa", seconds: float = 0, kind: str = "create_sent", **changes: object
) -> Event:
    """Something that happened so many seconds after NOW."""
    event = Event(lease_id=lease_id, at=at(seconds), kind=kind, text=f"{kind} at {seconds}", facts={"attempt": 1})
    return event.model_copy(update=changes)


class CountingIds:
    """`ports.Ids` without randomness: unique within one object, which `name` tells apart from others."""

    def __init__(self, name: int = 1) -> None:
        self._name = name
        self._numbers = count(1)

    def lease_id(self) -> str:
        """`l-` and 12 characters."""
        number = next(self._numbers)
        return "l-" + "".join("abcdefghijklmnopqrstuvwxyz234567"[(number >> (5 * i)) & 31] for i in range(12))

    def token(self) -> str:
        """32 hex digits."""
        return f"{self._name:016x}{next(self._numbers):016x}"
