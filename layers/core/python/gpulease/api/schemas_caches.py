"""What goes in and out of the routes about caches. Money is a string of US dollars, times are RFC 3339 in UTC."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gpulease.api.schemas import Money, View
from gpulease.domain.cache import CacheState
from gpulease.domain.cache_spec import CacheName, CacheSpec, ObjectStore
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.spec import Word

MAX_EXPIRY_SECONDS = 366 * 86400
DEFAULT_EXPIRY_SECONDS = 14 * 86400

ExpireAfter = Annotated[
    int | None,
    Field(
        ge=3600,
        le=MAX_EXPIRY_SECONDS,
        description="Removed after having been unused for so long (14 days unless given); null = never",
    ),
]


def _is_a_number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("must be a number, without quotes")
    return value


class CacheRequest(BaseModel):
    """Body of `POST /v1/caches`: a volume (provider, region, size), an object store, or both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: CacheName
    size_gb: int = Field(default=100, ge=1, le=16384, description="Of the volume")
    provider: Word | None = Field(default=None, description="Where the volume is; without it there is none")
    region: Word | None = None
    zone: Word | None = Field(default=None, description="Where the provider divides its regions")
    throughput_mibps: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="MiB per second that the volume is paid to give, where speed can be bought (AWS: 125 to 1000); "
        "without it what such a volume gives anyway",
    )
    object_store: ObjectStore | None = Field(default=None, description="Its content can then go to any provider")
    expire_after_seconds: ExpireAfter = DEFAULT_EXPIRY_SECONDS

    _numbers = field_validator("size_gb", "throughput_mibps", "expire_after_seconds", mode="before")(_is_a_number)

    @field_validator("provider", "region", "zone")
    @classmethod
    def _lower(cls, value: str | None) -> str | None:
        return value.lower() if value is not None else None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.provider is None and self.object_store is None:
            raise ValueError("provider: give provider and region for a volume, or object_store, or both")
        if (self.provider is None) != (self.region is None):
            raise ValueError("region: a volume needs both provider and region")
        if self.zone is not None and self.region is None:
            raise ValueError("zone: says nothing without provider and region")
        if self.throughput_mibps is not None and self.provider is None:
            raise ValueError("throughput_mibps: says nothing without a volume; give provider and region")
        return self

    def spec(self, user: str, account: str) -> CacheSpec:
        """The part that is kept."""
        return CacheSpec(
            user=user,
            size_gb=self.size_gb,
            provider=self.provider or "",
            account=account,
            region=self.region or "",
            zone=self.zone or "",
            throughput_mibps=self.throughput_mibps,
            object_store=self.object_store,
            expire_after_seconds=self.expire_after_seconds,
        )


class CacheChange(BaseModel):
    """Body of `PATCH /v1/caches/{name}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expire_after_seconds: ExpireAfter

    _numbers = field_validator("expire_after_seconds", mode="before")(_is_a_number)


class CacheUserView(View):
    """The lease whose machine uses a cache."""

    lease_id: str
    name: str
    state: LeaseState


class VolumeView(View):
    provider_id: str = Field(description="Empty while it is being made")
    status: str = Field(description="The provider's own words when last seen")
    billed: bool = Field(description="Costs money now, as far as is known: true until its absence is proven")
    price_per_hour_usd: Money


class CacheView(View):
    """One cache."""

    id: str
    name: str
    owner: str
    state: CacheState
    reason: Reason | None = Field(description="Why it ended")
    reason_detail: str
    provider: str = Field(description="Of its volume; empty = it has none")
    region: str
    zone: str
    size_gb: int | None = Field(description="Of its volume; null = it has none")
    throughput_mibps: int | None = Field(description="MiB per second that its volume is paid to give; null = as usual")
    volumes: tuple[VolumeView, ...]
    object_store: ObjectStore | None
    price_per_month_usd: Money
    cost_so_far_usd: Money
    created_at: datetime
    used_at: datetime | None = Field(description="When a machine last began or ended to use it")
    used_by: CacheUserView | None
    expire_after_seconds: int | None
    expires_at: datetime | None = Field(
        description="When it is removed unless it is used; null = never, or it is in use"
    )
    waiting_for: str
    warnings: tuple[str, ...]


class CachePage(View):
    """`cursor` is opaque; null = this was the last page. A page may be empty and still have a cursor."""

    caches: tuple[CacheView, ...]
    cursor: str | None


class CachePlan(View):
    """What `POST /v1/caches?dry_run=true` would make. Nothing was created."""

    dry_run: bool = True
    name: str
    exists: bool = Field(description="There is one of this name and kind already; asking again gives that one")
    provider: str
    region: str
    zone: str
    size_gb: int | None
    throughput_mibps: int | None
    object_store: ObjectStore | None
    price_per_month_usd: Money
    expire_after_seconds: int | None
    offers: int = Field(description="How many offers of the catalogue could use its volume")
