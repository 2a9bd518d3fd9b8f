"""The whole stack of `template.yaml` in one process: functions, state machines and schedules on one engine.

The server and the simulation both are this, in different worlds: `World` holds everything that differs (time, store,
transport, ids). Invariants: handlers find their parts through `runtime.deps.use`, so there is one stack per process at
a time; where time is scaled, a Task's TimeoutSeconds stays in seconds of the computer that does the work.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpulease.ledger.sqlite_agents import SqliteAgentStore
from gpulease.ledger.sqlite_drains import SqliteDrainStore
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ledger.sqlite_sweeps import SqliteSweepStore
from gpulease.ports import (
    AgentStore,
    DrainStore,
    Ids,
    Ledger,
    Log,
    Notifier,
    OfferStore,
    Policy,
    Probe,
    Secrets,
    SharedReads,
    SweepStore,
)
from gpulease.runtime import deps as runtime_deps

from gpulease_local.asl import Engine, EngineClock, Handle, Invoke, MemoryStore, StateMachine, Store, load_definition
from gpulease_local.asl.model import Task
from gpulease_local.deps import Account, EngineWorkflows, LocalDeps, LocalProviders
from gpulease_local.failed_executions import LocalFailedExecutions
from gpulease_local.functions import Functions
from gpulease_local.template import ScheduleSpec, Template
from gpulease_local.world import DepsClock

PRICE_LIST_EVERY_SECONDS = 3600.0
"""A schedule at least as slow as this keeps a copy of something (offers); it is run before anything is served."""


def repository() -> Path:
    """The folder that holds `template.yaml` of this checkout."""
    return Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class World:
    """What a stack lives in. `sleep` lets seconds of `clock` pass; `accounts` in order of preference."""

    clock: EngineClock
    sleep: Callable[[float], None]
    accounts: Mapping[str, Account]
    ledger: Ledger
    offers: OfferStore
    ids: Ids
    secrets: Secrets
    probe: Probe
    notifier: Notifier
    log: Log
    policy: Policy
    sweeps: SweepStore = field(default_factory=SqliteSweepStore)
    agents: AgentStore = field(default_factory=SqliteAgentStore)
    drains: DrainStore = field(default_factory=SqliteDrainStore)
    shared: SharedReads = field(default_factory=SqliteSharedReads)
    store: Store = field(default_factory=MemoryStore)
    seed: int = 0
    workers: int = 0
    time_scale: float = 1.0
    wrap_invoke: Callable[[Invoke], Invoke] | None = None
    """Put around every call of a function by a state machine: a simulation spends time, kills and doubles there."""


class Stack:
    """A running stack; the engine is moved by whoever owns it (`engine.run_forever`, `engine.run_until`)."""

    def __init__(self, template: Template, world: World) -> None:
        self.template = template
        self.world = world
        clock = DepsClock(world.clock)
        self.failed_executions = LocalFailedExecutions(world.clock.time)
        self.deps = LocalDeps(
            ledger=world.ledger,
            offers=world.offers,
            shared=world.shared,
            sweeps=world.sweeps,
            agents=world.agents,
            drains=world.drains,
            providers=LocalProviders(
                world.accounts,
                secrets=world.secrets,
                clock=clock,
                log=world.log,
                sleep=world.sleep,
                shared=world.shared,
            ),
            workflows=EngineWorkflows(lambda: self.engine),
            failed_executions=self.failed_executions,
            clock=clock,
            ids=world.ids,
            secrets=world.secrets,
            probe=world.probe,
            notifier=world.notifier,
            log=world.log,
            policy=world.policy,
        )
        self.functions = Functions(
            template.functions, monotonic=world.clock.time, token=world.ids.token, on_error=self._failed
        )
        invoke: Invoke = self.functions.invoke
        self.engine = Engine(
            clock=world.clock,
            seed=world.seed,
            invoke=invoke if world.wrap_invoke is None else world.wrap_invoke(invoke),
            store=world.store,
            workers=world.workers,
        )
        self.engine.on_failed = self.failed_executions.ended

    def load(self) -> None:
        """Import all handlers and register all state machines; interrupted executions go on from here."""
        runtime_deps.use(self.deps)
        self.functions.load_all()
        for spec in self.template.machines:
            machine = load_definition(spec.definition, name=spec.name, substitutions=spec.substitutions)
            self.engine.register(with_wall_timeouts(machine, self.world.time_scale))

    def fill_price_lists(self) -> None:
        """Run the slow schedules once, so that the first request finds offers."""
        for schedule in self.template.schedules:
            if schedule.every_seconds >= PRICE_LIST_EVERY_SECONDS:
                self._fire(schedule)

    def start_schedules(self, *, price_lists_now: bool = False) -> list[Handle]:
        """Hand the template's schedules to the engine: quick ones begin at once, slow ones if told to."""
        handles = []
        for schedule in self.template.schedules:
            at_once = price_lists_now or schedule.every_seconds < PRICE_LIST_EVERY_SECONDS
            fire = functools.partial(self._fire, schedule)
            first_after = 0.0 if at_once else schedule.every_seconds
            handles.append(self.engine.call_every(schedule.every_seconds, fire, first_after=first_after))
        return handles

    def close(self) -> None:
        """Let calls under way finish; call it after the engine's loop has returned."""
        self.engine.close()
        runtime_deps.use(None)

    def _fire(self, schedule: ScheduleSpec) -> None:
        # What fails is in the log (see `_failed`); the next turn tries again, as with the service.
        self.functions.invoke(schedule.function, dict(schedule.payload))

    def _failed(self, function: str, error: BaseException) -> None:
        self.world.log.warning("function_failed", function=function, error=type(error).__name__, reason=str(error))


def with_wall_timeouts(machine: StateMachine, scale: float) -> StateMachine:
    """The machine with each Task's TimeoutSeconds stretched: the work runs in wall time, however fast the clock is."""
    if scale <= 1:
        return machine
    states = {
        name: dataclasses.replace(state, timeout_seconds=int(state.timeout_seconds * scale))
        if isinstance(state, Task) and state.timeout_seconds is not None
        else state
        for name, state in machine.states.items()
    }
    return dataclasses.replace(machine, states=states)
