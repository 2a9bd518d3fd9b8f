"""What `/v1/drain` says, as plain frozen values. Lenient, like `views.py`."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from gpulease_cli.views import Json, _instant, _number, _objects, _text, _usd


@dataclass(frozen=True, slots=True)
class DrainedThing:
    """Something that is still billed. A cache has a `name`."""

    kind: str
    place: str
    provider_id: str
    lease_id: str
    state: str
    price_per_hour_usd: Decimal | None
    last_error: str = ""
    name: str = ""
    owner: str = ""

    @classmethod
    def read(cls, raw: Json) -> "DrainedThing":
        return cls(
            place="/".join(part for part in (_text(raw, "provider"), _text(raw, "region")) if part),
            **{key: _text(raw, key) for key in ("kind", "provider_id", "lease_id", "state", "last_error")},
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
            name=_text(raw, "name"),
            owner=_text(raw, "owner"),
        )


@dataclass(frozen=True, slots=True)
class DrainView:
    """How far draining is."""

    draining: bool
    since: datetime | None
    by: str
    done: bool
    leases: tuple[tuple[str, str], ...]
    """Name or id, and state; the first 200."""
    lease_count: int
    still_billed: tuple[DrainedThing, ...]
    still_billed_count: int
    caches: tuple[DrainedThing, ...]
    price_per_hour_usd: Decimal | None
    raw: Json = field(repr=False)

    @classmethod
    def read(cls, raw: Json) -> "DrainView":
        return cls(
            draining=raw.get("draining") is True,
            since=_instant(raw, "since"),
            by=_text(raw, "by"),
            done=raw.get("done") is True,
            leases=tuple(
                (_text(lease, "name") or _text(lease, "id"), _text(lease, "state")) for lease in _objects(raw, "leases")
            ),
            lease_count=int(_number(raw, "lease_count")),
            still_billed=tuple(DrainedThing.read(thing) for thing in _objects(raw, "still_billed")),
            still_billed_count=int(_number(raw, "still_billed_count")),
            caches=tuple(DrainedThing.read(cache) for cache in _objects(raw, "caches")),
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
            raw=raw,
        )
