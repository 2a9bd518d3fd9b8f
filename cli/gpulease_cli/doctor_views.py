"""What `/v1/doctor` and `/v1/sweep` say, as plain frozen values. Lenient, like `views.py`."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpulease_cli.text import clean
from gpulease_cli.views import Json, _instant, _number, _objects, _text, _texts, _usd


@dataclass(frozen=True, slots=True)
class ThingView:
    """One thing at a provider, in the ledger, or in both."""

    group: str
    kind: str
    place: str
    plan: str
    provider_id: str
    resource_id: str
    lease_id: str
    state: str
    since: datetime | None
    at_provider: bool | None
    tries: int
    last_error: str
    price_per_hour_usd: Decimal | None

    @classmethod
    def read(cls, group: str, raw: Json) -> "ThingView":
        there = raw.get("at_provider")
        return cls(
            group=group,
            place="/".join(part for part in (_text(raw, "account"), _text(raw, "region")) if part),
            **{key: _text(raw, key) for key in ("kind", "plan", "provider_id", "resource_id", "lease_id", "state")},
            since=_instant(raw, "since"),
            at_provider=there if isinstance(there, bool) else None,
            tries=int(_number(raw, "tries")),
            last_error=_text(raw, "last_error"),
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
        )


@dataclass(frozen=True, slots=True)
class GroupView:
    name: str
    count: int
    price_per_hour_usd: Decimal | None
    things: tuple[ThingView, ...]


@dataclass(frozen=True, slots=True)
class PlaceView:
    name: str
    source: str
    verified_at: datetime | None
    incomplete_runs: int
    last_error: str
    draining: bool


@dataclass(frozen=True, slots=True)
class DoctorView:
    raw: Json
    everybodys: bool
    groups: tuple[GroupView, ...]
    places: tuple[PlaceView, ...]

    @classmethod
    def read(cls, raw: Json) -> "DoctorView":
        return cls(
            raw=raw,
            everybodys=bool(raw.get("everybodys")),
            groups=tuple(_group(each) for each in _objects(raw, "groups")),
            places=tuple(_place(each) for each in _objects(raw, "places")),
        )

    def group(self, name: str) -> GroupView:
        """The group of that name; empty where the API has none."""
        return next((each for each in self.groups if each.name == name), GroupView(name, 0, Decimal(0), ()))


def _group(raw: Json) -> GroupView:
    name = _text(raw, "group")
    things = tuple(ThingView.read(name, each) for each in _objects(raw, "items"))
    return GroupView(name, int(_number(raw, "count")), _usd(raw, "price_per_hour_usd"), things)


def _place(raw: Json) -> PlaceView:
    return PlaceView(
        name="/".join(part for part in (_text(raw, "account"), _text(raw, "region")) if part),
        source=_text(raw, "source"),
        verified_at=_instant(raw, "verified_at"),
        incomplete_runs=int(_number(raw, "incomplete_runs")),
        last_error=_text(raw, "last_error"),
        draining=raw.get("draining") is True,
    )


@dataclass(frozen=True, slots=True)
class SweepView:
    raw: Json
    lines: tuple[str, ...]

    @classmethod
    def read(cls, raw: Json) -> "SweepView":
        return cls(raw, _texts(raw, "lines"))

    def count(self, name: str) -> int:
        """One of the numbers of the report; 0 where the API has none."""
        return int(_number(self.raw, clean(name)))
