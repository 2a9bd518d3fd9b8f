"""What a provider adapter is: one account of one provider, behind one set of calls. Part of the ports (`ports.py`).

Every method that can fail says so with the classes of `errors.py` and nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol, TypeVar

from gpulease.domain.observation import Absent, Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about a provider that rules depend on."""

    plan_kinds: frozenset[PlanKind]
    stop_stops_billing: bool
    private_networks: bool
    max_user_data_bytes: int
    create_timeout_seconds: float
    """Longest time a create call may be on its way before its answer counts as lost."""
    requests_per_second: float
    """Calls of any kind that the provider takes from one account."""
    look_every_seconds: int = 4
    """How often the state of a VM that boots is worth reading: no more often than it changes."""


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """All that a create call carries. `user_data` is opaque bytes (cloud-init)."""

    offer: Offer
    marker: str
    label: str
    user_data: bytes
    image: str | None = None
    idempotency_token: str = ""
    network_provider_id: str = ""
    max_price_per_hour_usd: Decimal | None = None
    """Of the whole machine, where its price may change while it runs (spot); None = the user gave no limit."""


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    region: str
    marker: str


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    region: str
    size_gb: int
    marker: str
    label: str
    zone: str = ""
    idempotency_token: str = ""
    throughput_mibps: int | None = None
    """MiB per second to pay for; None = what such a volume gives anyway."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Names one resource at a provider. `provider_id` may be empty: then only the marker can find it."""

    kind: ResourceKind
    region: str
    marker: str
    provider_id: str = ""
    subkind: str = ""
    """For instances the plan kind (`vm`, `bare_metal`)."""
    zone: str = ""
    account_identity: str = ""
    """In which account it was created (`Provider.identity`); empty = not known."""


class Once:
    """Answers that are the same for every region, read once in the life of this object (one sweep, one look)."""

    def __init__(self) -> None:
        self._kept: dict[str, object] = {}

    def read(self, name: str, how: Callable[[], T]) -> T:
        """The answer of that name. A call that fails is not remembered."""
        if name not in self._kept:
            self._kept[name] = how()
        return self._kept[name]  # type: ignore[return-value]


class Provider(Protocol):
    """One provider account. Calls are synchronous, never repeated for POST/PUT/DELETE, and raise `ProviderError`s only.

    No method may answer "absent" or an empty list out of a call that failed.
    """

    name: str
    account: str
    capabilities: Capabilities
    visibility_window_seconds: float

    def identity(self) -> str:
        """Which account the present key opens: the same for all keys of one account, no secret. One call per key."""
        ...

    def offers(self) -> list[Offer]:
        """Everything that can be rented and whose GPUs are known, without live stock."""
        ...

    def live(self, offer: Offer) -> Offer:
        """The offer with `in_stock` and price as the provider says now. Raises ProviderRejected: no such plan."""
        ...

    def priced(self, offers: Sequence[Offer]) -> list[Offer]:
        """These offers, all of one region, at the prices of now where one call tells them all; others as they are. For
        the order in which they are tried: what one costs is asked with `live`."""
        ...

    def ready_deadline_seconds(self, offer: Offer) -> float:
        """Longest time from create to ready that is worth waiting for."""
        ...

    def billing_rule(self, kind: ResourceKind) -> BillingRule: ...

    def check_image(self, image: str | None, kind: PlanKind) -> None:
        """Raises InputInvalid(field="image") when the image is of no known form; needs no provider call."""
        ...

    def create_instance(self, request: InstanceRequest) -> Observation:
        """Send the one create call. Raises CapacityRefused, QuotaRefused, ProviderRejected, ProviderAuthFailed,
        ProviderThrottled: nothing was created. ProviderUnavailable, ProviderUnexpected: it may have been."""
        ...

    def create_network(self, request: NetworkRequest) -> Observation: ...

    def attach_network(self, instance: Ref, network: Ref) -> None:
        """Ask for it; whether it happened is read with `observe`. Raises ProviderBusy (try again), NetworkUnsupported
        (never on this plan), other ProviderErrors."""
        ...

    def can_stop(self, offer: Offer) -> bool:
        """Whether a machine of this offer can be stopped and started again, and its compute is not billed meanwhile.
        Needs no provider call."""
        ...

    def stopped_price_per_hour(self, offer: Offer) -> Decimal:
        """US dollars per hour of a stopped machine (its disk). Only where `can_stop`."""
        ...

    def stop(self, instance: Ref) -> None:
        """Ask once for a stop; stopped already = fine. Whether it happened is read with `observe` (STOPPING, STOPPED).
        Raises ProviderBusy (not now), ProviderRejected (never)."""
        ...

    def start(self, instance: Ref) -> None:
        """Ask once for a start; running already = fine. Raises CapacityRefused, QuotaRefused: it stays stopped.
        ProviderBusy: not now (still stopping). ProviderUnavailable, ProviderUnexpected: it may start."""
        ...

    def can_attach_volume(self, offer: Offer, region: str, zone: str) -> bool:
        """Whether a machine of this offer could use a volume of that place. Needs no provider call."""
        ...

    def volume_price_per_month(self, region: str, size_gb: int, throughput_mibps: int | None = None) -> Decimal:
        """US dollars per month. Raises InputInvalid(field="size_gb", "region" or "throughput_mibps"): no such volume
        can be had."""
        ...

    def create_volume(self, request: VolumeRequest) -> Observation:
        """Send the one create call; what is raised means the same as for `create_instance`."""
        ...

    def attach_volume(self, volume: Ref, instance: Ref) -> None:
        """Ask once; whether it happened is read with `observe(volume)`. Raises ProviderBusy (try again),
        ProviderRejected (never: another place, a machine that takes none), other ProviderErrors."""
        ...

    def detach_volume(self, volume: Ref, instance: Ref) -> None:
        """Ask once; not attached = fine. `instance` may be gone. Raises ProviderBusy (try again)."""
        ...

    def observe(self, ref: Ref) -> Observation | Absent:
        """Read one resource by id (by marker where the id is empty)."""
        ...

    def find(self, ref: Ref) -> list[Observation]:
        """All resources that carry exactly this marker, from all pages."""
        ...

    def list_of(self, ref: Ref) -> str:
        """Name of the list that shows this machine; empty = none does. Needs no provider call."""
        ...

    def list_machines(self, name: str) -> list[Observation]:
        """Machines with a marker on one such list of the account, all pages; raises if any page fails. All of them, or
        all that are in motion, where the provider can tell: the list proves presence only. Networks are not told."""
        ...

    def destroy(self, ref: Ref) -> None:
        """Ask for deletion once. Returns = accepted, which is not gone. Raises ProviderBusy when refused for now."""
        ...

    def list_owned(self, region: str, deployment: str, *, once: Once | None = None) -> Iterator[Observation]:
        """Everything in the region with a marker of this deployment; all pages, raises if any page fails.

        `once`: lists that the provider cannot narrow to a region are read from it, so that several regions share them.
        """
        ...

    def regions(self) -> list[str]: ...


class Providers(Protocol):
    def get(self, account: str) -> Provider:
        """The account's adapter, also of one that is drained: no longer in `accounts()`, while the ledger may still
        hold something there. Raises InputInvalid when no such account is known."""
        ...

    def accounts(self) -> Sequence[str]:
        """Configured accounts in order of preference. The first account of a provider carries the provider's name."""
        ...

    def shut_for_seconds(self, account: str, region: str) -> float:
        """How long calls there are not sent because too many in a row got no answer; 0 = they are sent."""
        ...
