"""What goes in and out of the API. Money is a string of US dollars, times are RFC 3339 in UTC.

A request is read strictly: an unknown field, a boolean for a number or text for a count is an error and not a guess.
"""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gpulease.domain.lease import LeaseState, PauseMode, Reason
from gpulease.domain.offer import Offer
from gpulease.domain.policy import LeasePolicy, Signal
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.domain.spec import MAX_START_SCRIPT_BYTES, LeaseSpec

LeaseName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Money = Annotated[str, Field(description="US dollars", examples=["1.85"])]

_NUMBERS = (
    "gpu_count",
    "min_gpu_memory_gib",
    "min_vcpus",
    "min_memory_gib",
    "min_disk_gb",
    "max_duration_seconds",
    "max_attempts",
)


class LeaseRequest(LeaseSpec):
    """Body of `POST /v1/leases`: what is asked for, a name, and what the machine runs first."""

    name: LeaseName | None = Field(default=None, description="For people; made up when missing")
    start_script: str | None = Field(
        default=None,
        repr=False,
        description=f"Run once as root when the machine starts; at most {MAX_START_SCRIPT_BYTES} bytes",
    )
    start_script_base64: str | None = Field(
        default=None, repr=False, description="The same as any bytes in base64; not both"
    )

    @field_validator(*_NUMBERS, "max_price_per_hour_usd", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("must be a number")
        return value

    @field_validator(*_NUMBERS, mode="before")
    @classmethod
    def _is_no_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("must be a number, without quotes")
        return value

    @field_validator("start_script")
    @classmethod
    def _script_fits(cls, value: str | None) -> str | None:
        _check_script_size(len(value.encode()) if value else 0)
        return value

    @field_validator("start_script_base64")
    @classmethod
    def _script_decodes(cls, value: str | None) -> str | None:
        if value:
            try:
                decoded = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("must be standard base64 without blanks or line breaks") from None
            _check_script_size(len(decoded))
        return value

    @model_validator(mode="after")
    def _one_script(self) -> Self:
        if self.start_script is not None and self.start_script_base64 is not None:
            raise ValueError("start_script: give either start_script or start_script_base64, not both")
        return self

    @model_validator(mode="after")
    def _one_duration(self) -> Self:
        both = {self.max_duration_seconds, self.policy.max_duration_seconds} - {None}
        if len(both) > 1:
            raise ValueError("max_duration_seconds: contradicts policy.max_duration_seconds; give one of the two")
        return self

    def __repr__(self) -> str:
        # The framework formats its arguments for a debug line on every request, keys and labels included.
        return f"LeaseRequest(name={self.name!r})"

    def spec(self) -> LeaseSpec:
        """The part that is kept as the lease's spec."""
        return LeaseSpec.model_construct(
            _fields_set=self.model_fields_set & LeaseSpec.model_fields.keys(),
            **{name: getattr(self, name) for name in LeaseSpec.model_fields},
        )

    def script(self) -> bytes:
        if self.start_script_base64:
            return base64.b64decode(self.start_script_base64)
        return (self.start_script or "").encode()


def _check_script_size(size: int) -> None:
    if size > MAX_START_SCRIPT_BYTES:
        raise ValueError(f"has {size} bytes; at most {MAX_START_SCRIPT_BYTES} are possible")


class View(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AttemptView(View):
    number: int
    offer: str
    price_per_hour_usd: Money
    started_at: datetime
    ended_at: datetime | None
    reason: Reason | None
    detail: str


class ResourceView(View):
    id: str
    kind: ResourceKind
    provider: str
    account: str
    region: str
    plan: str
    state: ResourceState
    provider_id: str
    status: str = Field(description="The provider's own words when last seen")
    address: str
    price_per_hour_usd: Money
    cost_so_far_usd: Money
    billed: bool = Field(description="Costs money now, as far as is known: true until its absence is proven")
    shared: bool = Field(default=False, description="Also used by other leases of the owner; goes after the last one")
    used_by_others: int = Field(default=0, description="Of a shared network: how many other machines use it now")


class NextView(View):
    text: str
    at: datetime | None


class LeaseSummary(View):
    """One lease in a list."""

    id: str
    name: str
    owner: str
    state: LeaseState
    reason: Reason | None
    created_at: datetime
    running_at: datetime | None
    released_at: datetime | None
    offer: Offer | None = Field(description="The current attempt's offer, or the last one's")
    address: str
    price_per_hour_usd: Money
    cost_so_far_usd: Money | None = Field(
        description="Null for released leases in lists; `GET /v1/leases/{lease_id}` has it"
    )
    waiting_for: str
    next: NextView


class AgentView(View):
    """What the agent on the machine has told."""

    last_report_at: datetime | None
    silent: bool = Field(description="It has missed reports: whether the machine is used cannot be told")
    gpu_models: tuple[str, ...]
    gpu_percent: tuple[int, ...] = Field(description="How much each GPU computed at the last report")
    gpu_memory_mib: tuple[int, ...]
    gpu_memory_used_mib: tuple[int, ...]
    activity_at: dict[Signal, datetime] = Field(description="When each signal of use was last seen")
    idle_since: datetime | None = Field(description="From when on idleness counts; may lie ahead")
    gpus: int | None
    problems: tuple[str, ...]
    start_script: str = Field(description="Empty, running, done or failed")
    host_keys: tuple[str, ...] = Field(description="The machine's public SSH host key, of the best kind")


class PartView(View):
    what: str
    price_per_hour_usd: Money


class PauseView(View):
    """How a pause goes, and what it is for. Null while a lease is neither pausing, paused nor resuming."""

    mode: PauseMode
    reason: str
    detail: str
    requested_at: datetime
    paused_at: datetime | None
    release_at: datetime | None = Field(description="Given back by its policy then; null = never")
    billed: tuple[PartView, ...] = Field(description="What is billed while it is paused, its cache included")
    price_per_hour_usd: Money = Field(description="Of all of that")
    resume_failed: str | None = Field(description="Reason of the last resume that came to nothing")


class CacheSavingView(View):
    """The agent saves and unmounts the cache before its machine goes, which is billed meanwhile."""

    requested_at: datetime
    deadline: datetime = Field(description="Moved on while the agent says that it still saves")
    at_most_until: datetime = Field(description="When the machine goes in any case")


class LeaseView(View):
    """One lease with everything that is known of it, except its start script."""

    id: str
    name: str
    owner: str
    state: LeaseState
    reason: Reason | None
    reason_detail: str
    epoch: int
    created_at: datetime
    running_at: datetime | None
    ready_at: datetime | None = Field(description="When it last became running; `running_at` is the first time")
    resume_requested_at: datetime | None = Field(description="While it is being resumed")
    release_requested_at: datetime | None
    released_at: datetime | None
    spec: LeaseSpec
    policy: LeasePolicy = Field(description="As it is now; the spec has it as it was asked for")
    keep_until: datetime | None
    agent: AgentView | None = Field(description="Null while no agent has reported, and without one")
    pause: PauseView | None = Field(default=None, description="While pausing, paused or resuming")
    cache_saving: CacheSavingView | None = Field(
        default=None, description="While a pause or a release waits for the cache to be saved"
    )
    start_script_bytes: int
    start_script_sha256: str
    offer: Offer | None = Field(description="The current attempt's offer, or the last one's")
    attempts: tuple[AttemptView, ...]
    resources: tuple[ResourceView, ...]
    price_per_hour_usd: Money
    cost_so_far_usd: Money
    address: str
    ssh: str | None = Field(description="Command that opens a shell, once the machine is running")
    waiting_for: str
    notices: tuple[str, ...]
    warnings: tuple[str, ...]
    next: NextView


class LeasePage(View):
    """`cursor` is opaque; null = this was the last page. A page may be empty and still have a cursor."""

    leases: tuple[LeaseSummary, ...]
    cursor: str | None


class EventView(View):
    at: datetime
    kind: str
    level: str
    text: str
    facts: dict[str, str | int | float | bool | None]


class EventPage(View):
    """Oldest first."""

    events: tuple[EventView, ...]
    cursor: str | None


class CatalogueAge(View):
    provider: str
    as_of: datetime
    age_seconds: int
    offers: int
    configured: bool = Field(description="Whether this deployment can rent from it")


class OfferPage(View):
    """Offers that fit, in the order in which they would be tried."""

    offers: tuple[Offer, ...]
    total: int = Field(description="How many fit; `offers` holds the first `limit` of them")
    catalogue: tuple[CatalogueAge, ...]


class DryRun(View):
    """What `POST /v1/leases?dry_run=true` would try, in order. Nothing was created."""

    dry_run: bool = True
    name: str | None
    spec: LeaseSpec
    offers: tuple[Offer, ...] = Field(description="At most `max_attempts` of them would be tried")
    total: int
    cheapest_price_per_hour_usd: Money
    when_paused: str = Field(
        default="", description="What a pause would do and cost; on the first offer of each sort where that differs"
    )
    catalogue: tuple[CatalogueAge, ...]


class Health(View):
    version: str
    deployment: str
    catalogue: tuple[CatalogueAge, ...]
