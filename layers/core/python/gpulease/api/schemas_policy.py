"""Bodies of the routes that change a living lease. Absent fields stay as they are."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpulease.domain.policy import DAY, MAX_SECONDS, Capacity, Signal, Then, Window

Seconds = Annotated[int, Field(strict=True, ge=60, le=MAX_SECONDS)]


class Patch(BaseModel):
    """Base of what is changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def given(self) -> dict[str, Any]:
        """Only what was sent."""
        return self.model_dump(exclude_unset=True)


class IdlePatch(Patch):
    enabled: bool = Field(default=True, strict=True)
    after_seconds: Seconds = 1800
    signals: tuple[Signal, ...] = Field(default=tuple(Signal), min_length=1)
    then: Then = Then.PAUSE


class UnreachablePatch(Patch):
    enabled: bool = Field(default=True, strict=True)
    after_seconds: Annotated[int, Field(strict=True, ge=120, le=MAX_SECONDS)] = 1200
    then: Then = Then.PAUSE


class PausedPatch(Patch):
    release_after_seconds: Seconds | None = Field(default=7 * DAY, description="null = stays paused for ever")


class PolicyPatch(Patch):
    idle: IdlePatch = IdlePatch()
    unreachable: UnreachablePatch = UnreachablePatch()
    paused: PausedPatch = PausedPatch()
    max_duration_seconds: Seconds | None = None
    budget_usd: Annotated[Decimal, Field(gt=0, le=10_000_000)] | None = None
    windows: tuple[Window, ...] = Field(default=(), max_length=10, description="Replaces all windows")
    on_no_capacity: Capacity = Capacity.WAIT


class LeasePatch(Patch):
    """Body of `PATCH /v1/leases/{lease_id}`."""

    policy: PolicyPatch


class KeepRequest(Patch):
    """Body of `POST /v1/leases/{lease_id}/keep`."""

    seconds: Annotated[int, Field(strict=True, ge=60, le=30 * DAY)] = Field(description="From now on")
