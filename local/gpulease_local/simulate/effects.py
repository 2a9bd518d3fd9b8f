"""Every effect that a function has on the world, numbered, so that each can be made to fail on purpose.

An effect is a call to the provider, a write to the ledger, or the start of a workflow. `Effects` stands between the
functions and all three and asks a `Meddler` what becomes of each.

Invariants: an effect without meddling is carried out once, unchanged; a function that was killed runs no further line
of ours (`Killed` is no `Exception`), and the state machine hears what it hears of a Lambda function that died.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

from gpulease.domain.agent import AgentRecord
from gpulease.domain.event import Event
from gpulease.domain.lease import Lease
from gpulease.domain.sweep import SweepState
from gpulease.ports import AgentStore, Change, Ledger, SweepStore, Workflows
from gpulease.providers.http import RawResponse, Transport
from gpulease_sim.aws import SimResponse

from gpulease_local.asl import Invoke, TaskReply, TransitionEvent
from gpulease_local.simulate.aws_calls import CREATES as AWS_CREATES
from gpulease_local.simulate.aws_calls import aws_request
from gpulease_local.simulate.virtual_aws import Handler

API_FUNCTION = "ApiFunction"
_FUNCTION_SUFFIX = "Function"
CREATES = {"/instances": "instance", "/bare-metals": "bare_metal", "/vpcs": "vpc", "/blocks": "block"}
"""Vultr's paths under which things are made."""


class Killed(BaseException):
    """The process of the function is gone. Nothing of ours may catch it; `error` is what the caller hears."""

    def __init__(self, error: str = "Lambda.Unknown") -> None:
        super().__init__(error)
        self.error = error


class Kind(StrEnum):
    """What an effect acts on."""

    PROVIDER = "provider"
    LEDGER = "ledger"
    WORKFLOW = "workflow"


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect. `number` counts all effects of a run from 1; `lease` is the id, or the function without one."""

    number: int
    kind: Kind
    name: str
    lease: str
    function: str
    method: str = ""
    """Of provider calls: GET = a read."""
    path: str = ""
    machine_create: bool = False
    provider: str = "vultr"
    action: str = ""
    """AWS's name of the call."""
    by_id: bool = False
    """A read of things by their ids."""
    creates: bool = False

    def __str__(self) -> str:
        return f"{self.function or 'nobody'}: {self.name}"


Do = Callable[[], Any]


class Meddler(Protocol):
    """Decides what becomes of effects and calls."""

    def around(self, effect: Effect, do: Do) -> Any:
        """Carry `do` out, or not, or raise what its caller would see."""
        ...

    def invoke(self, function: str, payload: Any, invoke: Invoke) -> TaskReply:
        """One call of a function by a state machine or a schedule."""
        ...


class Harmless:
    """`Meddler` that lets everything happen."""

    def around(self, effect: Effect, do: Do) -> Any:
        """Carry it out."""
        return do()

    def invoke(self, function: str, payload: Any, invoke: Invoke) -> TaskReply:
        """Call it."""
        return invoke(function, payload)


class Effects:
    """Where all effects pass. `lease_of` may name a lease that has no id yet (an API request under way)."""

    def __init__(self, meddler: Meddler | None = None) -> None:
        self.meddler: Meddler = meddler or Harmless()
        self.count = 0
        self.calls: Counter[str] = Counter()
        """Provider calls by lease."""
        self.kills_raised = 0
        self.kills_heard = 0
        self.on_created: Callable[[Lease], None] = lambda lease: None
        """Told of each lease that is about to be recorded for the first time."""
        self.trace: Callable[[Effect, str], None] | None = None
        self._function = ""
        self._lease = ""
        self._under_way: dict[str, dict[str, tuple[str, str | None]]] = defaultdict(dict)

    # --- who is acting ---

    @contextmanager
    def inside(self, function: str, lease: str) -> Iterator[None]:
        """What happens now is done by this function for this lease."""
        before = self._function, self._lease
        self._function, self._lease = function, lease
        try:
            yield
        finally:
            self._function, self._lease = before

    def on_transition(self, event: TransitionEvent) -> None:
        """Remember which executions of a lease are where."""
        of_lease = self._under_way[lease_of_execution(event.execution)]
        if event.to_state is None:
            of_lease.pop(event.execution, None)
        else:
            of_lease[event.execution] = (event.machine, event.to_state)

    def execution(self, effect: Effect) -> tuple[str, str] | None:
        """(machine, name) of the execution whose Task has this effect; None where a schedule or the API has it."""
        state = effect.function.removesuffix(_FUNCTION_SUFFIX)
        for name, (machine, at) in self._under_way.get(effect.lease, {}).items():
            if at == state:
                return machine, name
        return None

    def executions(self, lease: str) -> list[tuple[str, str]]:
        """(machine, name) of all executions of a lease."""
        return [(machine, name) for name, (machine, _) in self._under_way.get(lease, {}).items()]

    # --- what passes here ---

    def wrap_invoke(self, invoke: Invoke) -> Invoke:
        """For `VirtualStack.wrap_invoke`."""

        def call(function: str, payload: Any) -> TaskReply:
            lease = payload.get("lease_id", "") if isinstance(payload, Mapping) else ""
            with self.inside(function, lease):
                try:
                    return self.meddler.invoke(function, payload, invoke)
                except Killed as killed:
                    self.kills_heard += 1
                    return TaskReply(error=killed.error, cause="the function did not come back")

        return call

    def past_meddling(self, invoke: Invoke) -> Invoke:
        """The same without asking the meddler about the call; its effects are still asked about."""

        def call(function: str, payload: Any) -> TaskReply:
            lease = payload.get("lease_id", "") if isinstance(payload, Mapping) else ""
            with self.inside(function, lease):
                try:
                    return invoke(function, payload)
                except Killed as killed:
                    self.kills_heard += 1
                    return TaskReply(error=killed.error, cause="the function did not come back")

        return call

    def kill(self, error: str = "Lambda.Unknown") -> Killed:
        """The exception that ends the function under way."""
        self.kills_raised += 1
        return Killed(error)

    def wrap_transport(self, inner: Transport) -> Transport:
        """For `VirtualStack.wrap_transport`."""
        return _EffectTransport(self, inner)

    def wrap_ledger(self, inner: Ledger) -> Ledger:
        """For `VirtualStack.wrap_ledger`."""
        return cast(Ledger, _EffectLedger(self, inner))

    def wrap_workflows(self, inner: Workflows) -> Workflows:
        """For `VirtualStack.wrap_workflows`."""
        return _EffectWorkflows(self, inner)

    def wrap_sweeps(self, inner: SweepStore) -> SweepStore:
        """For `VirtualStack.wrap_sweeps`."""
        return cast(SweepStore, _EffectSweeps(self, inner))

    def wrap_agents(self, inner: AgentStore) -> AgentStore:
        """For `VirtualStack.wrap_agents`."""
        return _EffectAgents(self, inner)

    def wrap_aws(self, inner: Handler) -> Handler:
        """For `VirtualStack.wrap_aws`."""
        return _EffectHandler(self, inner)

    def happen(self, kind: Kind, name: str, do: Do, *, lease: str = "", **more: Any) -> Any:
        """One effect. What no function has (filling the price lists before the start) is left alone."""
        if not self._function:
            return do()
        self.count += 1
        effect = Effect(self.count, kind, name, self._lease or lease, self._function, **more)
        if kind is Kind.PROVIDER:
            self.calls[effect.lease] += 1
        if self.trace is None:
            return self.meddler.around(effect, do)
        try:
            result = self.meddler.around(effect, do)
        except BaseException as raised:
            self.trace(effect, f"{type(raised).__name__}: {raised}")
            raise
        self.trace(effect, f"{result.status}" if isinstance(result, RawResponse | SimResponse) else "")
        return result


def lease_of_execution(name: str) -> str:
    """The lease of an execution's name (`l-<12>-<machine>-<epoch>…`)."""
    return "-".join(name.split("-", 2)[:2])


class _EffectTransport:
    """`providers.http.Transport` whose every request is an effect."""

    def __init__(self, effects: Effects, inner: Transport) -> None:
        self._effects = effects
        self._inner = inner

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        read_timeout: float,
    ) -> RawResponse:
        """Send one request once, unless it is meddled with."""

        def do() -> RawResponse:
            return self._inner.send(
                method, url, headers=headers, body=body, connect_timeout=connect_timeout, read_timeout=read_timeout
            )

        path = path_of(url)
        machine, creates = path in ("/instances", "/bare-metals"), path in CREATES and method == "POST"
        answer = self._effects.happen(
            Kind.PROVIDER,
            f"{method} {path}",
            do,
            method=method,
            path=path,
            machine_create=creates and machine,
            creates=creates,
        )
        if not isinstance(answer, RawResponse):
            raise TypeError(f"no answer but {answer!r}")
        return answer


class _EffectHandler:
    """`virtual_aws.Handler` whose every request is an effect."""

    def __init__(self, effects: Effects, inner: Handler) -> None:
        self._effects = effects
        self._inner = inner

    def handle(self, headers: Mapping[str, str], body: bytes) -> SimResponse:
        """Answer one request, unless it is meddled with."""
        asked = aws_request(headers, body)
        answer = self._effects.happen(
            Kind.PROVIDER,
            f"{asked.action} {asked.region}",
            lambda: self._inner.handle(headers, body),
            method="GET" if asked.is_read else "POST",
            machine_create=asked.action == "RunInstances",
            provider="aws",
            action=asked.action,
            by_id=asked.is_read and asked.names_ids,
            creates=asked.action in AWS_CREATES,
        )
        if not isinstance(answer, SimResponse):
            raise TypeError(f"no answer but {answer!r}")
        return answer


def path_of(url: str) -> str:
    """The path behind the version, without query."""
    _, _, path = url.partition("/v2")
    return path.partition("?")[0]


class _EffectLedger:
    """`ports.Ledger` whose every write is an effect; reads pass by."""

    def __init__(self, effects: Effects, inner: Ledger) -> None:
        self._effects = effects
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_lease(self, lease: Lease, events: Iterable[Event] = (), start_script: bytes = b"") -> None:
        """See `ports.Ledger.create_lease`."""
        told = list(events)
        self._effects.on_created(lease)
        self._effects.happen(
            Kind.LEDGER,
            "create lease",
            lambda: self._inner.create_lease(lease, told, start_script),
            lease=lease.id,
        )

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        self._effects.happen(Kind.LEDGER, _name_of(change), lambda: self._inner.commit(change), lease=change.lease_id)


def _name_of(change: Change) -> str:
    parts = [f"lease {change.lease.state.value}"] if change.lease is not None else []
    parts += [f"{r.id.partition('.')[2]} {r.state.value}" for r in change.resources]
    parts += [e.kind for e in change.events]
    return "write " + json.dumps(parts)[1:-1].replace('"', "")


class _EffectSweeps:
    """`ports.SweepStore` whose every write is an effect."""

    def __init__(self, effects: Effects, inner: SweepStore) -> None:
        self._effects = effects
        self._inner = inner

    def note_place(self, account: str, region: str) -> None:
        """See `ports.SweepStore.note_place`."""
        self._effects.happen(Kind.LEDGER, f"note {account}/{region}", lambda: self._inner.note_place(account, region))

    def states(self) -> list[SweepState]:
        """See `ports.SweepStore.states`."""
        return self._inner.states()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def save(self, state: SweepState) -> SweepState:
        """See `ports.SweepStore.save`."""
        name = f"save {state.account}/{state.region}"
        return cast(SweepState, self._effects.happen(Kind.LEDGER, name, lambda: self._inner.save(state)))


class _EffectAgents:
    """`ports.AgentStore` whose every write is an effect; reads pass by."""

    def __init__(self, effects: Effects, inner: AgentStore) -> None:
        self._effects = effects
        self._inner = inner

    def load(self, lease_id: str) -> AgentRecord | None:
        """See `ports.AgentStore.load`."""
        return self._inner.load(lease_id)

    def save(self, agent: AgentRecord) -> AgentRecord:
        """See `ports.AgentStore.save`."""
        saved = self._effects.happen(Kind.LEDGER, "save agent", lambda: self._inner.save(agent), lease=agent.lease_id)
        return cast(AgentRecord, saved)


class _EffectWorkflows:
    """`ports.Workflows` whose every start is an effect."""

    def __init__(self, effects: Effects, inner: Workflows) -> None:
        self._effects = effects
        self._inner = inner

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        """See `ports.Workflows.start`."""
        self._effects.happen(
            Kind.WORKFLOW,
            f"start {name}",
            lambda: self._inner.start(machine, name, lease_id, epoch),
            lease=lease_id,
        )

    def is_running(self, machine: str, name: str) -> bool:
        """See `ports.Workflows.is_running`."""
        return self._inner.is_running(machine, name)
