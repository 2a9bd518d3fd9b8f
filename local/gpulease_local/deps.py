"""`ports.Deps` for one computer and for simulations: every part is given, nothing is looked up.

Invariant: no part here knows whether time is real, scaled or virtual, or whether a provider is real or simulated.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpulease.domain.event import Fact
from gpulease.errors import InputInvalid, ProviderAuthFailed, ProviderFacts
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import (
    AgentStore,
    Clock,
    DrainStore,
    FailedExecutions,
    Ids,
    Ledger,
    Log,
    Notifier,
    OfferStore,
    Policy,
    Probe,
    Providers,
    Secrets,
    SharedReads,
    SweepStore,
    Waits,
    Workflows,
)
from gpulease.providers import registry
from gpulease.providers.http import Transport
from gpulease.runtime.guard import GuardedProvider

from gpulease_local.asl import Engine, ExecutionAlreadyExists, ExecutionDoesNotExist, Status
from gpulease_local.home import HomeRefused, read_private

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass(frozen=True)
class LocalDeps:
    """All parts, put together by whoever knows the world they live in (`stack.py`)."""

    ledger: Ledger
    offers: OfferStore
    shared: SharedReads
    sweeps: SweepStore
    agents: AgentStore
    drains: DrainStore
    providers: Providers
    workflows: Workflows
    failed_executions: FailedExecutions
    clock: Clock
    ids: Ids
    secrets: Secrets
    probe: Probe
    notifier: Notifier
    log: Log
    policy: Policy
    waits: Waits = field(default_factory=lambda: NoWaits())


class NoWaits:
    """`ports.Waits` where calls share workers, or one loop: each look ends, and the state machine waits."""

    most_seconds = 0.0

    def sleep(self, seconds: float) -> None:
        """Never asked for."""
        raise AssertionError("nothing waits here")


class EngineWorkflows:
    """`ports.Workflows` on the engine of this process. Machines are named as their definition files are."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        """Start it; a name that was used before is fine."""
        try:
            self._engine().start(machine, name, {"lease_id": lease_id, "epoch": epoch})
        except ExecutionAlreadyExists:
            return

    def is_running(self, machine: str, name: str) -> bool:
        """Whether an execution of that name is under way."""
        try:
            return self._engine().describe(machine, name).status is Status.RUNNING
        except ExecutionDoesNotExist:
            return False


@dataclass(frozen=True)
class Account:
    """A provider account: which adapter, and how to reach it."""

    provider: str
    transport: Transport
    base_url: str = ""
    options: object | None = None
    """What the provider's adapter needs besides."""


class LocalProviders:
    """`ports.Providers` over named accounts, in order of preference; an adapter is made when it is first asked for."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        *,
        secrets: Secrets,
        clock: Clock,
        log: Log,
        sleep: Callable[[float], None],
        shared: SharedReads | None = None,
    ) -> None:
        self._shared = shared if shared is not None else SqliteSharedReads()
        self._accounts = dict(accounts)
        self._drained: set[str] = set()
        self._secrets = secrets
        self._clock = clock
        self._log = log
        self._sleep = sleep
        self._made: dict[str, GuardedProvider] = {}
        self._lock = threading.Lock()

    def get(self, account: str) -> GuardedProvider:
        """The account's adapter. Raises InputInvalid for an unknown account."""
        with self._lock:
            if account not in self._made:
                self._made[account] = self._make(account)
            return self._made[account]

    def accounts(self) -> Sequence[str]:
        """Names, in order of preference; without those that are drained."""
        return [name for name in self._accounts if name not in self._drained]

    def drain(self, account: str) -> None:
        """Take an account out of the configuration: nothing new there; what is held there is given back as before."""
        self._drained.add(account)

    def shut_for_seconds(self, account: str, region: str) -> float:
        """See `ports.Providers.shut_for_seconds`."""
        return self.get(account).shut_for_seconds(region)

    def _make(self, name: str) -> GuardedProvider:
        account = self._accounts.get(name)
        if account is None:
            known = ", ".join(self._accounts)
            raise InputInvalid(f"no account is called {name!r}; configured: {known}", field="account")
        adapter = registry.build(
            name,
            account.provider,
            account.transport,
            self._secrets,
            clock=self._clock,
            log=self._log,
            sleep=self._sleep,
            base_url=account.base_url,
            shared=self._shared,
            options=account.options,
        )
        return GuardedProvider(adapter, shared=self._shared, clock=self._clock, log=self._log)


class FixedSecrets:
    """`ports.Secrets` of a simulated cloud: any key is right."""

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        """A key that opens nothing."""
        return "simulated"


class UserSecrets:
    """`ports.Secrets` from the environment (`VULTR_API_KEY`) or a file only its user can read (`keys/vultr`)."""

    def __init__(self, env: Mapping[str, str], keys: Path) -> None:
        self._env = env
        self._keys = keys

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        """The account's key, read anew at each call. Raises ProviderAuthFailed saying where it may be put."""
        variable = f"{account.upper().replace('-', '_')}_API_KEY"
        file = self._keys / account
        try:
            key = self._env.get(variable, "").strip() or read_private(file)
        except FileNotFoundError:
            key = ""
        except (OSError, HomeRefused) as error:
            raise ProviderAuthFailed(ProviderFacts(provider=account, message=str(error))) from error
        if not key:
            message = f"no API key: set {variable}, or put it into {file} (mode 600)"
            raise ProviderAuthFailed(ProviderFacts(provider=account, message=message))
        return key


class LineStream(Protocol):
    """Where lines go, as soon as they are written."""

    def write(self, text: str, /) -> object:
        """Take one line."""
        ...


@dataclass
class LineLog:
    """`ports.Log` as one JSON object per line; below `level` nothing is written. Safe for threads."""

    stream: LineStream
    now: Callable[[], datetime]
    level: str = "info"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def info(self, event: str, **facts: object) -> None:
        """A state changed."""
        self._write("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Degraded, and handled."""
        self._write("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Somebody must look."""
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: Mapping[str, object]) -> None:
        if _LEVELS[level] < _LEVELS[self.level]:
            return
        line = {"time": self.now().isoformat(timespec="milliseconds"), "level": level, "event": event, **facts}
        with self._lock:
            self.stream.write(json.dumps(line, default=str) + "\n")


class LogAlarms:
    """`ports.Notifier` that writes alarms as errors into the log, and shows them where `show` writes (a terminal)."""

    def __init__(self, log: Log, show: Callable[[str], None] | None = None) -> None:
        self._log = log
        self._show = show

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        """Write one alarm."""
        self._log.error("alarm", alarm=name, text=text, **facts)
        if self._show is not None:
            self._show(f"ALARM {name}: {' '.join(text.split())}")
