"""What `GET /v1/doctor` and `POST /v1/sweep` answer."""

from datetime import datetime

from pydantic import Field

from gpulease.api.schemas import Money, View
from gpulease.domain.doctor import Group, Source
from gpulease.domain.resource import ResourceKind


class DoctorItem(View):
    kind: ResourceKind
    provider: str
    account: str
    region: str
    plan: str
    provider_id: str
    resource_id: str = Field(description="Of the ledger; its marker where that names none")
    lease_id: str | None
    state: str = Field(description="Of the ledger: intended, held, releasing; or not_in_ledger")
    since: datetime | None = Field(description="In this group, as far as is known")
    at_provider: bool | None = Field(description="Whether the provider shows it; null = not known")
    tries: int = Field(description="Delete calls sent")
    last_error: str
    price_per_hour_usd: Money | None = Field(description="Null = not known")


class DoctorGroup(View):
    """`held`: in the ledger and, as far as is known, there. `releasing`: on its way out, billed until proven gone.
    `unowned`: carries our marker and nobody holds it. `lost`: held, and the provider does not show it. `exempt`:
    unowned, and marked at the provider as not to be touched."""

    group: Group
    count: int
    price_per_hour_usd: Money = Field(description="Of all of them together, as far as known")
    items: tuple[DoctorItem, ...] = Field(description="The first 200, the longest in this group first")


class DoctorPlace(View):
    """An account and region where something was ever asked for."""

    account: str
    provider: str
    region: str
    source: Source = Field(description="live: compared just now; last_sweep: as the last complete sweep saw it")
    verified_at: datetime | None = Field(description="Up to when ledger and provider were compared in full")
    incomplete_runs: int = Field(description="Sweeps in a row that could not look there")
    last_error: str
    draining: bool = Field(description="The account is no longer configured; keep its key until nothing is left there")


class DoctorView(View):
    """The caller's own things, or for admins everything."""

    checked_at: datetime
    everybodys: bool
    groups: tuple[DoctorGroup, ...]
    places: tuple[DoctorPlace, ...]


class SweepView(View):
    """What a sweep did, or with `dry_run` would do."""

    dry_run: bool
    places: int
    complete: int
    incomplete: int = Field(description="Could not be listed; nothing was concluded there")
    skipped: int = Field(description="Looked at by somebody else less than a minute ago")
    left: int = Field(description="Not reached in time; the next scheduled sweep begins with them")
    held: int
    releasing: int
    watching: int = Field(description="Seen once, or not long enough, in a way that needs a second look")
    exempt: int
    taken_up: int = Field(description="Were in nobody's hands and are given back")
    lost: int = Field(description="Gone at the provider; their leases were ended or warned")
    failed: int = Field(description="Could not be acted on now; tried again by the next sweep")
    lines: tuple[str, ...]
