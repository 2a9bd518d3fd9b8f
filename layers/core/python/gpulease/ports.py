"""What the rules and steps need from the world. Adapters implement these; `runtime/deps.py` puts them together.

Every method that can fail says so with the classes of `errors.py` and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from gpulease.domain.event import Event, Fact
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.observation import Absent, Observation
from gpulease.domain.offer import Offer, OfferSnapshot, PlanKind
from gpulease.domain.record import Change as Change
from gpulease.domain.record import LeaseRecord as LeaseRecord
from gpulease.domain.resource import BillingRule, Resource, ResourceKind
from gpulease.domain.sweep import SweepState

T = TypeVar("T")

# --- provider ---------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    region: str
    marker: str


@dataclass(frozen=True, slots=True)
class Ref:
    """Names one resource at a provider. `provider_id` may be empty: then only the marker can find it."""

    kind: ResourceKind
    region: str
    marker: str
    provider_id: str = ""
    subkind: str = ""
    """For instances the plan kind (`vm`, `bare_metal`)."""
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
        """All machines with a marker on one such list of the account, all pages; raises if any page fails. Their
        networks are not told."""
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


# --- what is read once for everybody ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharedValue:
    """`as_of`: when the reading began that gave it."""

    value: str
    as_of: datetime


class SharedReads(Protocol):
    """What was read of a provider, kept for all workers, and who reads it next; queues for calls that are counted.

    Never holds ownership: all of it may be lost at any time and is read again. May raise LedgerUnavailable anywhere.
    Times come from callers, whose clocks may be wrong: what lies implausibly far ahead does not bind.
    """

    def read(self, key: str) -> SharedValue | None: ...

    def claim(self, key: str, now: datetime, lease_seconds: float) -> bool:
        """Whether the caller is the one to refresh: nobody else has an unexpired claim. Ends with `publish`."""
        ...

    def publish(self, key: str, value: str, as_of: datetime) -> None:
        """Keep the value, unless a later one is kept already, and end the claim."""
        ...

    def reserve(
        self, key: str, now: datetime, spacing_seconds: float, within_seconds: float | None = None
    ) -> datetime | None:
        """The queue's next slot, at least `spacing_seconds` after the one before; never before `now`.

        `within_seconds`: None, with nothing reserved, when the slot would be later than that.
        """
        ...


# --- ledger -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`cursor` is opaque; None = this was the last page. A page may be empty and still have a cursor."""

    items: tuple[T, ...]
    cursor: str | None = None


class Ledger(Protocol):
    """What is true. Reads are consistent except `leases_of` and `due`. May raise LedgerUnavailable anywhere."""

    def create_lease(self, lease: Lease, events: Iterable[Event] = (), start_script: bytes = b"") -> None:
        """Raises LeaseExists, and writes nothing, when the id is taken."""
        ...

    def load(self, lease_id: str) -> LeaseRecord:
        """Raises LeaseNotFound."""
        ...

    def commit(self, change: Change) -> None:
        """Raises LeaseConflict, LeaseSuperseded. A write whose answer was lost is recognised as our own, not as a
        conflict (each commit carries a token that is compared)."""
        ...

    def start_script(self, lease_id: str) -> bytes: ...

    def events(self, lease_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Event]:
        """Oldest first."""
        ...

    def leases_of(
        self,
        owner: str | None,
        *,
        states: Sequence[LeaseState] = (),
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Lease]:
        """Newest first; owner None = everybody's (admin). Raises InputInvalid(field="cursor")."""
        ...

    def due(self, now: datetime, *, limit: int = 100) -> list[str]:
        """Ids of leases with next_check_at <= now, the most overdue first. Reads only what is due."""
        ...

    def open_resources(self, *, provider: str | None = None, region: str | None = None) -> Iterator[Resource]:
        """Every resource that is not `released`, all pages. The rows are consistent; which rows are listed comes from
        an index that may lag by a second: confirm with `load` before acting on an absence."""
        ...


class OfferStore(Protocol):
    """The last known offers per provider."""

    def save(self, snapshot: OfferSnapshot) -> None: ...

    def load(self) -> list[OfferSnapshot]: ...


class SweepStore(Protocol):
    """What sweeps remember per account and region. May raise LedgerUnavailable anywhere."""

    def note_place(self, account: str, region: str) -> None:
        """From now on every sweep looks there. Called before an intent is written; cheap when it is known already."""
        ...

    def states(self) -> list[SweepState]:
        """All that is remembered, also of places where nothing is left."""
        ...

    def load(self, account: str, region: str) -> SweepState:
        """A fresh state (version 0) where nothing is stored."""
        ...

    def save(self, state: SweepState) -> SweepState:
        """The state as stored. Raises LeaseConflict, writing nothing, when it has another version by now."""
        ...


# --- the rest ---------------------------------------------------------------------------------------------------------


class Workflows(Protocol):
    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        """Start `machine` ("provision", "release") under this name. Already started under this name = fine."""
        ...

    def is_running(self, machine: str, name: str) -> bool: ...


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""
        ...


class Ids(Protocol):
    def lease_id(self) -> str:
        """`l-` and 12 characters of [a-z2-7]."""
        ...

    def token(self) -> str:
        """32 hex digits, unguessable."""
        ...


class Secrets(Protocol):
    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        """The account's API key. `fresh` skips caches (after a 401). ProviderAuthFailed: there is none."""
        ...


class Probe(Protocol):
    def tcp_open(self, address: str, port: int) -> bool:
        """Whether a TCP connection is accepted within a few seconds. Never raises for network reasons."""
        ...


class Notifier(Protocol):
    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None: ...


class Log(Protocol):
    """Structured log: a constant snake_case event and facts as keys. Never secrets, never whole payloads."""

    def info(self, event: str, **facts: object) -> None: ...

    def warning(self, event: str, **facts: object) -> None: ...

    def error(self, event: str, **facts: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """Tunable rules of one deployment."""

    deployment: str
    ssh_port: int = 22
    attach_deadline_seconds: float = 600.0
    admins: frozenset[str] = field(default=frozenset())


class Deps(Protocol):
    """Everything a step or route may use. Built lazily: a step that calls no provider imports none."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def offers(self) -> OfferStore: ...
    @property
    def shared(self) -> SharedReads: ...
    @property
    def sweeps(self) -> SweepStore: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def workflows(self) -> Workflows: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def probe(self) -> Probe: ...
    @property
    def notifier(self) -> Notifier: ...
    @property
    def log(self) -> Log: ...
    @property
    def policy(self) -> Policy: ...
