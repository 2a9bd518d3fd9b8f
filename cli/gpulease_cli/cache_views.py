"""What the API says about caches, as plain frozen values. Read as leniently as leases are (`views.py`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpulease_cli.text import cost
from gpulease_cli.views import Json, _instant, _number, _text, _texts, _usd


@dataclass(frozen=True, slots=True)
class CacheView:
    raw: Json
    id: str
    name: str
    state: str
    reason: str
    reason_detail: str
    provider: str
    region: str
    zone: str
    size_gb: int
    """0 = it has no volume."""
    throughput_mibps: int
    """0 = as such volumes are."""
    bucket: str
    """`bucket/prefix` of its object store; empty = it has none."""
    price_per_month_usd: Decimal | None
    cost_so_far_usd: Decimal | None
    created_at: datetime | None
    used_at: datetime | None
    user: str
    """Name of the lease that uses it; empty = none does."""
    user_id: str
    expires_at: datetime | None
    waiting_for: str
    warnings: tuple[str, ...]

    @classmethod
    def read(cls, raw: Json) -> "CacheView":
        user, store = raw.get("used_by"), raw.get("object_store")
        used_by: Json = user if isinstance(user, dict) else {}
        place: Json = store if isinstance(store, dict) else {}
        return cls(
            raw=raw,
            **{key: _text(raw, key) for key in ("id", "name", "state", "reason", "reason_detail")},
            **{key: _text(raw, key) for key in ("provider", "region", "zone")},
            size_gb=int(_number(raw, "size_gb")),
            throughput_mibps=int(_number(raw, "throughput_mibps")),
            bucket="/".join(part for part in (_text(place, "bucket"), _text(place, "prefix")) if part),
            price_per_month_usd=_usd(raw, "price_per_month_usd"),
            cost_so_far_usd=_usd(raw, "cost_so_far_usd"),
            created_at=_instant(raw, "created_at"),
            used_at=_instant(raw, "used_at"),
            user=_text(used_by, "name"),
            user_id=_text(used_by, "lease_id"),
            expires_at=_instant(raw, "expires_at"),
            waiting_for=_text(raw, "waiting_for"),
            warnings=_texts(raw, "warnings"),
        )

    @property
    def place(self) -> str:
        """`vultr/ewr`, or the bucket where it has no volume."""
        where = "/".join(part for part in (self.provider, self.region, self.zone) if part)
        return where or f"s3:{self.bucket}"

    @property
    def what(self) -> str:
        """`50 GB at vultr/ewr, $5.00 a month`, or `s3:models, billed by your store`."""
        if not self.size_gb:
            return f"{self.place}, billed by your store"
        return f"{self.size} at {self.place}, {cost(self.price_per_month_usd)} a month"

    @property
    def size(self) -> str:
        """`50 GB`, or `50 GB with 400 MiB/s`."""
        return f"{self.size_gb} GB" + (f" with {self.throughput_mibps} MiB/s" if self.throughput_mibps else "")

    @property
    def removed(self) -> bool:
        return self.state == "removed"


def total_per_month(caches: Iterable[CacheView]) -> Decimal:
    """What these caches cost per month together, as far as their prices are known."""
    return sum((cache.price_per_month_usd or Decimal(0) for cache in caches), Decimal(0))
