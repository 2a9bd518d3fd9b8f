"""What the API says about offers, leases and events, as plain frozen values.

Reading is lenient: fields this version does not know are kept in `raw` (which `--json` prints unchanged) and absent
ones are empty, so an older command line works with a newer API. Texts are cleaned of control characters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from gpulease_cli.text import clean

Json = Mapping[str, Any]

LIVE_STATES = ("requested", "provisioning", "running", "pausing", "paused", "resuming", "releasing")
"""All but `released`: what can still cost money."""


def _text(source: Json, key: str) -> str:
    value = source.get(key)
    return "" if value is None else clean(value)


def _texts(source: Json, key: str) -> tuple[str, ...]:
    value = source.get(key)
    return tuple(clean(item) for item in value) if isinstance(value, list) else ()


def _usd(source: Json, key: str) -> Decimal | None:
    try:
        value = Decimal(str(source[key]))
    except (KeyError, InvalidOperation):
        return None
    return value if value.is_finite() else None


def _instant(source: Json, key: str) -> datetime | None:
    try:
        value = datetime.fromisoformat(str(source[key]))
    except (KeyError, ValueError):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _number(source: Json, key: str) -> float:
    value = source.get(key)
    return value if isinstance(value, int | float) else 0


def _objects(source: Json, key: str) -> list[Json]:
    value = source.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class OfferView:
    raw: Json
    provider: str
    region: str
    zone: str
    plan: str
    kind: str
    gpu_model: str
    gpu_count: int
    gpu_memory_gib: float
    vcpus: int
    memory_gib: float
    disk_gb: int
    price_per_hour_usd: Decimal | None
    spot: bool
    in_stock: bool | None
    private_network: bool | None

    @classmethod
    def read(cls, raw: Json) -> "OfferView":
        in_stock, network = raw.get("in_stock"), raw.get("private_network")
        return cls(
            raw=raw,
            provider=_text(raw, "provider"),
            region=_text(raw, "region"),
            zone=_text(raw, "zone"),
            plan=_text(raw, "plan"),
            kind=_text(raw, "kind"),
            gpu_model=_text(raw, "gpu_model"),
            gpu_count=int(_number(raw, "gpu_count")),
            gpu_memory_gib=_number(raw, "gpu_memory_gib"),
            vcpus=int(_number(raw, "vcpus")),
            memory_gib=_number(raw, "memory_gib"),
            disk_gb=int(_number(raw, "disk_gb")),
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
            spot=bool(raw.get("spot")),
            in_stock=in_stock if isinstance(in_stock, bool) else None,
            private_network=network if isinstance(network, bool) else None,
        )

    @property
    def place(self) -> str:
        """`vultr/ewr`; where a region has zones the machine is in one of them: `aws/us-east-1a`."""
        if not self.zone:
            return f"{self.provider}/{self.region}"
        return f"{self.provider}/{self.zone if self.zone.startswith(self.region) else f'{self.region}/{self.zone}'}"

    @property
    def gpu(self) -> str:
        return f"{self.gpu_count} x {self.gpu_model}"


@dataclass(frozen=True, slots=True)
class CatalogueView:
    """How old the offers of one provider are."""

    provider: str
    as_of: datetime | None
    age_seconds: float


@dataclass(frozen=True, slots=True)
class OffersView:
    raw: Json
    offers: tuple[OfferView, ...]
    catalogue: tuple[CatalogueView, ...]
    total: int
    """How many fit; `offers` may be only the first of them."""

    @classmethod
    def read(cls, raw: Json) -> "OffersView":
        return cls(
            raw=raw,
            offers=tuple(OfferView.read(item) for item in _objects(raw, "offers")),
            catalogue=tuple(
                CatalogueView(_text(item, "provider"), _instant(item, "as_of"), _number(item, "age_seconds"))
                for item in _objects(raw, "catalogue")
            ),
            total=int(_number(raw, "total")),
        )


@dataclass(frozen=True, slots=True)
class AttemptView:
    number: int
    offer: str
    price_per_hour_usd: Decimal | None
    reason: str
    detail: str
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def read(cls, raw: Json) -> "AttemptView":
        offer = raw.get("offer")
        price_source = raw
        if isinstance(offer, dict):
            price_source = offer
            kind = "spot" if offer.get("spot") else "on-demand"
            offer = f"{offer.get('provider')}/{offer.get('region')}/{offer.get('plan')}/{kind}"
        return cls(
            number=int(_number(raw, "number")),
            offer="" if offer is None else clean(offer),
            price_per_hour_usd=_usd(price_source, "price_per_hour_usd"),
            reason=_text(raw, "reason"),
            detail=_text(raw, "detail"),
            started_at=_instant(raw, "started_at"),
            ended_at=_instant(raw, "ended_at"),
        )

    @property
    def failed(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class ResourceView:
    id: str
    kind: str
    provider: str
    region: str
    plan: str
    state: str
    provider_id: str
    status: str
    address: str
    price_per_hour_usd: Decimal | None
    cost_so_far_usd: Decimal | None
    billed: bool

    @classmethod
    def read(cls, raw: Json) -> "ResourceView":
        return cls(
            **{key: _text(raw, key) for key in ("id", "kind", "provider", "region", "plan", "state")},
            **{key: _text(raw, key) for key in ("provider_id", "status", "address")},
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
            cost_so_far_usd=_usd(raw, "cost_so_far_usd"),
            billed=bool(raw.get("billed")),
        )


@dataclass(frozen=True, slots=True)
class BilledView:
    """Something that is billed while a lease is paused."""

    what: str
    price_per_hour_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class PauseView:
    """How a pause goes. Empty where there is none."""

    mode: str = ""
    reason: str = ""
    detail: str = ""
    requested_at: datetime | None = None
    paused_at: datetime | None = None
    release_at: datetime | None = None
    billed: tuple[BilledView, ...] = ()
    price_per_hour_usd: Decimal | None = None
    resume_failed: str = ""

    @classmethod
    def read(cls, raw: Json) -> "PauseView":
        return cls(
            mode=_text(raw, "mode"),
            reason=_text(raw, "reason"),
            detail=_text(raw, "detail"),
            requested_at=_instant(raw, "requested_at"),
            paused_at=_instant(raw, "paused_at"),
            release_at=_instant(raw, "release_at"),
            resume_failed=_text(raw, "resume_failed"),
            billed=_billed(raw, "billed"),
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
        )


@dataclass(frozen=True, slots=True)
class PlanView:
    """What a pause or a resume would do and cost."""

    raw: Json
    possible: bool
    code: str
    text: str
    billed: tuple[BilledView, ...]
    paused_price_per_hour_usd: Decimal | None
    release_after_seconds: float

    @classmethod
    def read(cls, raw: Json) -> "PlanView":
        return cls(
            raw=raw,
            possible=bool(raw.get("possible")),
            code=_text(raw, "code"),
            text=_text(raw, "text"),
            billed=_billed(raw, "billed_while_paused"),
            paused_price_per_hour_usd=_usd(raw, "paused_price_per_hour_usd"),
            release_after_seconds=_number(raw, "release_after_seconds"),
        )


def _billed(raw: Json, key: str) -> tuple[BilledView, ...]:
    return tuple(BilledView(_text(item, "what"), _usd(item, "price_per_hour_usd")) for item in _objects(raw, key))


@dataclass(frozen=True, slots=True)
class LeaseView:
    raw: Json
    id: str
    name: str
    owner: str
    state: str
    reason: str
    reason_detail: str
    created_at: datetime | None
    running_at: datetime | None
    """For the first time."""
    ready_at: datetime | None
    """For the last time."""
    resume_requested_at: datetime | None
    keep_until: datetime | None
    released_at: datetime | None
    release_requested_at: datetime | None
    spec: Json
    offer: OfferView | None
    attempts: tuple[AttemptView, ...]
    price_per_hour_usd: Decimal | None
    cost_so_far_usd: Decimal | None
    resources: tuple[ResourceView, ...]
    address: str
    ssh: str
    waiting_for: str
    notices: tuple[str, ...]
    warnings: tuple[str, ...]
    next_text: str
    next_at: datetime | None
    pause: PauseView

    @classmethod
    def read(cls, raw: Json) -> "LeaseView":
        offer, spec, following = raw.get("offer"), raw.get("spec"), raw.get("next")
        pause = raw.get("pause")
        after: Json = following if isinstance(following, dict) else {"text": following}
        return cls(
            raw=raw,
            **{key: _text(raw, key) for key in ("id", "name", "owner", "state", "reason", "reason_detail")},
            created_at=_instant(raw, "created_at"),
            running_at=_instant(raw, "running_at"),
            ready_at=_instant(raw, "ready_at"),
            resume_requested_at=_instant(raw, "resume_requested_at"),
            keep_until=_instant(raw, "keep_until"),
            released_at=_instant(raw, "released_at"),
            release_requested_at=_instant(raw, "release_requested_at"),
            spec=spec if isinstance(spec, dict) else {},
            offer=OfferView.read(offer) if isinstance(offer, dict) else None,
            attempts=tuple(AttemptView.read(item) for item in _objects(raw, "attempts")),
            price_per_hour_usd=_usd(raw, "price_per_hour_usd"),
            cost_so_far_usd=_usd(raw, "cost_so_far_usd"),
            resources=tuple(ResourceView.read(item) for item in _objects(raw, "resources")),
            **{key: _text(raw, key) for key in ("address", "ssh", "waiting_for")},
            notices=_texts(raw, "notices"),
            warnings=_texts(raw, "warnings"),
            next_text=_text(after, "text"),
            next_at=_instant(after, "at"),
            pause=PauseView.read(pause) if isinstance(pause, dict) else PauseView(),
        )

    @property
    def label(self) -> str:
        """What to call it on the command line: its name, else its id."""
        return self.name or self.id

    @property
    def released(self) -> bool:
        return self.state == "released"

    @property
    def cache_saving_until(self) -> datetime | None:
        """Until when at most its machine is kept so that the cache can be saved; None = that is not waited for."""
        saving = self.raw.get("cache_saving")
        return _instant(saving, "at_most_until") if isinstance(saving, dict) else None

    @property
    def still_billed(self) -> tuple[ResourceView, ...]:
        return tuple(resource for resource in self.resources if resource.billed)

    @property
    def state_since(self) -> datetime | None:
        """When the present state began, as far as the lease tells."""
        if self.state == "provisioning":
            return self.attempts[-1].started_at if self.attempts else self.created_at
        by_state = {
            "running": self.ready_at or self.running_at,
            "resuming": self.resume_requested_at,
            "pausing": self.pause.requested_at,
            "paused": self.pause.paused_at,
            "releasing": self.release_requested_at,
            "released": self.released_at,
        }
        return by_state.get(self.state) or self.created_at


@dataclass(frozen=True, slots=True)
class EventView:
    raw: Json
    at: datetime | None
    kind: str
    text: str
    level: str
    seq: str

    @classmethod
    def read(cls, raw: Json) -> "EventView":
        return cls(raw, _instant(raw, "at"), *(_text(raw, key) for key in ("kind", "text", "level", "seq")))


@dataclass(frozen=True, slots=True)
class EventsPage:
    events: tuple[EventView, ...]
    cursor: str | None


def total_per_hour(leases: Iterable[LeaseView]) -> Decimal:
    """What these leases cost per hour together, as far as their prices are known."""
    return sum((lease.price_per_hour_usd or Decimal(0) for lease in leases), Decimal(0))
