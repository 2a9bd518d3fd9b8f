"""What the routes under /v1/drain answer."""

from datetime import datetime

from pydantic import Field

from gpulease.api.schemas import Money, View
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import ResourceKind, ResourceState


class DrainLease(View):
    """A lease that has not ended yet."""

    id: str
    name: str
    owner: str
    state: LeaseState
    waiting_for: str


class DrainThing(View):
    """Something that is not proven gone, and counts as billed until it is. Networks that several leases share too."""

    kind: ResourceKind
    provider: str
    account: str
    region: str
    provider_id: str = Field(description="Empty: asked for, and may exist")
    resource_id: str
    lease_id: str
    state: ResourceState
    price_per_hour_usd: Money
    tries: int = Field(description="Delete calls sent")
    last_error: str


class DrainCache(View):
    """A cache: the user's own data, never removed by draining. `gpulease cache rm NAME` removes it."""

    id: str
    name: str
    owner: str
    provider: str
    region: str
    provider_id: str
    price_per_hour_usd: Money


class DrainView(View):
    """`done`: no lease is open, and apart from `caches` nothing is billed; with no caches either, the stack may be
    deleted."""

    draining: bool
    since: datetime | None
    by: str
    done: bool
    leases: tuple[DrainLease, ...] = Field(description="The first 200")
    lease_count: int
    still_billed: tuple[DrainThing, ...] = Field(description="The first 200")
    still_billed_count: int
    caches: tuple[DrainCache, ...]
    price_per_hour_usd: Money = Field(description="Of all that is still billed, caches included")
