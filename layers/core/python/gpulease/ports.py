"""What the rules and steps need from the world. Adapters implement these; `runtime/deps.py` puts them together.

Every method that can fail says so with the classes of `errors.py` and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gpulease.domain.event import Event, Fact
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.offer import OfferSnapshot
from gpulease.domain.record import Change as Change
from gpulease.domain.record import LeaseRecord as LeaseRecord
from gpulease.domain.resource import Resource
from gpulease.provider_port import Capabilities as Capabilities
from gpulease.provider_port import InstanceRequest as InstanceRequest
from gpulease.provider_port import NetworkRequest as NetworkRequest
from gpulease.provider_port import Once as Once
from gpulease.provider_port import Provider as Provider
from gpulease.provider_port import Providers as Providers
from gpulease.provider_port import Ref as Ref
from gpulease.provider_port import VolumeRequest as VolumeRequest

if TYPE_CHECKING:  # few functions need these, and each model costs a cold start a millisecond
    from gpulease.domain.agent import AgentRecord
    from gpulease.domain.drain import Drain
    from gpulease.domain.sweep import SweepState

T = TypeVar("T")

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

    def states(self) -> "list[SweepState]":
        """All that is remembered, also of places where nothing is left."""
        ...

    def load(self, account: str, region: str) -> "SweepState":
        """A fresh state (version 0) where nothing is stored."""
        ...

    def save(self, state: "SweepState") -> "SweepState":
        """The state as stored. Raises LeaseConflict, writing nothing, when it has another version by now."""
        ...


# --- the rest ---------------------------------------------------------------------------------------------------------


class DrainStore(Protocol):
    """Whether the deployment is being drained. May raise LedgerUnavailable anywhere."""

    def load(self) -> "Drain":
        """Consistent: what was saved before this is seen. Not draining where nothing is stored."""
        ...

    def save(self, drain: "Drain") -> None: ...


class AgentStore(Protocol):
    """The agents' rows, one per lease. May raise LedgerUnavailable anywhere."""

    def load(self, lease_id: str) -> "AgentRecord | None":
        """Consistent. None = no agent was ever expected."""
        ...

    def save(self, agent: "AgentRecord") -> "AgentRecord":
        """The row as stored. Raises LeaseConflict, writing nothing, when it has another version by now."""
        ...


class Workflows(Protocol):
    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        """Start `machine` ("provision", "release", "pause", "resume", "cache") under this name. Already started under
        this name = fine."""
        ...

    def is_running(self, machine: str, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class FailedExecution:
    """A message: the execution `name` of a lease ended otherwise than it should. `receipt` names the message."""

    receipt: str
    name: str
    lease_id: str


class FailedExecutions(Protocol):
    """A queue of messages about workflows that failed, were aborted or timed out.

    Hints and nothing more: a message may come late, twice, out of order or never.
    """

    def receive(self) -> Sequence[FailedExecution]:
        """Some of the waiting messages (at most ten), hidden from others for a while; empty = none now. One that cannot
        be read is not among them and stays. Raises LedgerUnavailable."""
        ...

    def done(self, message: FailedExecution) -> None:
        """Take it off the queue. Raises LedgerUnavailable."""
        ...


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


class Waits(Protocol):
    """How long a call may wait between two looks instead of ending. 0: where a call that waits holds up others."""

    @property
    def most_seconds(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


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
    agent_url: str = ""
    """Where agents on machines report to; empty = machines are made without an agent, and idleness is not measured."""


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
    def agents(self) -> AgentStore: ...
    @property
    def drains(self) -> DrainStore: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def workflows(self) -> Workflows: ...
    @property
    def failed_executions(self) -> FailedExecutions: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def probe(self) -> Probe: ...
    @property
    def waits(self) -> Waits: ...
    @property
    def notifier(self) -> Notifier: ...
    @property
    def log(self) -> Log: ...
    @property
    def policy(self) -> Policy: ...
