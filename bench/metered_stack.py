"""A whole stack in virtual time that knows what AWS would charge for it; `bench_cost` says what is measured with it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from gpulease.domain.lease import LeaseState
from gpulease.ports import FailedExecution, FailedExecutions
from gpulease.runtime.secrets import CACHE_SECONDS
from gpulease.runtime.world import PROBE_TIMEOUT_SECONDS, CallWaits
from gpulease_cli.waiting import usual_pause_seconds
from gpulease_local.asl import Invoke, TaskReply, TransitionEvent
from gpulease_local.deps import LocalProviders
from gpulease_local.simulate.effects import API_FUNCTION
from gpulease_local.simulate.virtual import Fire, VirtualStack
from gpulease_local.simulate.workloads import Workload
from gpulease_local.stack import repository
from gpulease_sim.vultr import Settings

from bench.machine_reports import as_on_a_machine
from bench.metered_stores import MeteredAgents, MeteredOffers, MeteredShared, MeteredSweeps, metered_ledger
from bench.metering import Meter, MeteredLog, MeteredTransport
from bench.prices import lambda_cpu_share

AGENT_FUNCTION = "AgentReportFunction"
LIMIT_SECONDS = 3 * 3600.0
Use = Counter[str]


@dataclass(frozen=True)
class Assumed:
    """What cannot be measured here. Seconds and bytes per call."""

    provider_seconds: float = 0.5
    database_seconds: float = 0.01
    cold_seconds: float = 1.0
    platform_log_bytes: int = 800
    access_log_bytes: int = 420


class _Loader(yaml.SafeLoader):
    """The template with intrinsics left out."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


@dataclass(frozen=True)
class Stack:
    """What of `template.yaml` has a price of its own."""

    memory_mb: Mapping[str, int]
    quiet: frozenset[str]
    """Functions of whose calls Lambda itself logs nothing, unless something went wrong."""
    alarms: int
    dashboards: int
    traced: bool
    """Whether calls are traced unless somebody asks for something else."""

    @staticmethod
    def read() -> "Stack":
        """From the repository's own template."""
        text = (repository() / "template.yaml").read_text(encoding="utf-8")
        document: Any = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
        usual = document["Globals"]["Function"]["MemorySize"]
        memory, quiet, alarms, dashboards = {}, set(), 0, 0
        for name, resource in document["Resources"].items():
            if resource["Type"] == "AWS::Serverless::Function":
                memory[name] = resource["Properties"].get("MemorySize", usual)
                if resource["Properties"].get("LoggingConfig", {}).get("SystemLogLevel") == "WARN":
                    quiet.add(name)
            alarms += resource["Type"] == "AWS::CloudWatch::Alarm"
            dashboards += resource["Type"] == "AWS::CloudWatch::Dashboard"
        given = document["Parameters"].get("Tracing", {}).get("Default", document["Globals"]["Function"]["Tracing"])
        return Stack(memory, frozenset(quiet), alarms, dashboards, traced=given in ("Active", "true"))


class ClosedTakesLong:
    """`ports.Probe` whose refusal takes as long as an address that does not answer."""

    def __init__(self, inner: Any, spend: Callable[[float], None]) -> None:
        self._inner = inner
        self._spend = spend

    def tcp_open(self, address: str, port: int) -> bool:
        """Whether the simulated host accepts connections now."""
        is_open = bool(self._inner.tcp_open(address, port))
        self._spend(0.0 if is_open else PROBE_TIMEOUT_SECONDS)
        return is_open


class MeteredQueue:
    """`ports.FailedExecutions`, each call of which has its price."""

    def __init__(self, meter: Meter, inner: FailedExecutions) -> None:
        self._meter = meter
        self._inner = inner

    def receive(self) -> Sequence[FailedExecution]:
        """See `ports.FailedExecutions.receive`."""
        self._meter.use["queue_calls"] += 1
        return self._inner.receive()

    def done(self, message: FailedExecution) -> None:
        """See `ports.FailedExecutions.done`."""
        self._meter.use["queue_calls"] += 1
        self._inner.done(message)


class CallsThatWait:
    """`ports.Waits` as deployed: the seconds pass within the call, and are billed."""

    def __init__(self, spend: Callable[[float], None]) -> None:
        self.most_seconds = CallWaits.most_seconds
        self.sleep = spend


class _Heard(VirtualStack):
    """A virtual stack in which somebody stands around the reports of agents."""

    around_report: Callable[[Mapping[str, Any], Callable[[Mapping[str, Any]], Any]], Any]

    def answer_of_report(self, token: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """One report of an agent."""
        heard = super().answer_of_report
        answer: tuple[int, dict[str, Any]] = self.around_report(body, lambda body: heard(token, body))
        return answer


class MeteredStack:
    """A virtual stack that knows what it would be charged. Close it: handlers know one stack per process."""

    def __init__(
        self,
        stack: Stack,
        assumed: Assumed,
        settings: Settings,
        seed: int,
        *,
        workload_of: Callable[[str], Workload | None] | None = None,
    ) -> None:
        self.meter = Meter()
        self._stack = stack
        self._assumed = assumed
        self._warm: set[str] = set()
        self._key_read_at: dict[str, float] = {}
        latency = (assumed.provider_seconds, assumed.provider_seconds)
        self.virtual = _Heard(
            seed=seed,
            workload_of=workload_of,
            settings=replace(settings, latency_seconds=latency, list_latency_seconds=latency, requests_per_second=None),
            wrap_ledger=metered_ledger(self.meter),
            wrap_sweeps=lambda inner: MeteredSweeps(self.meter, inner),
            wrap_agents=lambda inner: MeteredAgents(self.meter, inner),
            wrap_transport=lambda inner: MeteredTransport(self.meter, inner),
            wrap_invoke=self._wrap_invoke,
            wrap_schedule=self._wrap_schedule,
        )
        self._meter_the_rest()
        self.virtual.engine.on_transition = self._on_transition
        self.virtual.around_report = self._report
        self.virtual.load()

    def _meter_the_rest(self) -> None:
        inner = self.virtual.stack
        world, deps = inner.world, inner.deps
        shared, log = MeteredShared(self.meter, world.shared), MeteredLog(self.meter)
        inner.deps = replace(
            deps,
            shared=shared,
            offers=MeteredOffers(self.meter, world.offers),
            log=log,
            notifier=log,
            probe=ClosedTakesLong(world.probe, self.virtual.pass_time),
            failed_executions=MeteredQueue(self.meter, deps.failed_executions),
            waits=CallsThatWait(self.virtual.pass_time),
            providers=LocalProviders(
                world.accounts,
                secrets=world.secrets,
                clock=deps.clock,
                log=log,
                sleep=world.sleep,
                shared=shared,
            ),
        )

    def close(self) -> None:
        """Let the next one use this process."""
        self.virtual.close()

    # --- what is counted ---

    def _on_transition(self, event: TransitionEvent) -> None:
        # AWS's examples count the start and the end as well: https://aws.amazon.com/step-functions/pricing/
        self.meter.use["transitions"] += 2 if event.from_state is None else 1
        self.meter.use["traces"] += event.from_state is None
        if event.to_state is not None:
            self.meter.detail[f"state {event.to_state}"] += 1

    def _wrap_schedule(self, function: str, fire: Fire) -> Fire:
        def fired() -> None:
            self.meter.use.update(scheduler_calls=1, traces=1)
            fire()

        return fired

    def _wrap_invoke(self, invoke: Invoke) -> Invoke:
        def call(function: str, payload: Any) -> TaskReply:
            reply: TaskReply = self._metered(function, lambda: invoke(function, payload))
            return reply

        return call

    def _metered(self, function: str, work: Callable[[], Any]) -> Any:
        meter, clock = self.meter, self.virtual.clock
        cpu, at, database = meter.own_cpu_ns(), clock.time(), meter.database_calls
        provider, lines = meter.provider_calls, meter.log_lines
        try:
            return work()
        finally:
            provider_calls = meter.provider_calls - provider
            cpu_seconds = (meter.own_cpu_ns() - cpu) / 1e9
            # The clock shows pauses and provider calls; that of an API request has been set back when it returns.
            waited = max(clock.time() - at, provider_calls * self._assumed.provider_seconds)
            waited += (meter.database_calls - database) * self._assumed.database_seconds
            if meter.log_lines == lines:
                raise AssertionError(f"{function} wrote no log line")
            self._charge(function, cpu_seconds, waited, calls_provider=provider_calls > 0)

    def _charge(self, function: str, cpu_seconds: float, waited: float, *, calls_provider: bool) -> None:
        memory = self._stack.memory_mb[function]
        seconds = cpu_seconds / lambda_cpu_share(memory) + waited
        cold = function not in self._warm
        if cold:
            self._warm.add(function)
            seconds += self._assumed.cold_seconds
        now, use, detail = self.virtual.clock.time(), self.meter.use, self.meter.detail
        if calls_provider and (cold or now - self._key_read_at.get(function, 0.0) >= CACHE_SECONDS):
            self._key_read_at[function] = now
            use["secret_reads"] += 1
        billed_ms = math.ceil(seconds * 1000)
        use["lambda_requests"] += 1
        use["lambda_gb_seconds"] += billed_ms / 1000 * memory / 1024  # type: ignore[assignment]
        if function not in self._stack.quiet:
            use["log_bytes"] += self._assumed.platform_log_bytes
        detail[f"calls {function}"] += 1
        detail[f"cpu_ms {function}"] += cpu_seconds * 1000  # type: ignore[assignment]
        detail[f"billed_ms {function}"] += billed_ms

    def _report(self, body: Mapping[str, Any], report: Callable[[Mapping[str, Any]], Any]) -> Any:
        self.meter.use.update(api_requests=1, traces=1, log_bytes=self._assumed.access_log_bytes)
        told = as_on_a_machine(body)
        return self._metered(AGENT_FUNCTION, lambda: report(told))

    # --- what a user does ---

    def _api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.meter.use.update(api_requests=1, traces=1, log_bytes=self._assumed.access_log_bytes)
        answer: dict[str, Any] = self._metered(API_FUNCTION, lambda: self.virtual.api(method, path, body))
        return answer

    def up(self, **request: Any) -> str:
        """Ask for a lease; its id."""
        return str(self._api("POST", "/v1/leases", request)["id"])

    def wait(self, lease_id: str, state: LeaseState, *, asking: bool = True) -> None:
        """Ask like the CLI until the lease is there, or let time pass. Raises AssertionError when it does not come."""
        began = self.virtual.clock.time()
        while (seen := self._state(lease_id, asking=asking)) != state:
            waited = self.virtual.clock.time() - began
            if seen == LeaseState.RELEASED or waited > LIMIT_SECONDS:
                raise AssertionError(f"{lease_id} is {seen}, not {state}")
            self.virtual.run_for(usual_pause_seconds(waited))

    def _state(self, lease_id: str, *, asking: bool) -> str:
        return str(
            self._api("GET", f"/v1/leases/{lease_id}")["state"] if asking else self.virtual.lease(lease_id).state
        )

    def down(self, lease_id: str) -> None:
        """Give it back."""
        self._api("DELETE", f"/v1/leases/{lease_id}")

    def all_cold(self) -> None:
        """From now on each function's next call is a cold start; those of schedules stay warm."""
        scheduled = {schedule.function for schedule in self.virtual.stack.template.schedules}
        self._warm &= scheduled
