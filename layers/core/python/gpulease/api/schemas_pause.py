"""What a pause or a resume would do, as it is answered before it happens."""

from pydantic import Field

from gpulease.api.schemas import Money, PartView, View
from gpulease.domain.lease import PauseMode


class PauseDryRun(View):
    """What `POST /v1/leases/{lease_id}/pause?dry_run=true` would do and cost. Nothing was changed."""

    dry_run: bool = True
    possible: bool
    code: str = Field(description="Why it is not possible, as the code of the problem; empty = it is")
    mode: PauseMode | None = Field(description="`stop`: stopped and kept; `keep_cache`: given back, its cache is kept")
    running_price_per_hour_usd: Money
    paused_price_per_hour_usd: Money
    billed_while_paused: tuple[PartView, ...]
    release_after_seconds: int | None = Field(description="Given back after so long of being paused; null = never")
    text: str


class ResumeDryRun(View):
    """What a resume would do. Nothing was changed."""

    dry_run: bool = True
    possible: bool
    code: str
    new_machine: bool = Field(description="The machine was given back: a new one is chosen and made")
    price_per_hour_usd: Money = Field(description="Of the stopped machine, or of the last one as it was then")
    text: str
