"""Vultr's replies, as far as they are read. Everything else in them, passwords first of all, is dropped here."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _text(value: Any) -> Any:
    return "" if value is None else value


def _list(value: Any) -> Any:
    return () if value is None else value


def _moment(value: Any) -> datetime | None:
    """RFC 3339 with any offset; what cannot be read is unknown, since nothing but display depends on it."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_list)]
Moment = Annotated[datetime | None, BeforeValidator(_moment)]


class Wire(BaseModel):
    """A part of a reply: unknown fields are dropped, values are not shown in validation errors."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Identified(Wire):
    """Something that lists hold; the id tells one from another."""

    id: str | int


class VpcEntry(Wire):
    """A machine's membership: `subnet` (inside a machine) or `ip_address` (list of its VPCs) is its address there."""

    id: str
    subnet: Text = ""
    ip_address: Text = ""

    @property
    def has_address(self) -> bool:
        """0.0.0.0 stands for "not yet assigned"."""
        return (self.ip_address or self.subnet) not in ("", _NO_ADDRESS)


class Machine(Identified):
    """An instance or a bare metal server; the two power fields exist for instances only."""

    id: str
    region: Text
    plan: Text = ""
    status: Text
    power_status: Text = ""
    server_status: Text = ""
    main_ip: Text = ""
    tags: Texts = ()
    date_created: Moment = None
    vpcs: tuple[VpcEntry, ...] | None = None
    """None = the reply has no such field, which is not the same as no network."""


class Vpc(Identified):
    id: str
    region: Text
    description: Text = ""
    date_created: Moment = None


class Block(Identified):
    id: str
    region: Text
    label: Text = ""
    status: Text
    size_gb: int = 0
    attached_to_instance: Text = ""
    date_created: Moment = None


class RegionCost(Wire):
    hourly_cost: Decimal | None = None


class Plan(Identified):
    """Of `/plans`."""

    id: str
    type: Text
    vcpu_count: int
    ram: Decimal
    """MB."""
    disk: int
    hourly_cost: Decimal
    locations: Texts = ()
    location_cost: Annotated[dict[str, RegionCost], BeforeValidator(lambda v: v or {})] = {}
    """The API writes an empty object as an empty list in places."""
    deploy_ondemand: bool | None = None
    gpu_type: Text = ""
    gpu_vram_gb: int | None = None
    """Of all GPUs of the plan together."""
    gpu_count: int | None = None


class MetalPlan(Identified):
    """Of `/plans-metal`, which has no GPU fields."""

    id: str
    cpu_count: int
    cpu_threads: int | None = None
    ram: Decimal
    disk: int
    hourly_cost: Decimal
    locations: Texts = ()
    location_cost: Annotated[dict[str, RegionCost], BeforeValidator(lambda v: v or {})] = {}
    deploy_ondemand: bool | None = None


class Region(Identified):
    id: str
    options: Texts = ()


class AccountOwner(Wire):
    """Of `/account`. Never logged."""

    name: str = ""
    email: str


class OperatingSystem(Identified):
    id: int


class Application(Identified):
    id: int
    image_id: Text = ""


class Links(Wire):
    next: Text


class Meta(Wire):
    total: int
    links: Links


_NO_ADDRESS = "0.0.0.0"  # noqa: S104 Vultr's text for "none yet", nothing is bound to it
NO_ADDRESSES = frozenset({"", _NO_ADDRESS})
