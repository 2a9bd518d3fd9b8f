"""What the user asks for. Limits that need no look at the world are checked here: bad input creates nothing."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from gpulease.domain.cache_spec import CacheUse
from gpulease.domain.model import Model, Usd
from gpulease.domain.offer import PlanKind
from gpulease.domain.policy import LeasePolicy

MAX_START_SCRIPT_BYTES = 32 * 1024
"""Of the user's script. Vultr carries 64 KiB of user data end to end; base64 inside cloud-init grows it by a third."""
MAX_LABELS = 20
MAX_PRICE_PER_HOUR_USD = Decimal(1_000_000)
"""A limit above any price; Decimal itself would take one with 400 million digits."""


class PrivateNetwork(StrEnum):
    NONE = "none"
    PREFERRED = "preferred"
    REQUIRED = "required"


class NetworkScope(StrEnum):
    """Whom a private network is for."""

    OWNER = "owner"
    """Shared by all machines of one owner in one account and region."""
    LEASE = "lease"
    """The lease's own."""


class SpotPolicy(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"
    ANY = "any"


GpuModel = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
LabelValue = Annotated[str, Field(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
_KEY_TYPES = r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+)"
SshPublicKey = Annotated[
    str,
    Field(max_length=4096, pattern=rf"^{_KEY_TYPES} [A-Za-z0-9+/]+={{0,3}}( [^\x00-\x1f\x7f]*)?$"),
]


class LeaseSpec(Model):
    """One request for one machine. Empty tuples mean "any"."""

    gpu: tuple[GpuModel, ...] = ()
    """GPU models, any of them is right. Case does not matter."""
    gpu_count: int = Field(default=1, ge=1, le=16)
    """Exactly so many GPUs."""
    min_gpu_memory_gib: float | None = Field(default=None, gt=0)
    """Per GPU."""
    min_vcpus: int | None = Field(default=None, ge=1)
    min_memory_gib: float | None = Field(default=None, gt=0)
    min_disk_gb: int | None = Field(default=None, ge=1)
    providers: tuple[Word, ...] = ()
    regions: tuple[Word, ...] = ()
    plans: tuple[Word, ...] = ()
    plan_kinds: tuple[PlanKind, ...] = ()
    spot: SpotPolicy = SpotPolicy.ON_DEMAND
    max_price_per_hour_usd: Usd | None = Field(default=None, gt=Decimal(0), le=MAX_PRICE_PER_HOUR_USD)
    private_network: PrivateNetwork = PrivateNetwork.NONE
    network_scope: NetworkScope = NetworkScope.OWNER
    ssh_keys: tuple[SshPublicKey, ...] = Field(default=(), max_length=20)
    image: str | None = Field(default=None, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/-]*$")
    labels: dict[Word, LabelValue] = Field(default_factory=dict, max_length=MAX_LABELS)
    max_duration_seconds: int | None = Field(default=None, ge=60, le=366 * 24 * 3600)
    """Counted from `running`; then the lease is released with reason `expired`."""
    max_attempts: int = Field(default=10, ge=1, le=50)
    """Offers tried before the lease ends."""
    policy: LeasePolicy = Field(default_factory=LeasePolicy)
    cache: CacheUse | None = None
    retry_not_ready: bool = False
    """Try the next offer also after a machine that was not ready in time. That one has cost an hour: ask for it."""

    @field_validator("providers", "regions")
    @classmethod
    def _lower(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value.lower() for value in values)

    @model_validator(mode="after")
    def _no_contradiction(self) -> "LeaseSpec":
        if self.private_network is PrivateNetwork.REQUIRED and self.providers == ("vastai",):
            raise ValueError("private_network: required contradicts providers: vastai, which has no private networks")
        return self
