"""The whole stack in virtual time: real state machines, real handlers, SQLite ledger, simulated providers.

Invariant: nothing here waits or reads the computer's clock, and every draw comes from the seed, so the same seed gives
the same history. A call spends its own time without holding up the others, as calls on many machines would.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpulease.domain.agent_protocol import HEARTBEAT_PATH
from gpulease.domain.event import Event, Fact
from gpulease.domain.lease import Lease
from gpulease.domain.record import LeaseRecord
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_offers import SqliteOfferStore
from gpulease.ports import AgentStore, Clock, Ledger, Policy, SweepStore, Workflows
from gpulease.providers.http import Transport
from gpulease_sim.aws import AwsCloud
from gpulease_sim.aws import Settings as AwsSettings
from gpulease_sim.vultr import Settings, VultrCloud

from gpulease_local.asl import Invoke as Invoke
from gpulease_local.asl import TaskReply, VirtualClock
from gpulease_local.deps import Account, EngineWorkflows, FixedSecrets, LocalProviders
from gpulease_local.sim_transport import SimTransport
from gpulease_local.simulate.cloud_aws import AwsSide
from gpulease_local.simulate.cloud_vultr import VultrSide
from gpulease_local.simulate.clouds import Cloud, Clouds
from gpulease_local.simulate.guests import FLUSH_SECONDS, AwsGuests, GuestAgents
from gpulease_local.simulate.virtual_aws import REGIONS, Around, aws_account
from gpulease_local.simulate.workloads import Workload
from gpulease_local.stack import Stack, World, repository
from gpulease_local.template import Template, read_template
from gpulease_local.world import DepsClock, OpenPorts, SeededIds

START = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
DEPLOYMENT = "simulated0"
OWNER = "arn:aws:iam::111122223333:user/simulated"

AGENT_URL = "https://agents.invalid"
"""Where agents report to: `VirtualStack.report`."""
GUESTS_EVERY_SECONDS = 10.0

Fire = Callable[[], None]


@functools.cache
def _template() -> Template:
    """Read once per process: to parse it takes longer than many a simulated life."""
    return read_template(repository() / "template.yaml")


class Silent:
    """`ports.Log` and `ports.Notifier` that keep alarms and errors for the report and forget the rest."""

    def __init__(self) -> None:
        self.on_warning: Callable[[str, dict[str, object]], None] = lambda event, facts: None
        self.errors: list[tuple[str, dict[str, object]]] = []
        self.alarms: list[tuple[str, dict[str, Fact]]] = []

    def info(self, event: str, **facts: object) -> None:
        """Forgotten."""

    def warning(self, event: str, **facts: object) -> None:
        """Told to who listens."""
        self.on_warning(event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Kept."""
        self.errors.append((event, facts))

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        """Kept."""
        self.alarms.append((name, facts))


class ApiRefused(Exception):
    """The API answered with an error; `problem` is its problem document."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title')} {problem.get('errors', '')}")
        self.status = status
        self.problem = problem


@dataclass
class VirtualStack:
    """A stack in its own virtual world. `load()` before use, `close()` after: handlers know one stack per process.

    `wrap_ledger`, `wrap_sweeps`, `wrap_agents`, `wrap_transport`, `wrap_workflows` and `wrap_clock` put faults between
    the functions and what they talk to; `wrap_invoke` around every call of a function by a state machine or a schedule;
    `wrap_schedule` around every firing of a schedule (its function's name and what fires it).
    """

    seed: int = 0
    settings: Settings = field(default_factory=Settings)
    wrap_ledger: Callable[[Ledger], Ledger] = lambda ledger: ledger
    wrap_transport: Callable[[Transport], Transport] = lambda transport: transport
    wrap_invoke: Callable[[Invoke], Invoke] = lambda invoke: invoke
    wrap_workflows: Callable[[Workflows], Workflows] = lambda workflows: workflows
    wrap_sweeps: Callable[[SweepStore], SweepStore] = lambda sweeps: sweeps
    wrap_agents: Callable[[AgentStore], AgentStore] = lambda agents: agents
    wrap_clock: Callable[[Clock], Clock] = lambda clock: clock
    wrap_schedule: Callable[[str, Fire], Fire] = lambda function, fire: fire
    attach_deadline_seconds: float = 600.0
    providers: tuple[str, ...] = ("vultr",)
    """Accounts, in order of preference: `vultr`, `aws`."""
    aws_settings: AwsSettings = field(default_factory=AwsSettings)
    aws_regions: tuple[str, ...] = REGIONS
    wrap_aws: Around = lambda inner: inner
    workload_of: Callable[[str], Workload | None] | None = None
    """With it, machines have agents; by the name of their lease, what their users do."""
    flush_seconds: tuple[float, float] = FLUSH_SECONDS
    """How long an agent takes to save its cache, at least and at most."""
    start: float = START
    """When it begins; workloads count from then."""

    def __post_init__(self) -> None:
        self.clock = VirtualClock(self.start)
        self.log = Silent()
        self._make_clouds()
        self.ids = SeededIds(self.seed)
        self._sqlite = SqliteLedger(":memory:")
        self.ledger = self.wrap_ledger(self._sqlite)
        world = World(
            clock=self.clock,
            sleep=self.pass_time,
            accounts={name: self._account(name) for name in self.providers},
            ledger=self.ledger,
            offers=SqliteOfferStore(self._sqlite.file),
            ids=self.ids,
            secrets=FixedSecrets(),
            probe=OpenPorts(self._ssh_open),
            notifier=self.log,
            log=self.log,
            policy=Policy(
                deployment=DEPLOYMENT,
                attach_deadline_seconds=self.attach_deadline_seconds,
                agent_url=AGENT_URL if self.workload_of is not None else "",
            ),
            seed=self.seed,
            wrap_invoke=lambda invoke: self._taking_time(self.wrap_invoke(invoke)),
        )
        self.stack = Stack(_template(), world)
        self._give_functions_a_world_of_their_own(world)
        self.engine = self.stack.engine
        self._in_call = False

    def _make_clouds(self) -> None:
        """The simulated accounts, with agents on their machines where there is a workload."""
        self.agents: GuestAgents | None = None
        if self.workload_of is not None:
            self.agents = GuestAgents(
                seed=self.seed,
                now=lambda: self.clock.time(),
                later=lambda seconds, act: void(self.engine.call_at(self.clock.time() + seconds, act)),
                send=self.answer_of_report,
                workload_of=self._workload_of_lease,
                start=self.start,
                flush_seconds=self.flush_seconds,
            )
        self.cloud = VultrCloud(self.clock.time, self.seed, self.settings, guests=self.agents)
        self.aws = AwsCloud(self.clock.time, self.seed, self.aws_settings)
        if self.agents is not None:
            self.aws.guests.append(AwsGuests(self.agents))
        sides: dict[str, Cloud] = {"vultr": VultrSide(self.cloud), "aws": AwsSide(self.aws)}
        self.clouds = Clouds(*(sides[name] for name in self.providers))

    def _workload_of_lease(self, lease_id: str) -> Workload | None:
        return self.workload_of(self.ledger.load(lease_id).lease.name) if self.workload_of is not None else None

    def _account(self, name: str) -> Account:
        if name == "aws":
            return aws_account(self.aws, passed=self.pass_time, around=self.wrap_aws, regions=self.aws_regions)
        return Account(name, self.wrap_transport(SimTransport(self.cloud, passed=self.pass_time)))

    def _ssh_open(self, address: str, port: int) -> bool:
        return self.cloud.ssh_open(address, port) or ("aws" in self.providers and self.aws.ssh_open(address, port))

    def _give_functions_a_world_of_their_own(self, world: World) -> None:
        """The functions' clock may be wrong, and the workflows they start may get lost; the engine's own are right."""
        clock = self.wrap_clock(DepsClock(self.clock))
        self.stack.deps = dataclasses.replace(
            self.stack.deps,
            clock=clock,
            sweeps=self.wrap_sweeps(self.stack.deps.sweeps),
            agents=self.wrap_agents(self.stack.deps.agents),
            workflows=self.wrap_workflows(EngineWorkflows(lambda: self.engine)),
            providers=LocalProviders(
                world.accounts,
                secrets=world.secrets,
                clock=clock,
                log=world.log,
                sleep=world.sleep,
                shared=world.shared,
            ),
        )

    # --- time ---

    def load(self) -> "VirtualStack":
        """Make the handlers of this process use this world, fill the catalogue, start the schedules."""
        self.stack.load()
        self._timed(self.stack.fill_price_lists)
        for schedule in self.stack.template.schedules:
            fire = self.wrap_schedule(schedule.function, self._firing(schedule.function, dict(schedule.payload)))
            self.engine.call_every(schedule.every_seconds, fire, first_after=schedule.every_seconds)
        if self.agents is not None:
            self.engine.call_every(GUESTS_EVERY_SECONDS, self._tell_guests)
        return self

    def _tell_guests(self) -> None:
        """Machines boot and stop also while nobody calls their provider."""
        self.cloud.tell_guests()
        if "aws" in self.providers:
            self.aws.advance()

    def close(self) -> None:
        """Let other stacks use this process."""
        self.stack.close()
        self._sqlite.close()

    def pass_time(self, seconds: float) -> None:
        """Seconds that a call under way takes; outside of a call nobody waits for them."""
        if self._in_call and seconds > 0:
            self.clock.spend(seconds)

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        if self._in_call:
            # Somebody else's call in the middle of this one: it takes no time of its own.
            return work(), 0.0
        self.clock.begin_call()
        self._in_call = True
        try:
            value = work()
        finally:
            self._in_call = False
            spent = self.clock.end_call()
        return value, spent

    def _taking_time(self, invoke: Invoke) -> Invoke:
        def timed(function: str, payload: Any) -> TaskReply:
            reply, spent = self._timed(lambda: invoke(function, payload))
            return TaskReply(reply.value, reply.error, reply.cause, reply.duration_seconds + spent)

        return timed

    def _firing(self, function: str, payload: dict[str, Any]) -> Callable[[], None]:
        invoke = self._taking_time(self.wrap_invoke(self.stack.functions.invoke))
        return lambda: void(invoke(function, payload))

    def invoke_later(
        self, seconds: float, function: str, payload: Any, wrap: Callable[[Invoke], Invoke] | None = None
    ) -> None:
        """Call a function so much later, past `wrap_invoke`; nobody waits for its answer."""
        plain: Invoke = self.stack.functions.invoke
        invoke = self._taking_time(wrap(plain) if wrap else plain)
        self.engine.call_at(self.clock.time() + seconds, lambda: void(invoke(function, payload)))

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.engine.run_until(self.clock.time() + seconds)

    def run_until(self, done: Callable[[], bool], *, limit_seconds: float, step_seconds: float = 10.0) -> bool:
        """Let time pass until `done()`; False when the limit came first."""
        end = self.clock.time() + limit_seconds
        while not done():
            if self.clock.time() >= end:
                return False
            self.engine.run_until(min(self.clock.time() + step_seconds, end))
        return True

    # --- what a user does ---

    def api(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        owner: str = OWNER,
    ) -> dict[str, Any]:
        """One request to the API function. Raises ApiRefused."""
        context = {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": ""},
            "requestId": "simulated",
            "stage": "$default",
            "authorizer": {"iam": {"userArn": owner}},
        }
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": "ANY /{proxy+}",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"content-type": "application/json", **(headers or {})},
            "requestContext": context,
            "isBase64Encoded": False,
        }
        if query:
            event["queryStringParameters"] = dict(query)
        if body is not None:
            event["body"] = json.dumps(body)
        answer, _ = self._timed(lambda: self.stack.functions.call("ApiFunction", event))
        document = json.loads(answer.get("body") or "{}")
        if answer["statusCode"] >= 400:
            raise ApiRefused(answer["statusCode"], document)
        return dict(document)

    def report(self, token: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """One report of an agent; its answer, None = it was refused or did not get through."""
        status, answer = self.answer_of_report(token, body)
        return answer if status == 200 else None

    def answer_of_report(self, token: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """One report of an agent; the status and the answer to it."""
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": f"POST {HEARTBEAT_PATH}",
            "rawPath": HEARTBEAT_PATH,
            "rawQueryString": "",
            "headers": {"content-type": "application/json", "authorization": f"Bearer {token}"},
            "requestContext": {"http": {"method": "POST", "path": HEARTBEAT_PATH}, "requestId": "agent"},
            "isBase64Encoded": False,
            "body": json.dumps(body),
        }
        answer, _ = self._timed(lambda: self.stack.functions.call("AgentReportFunction", event))
        return int(answer["statusCode"]), json.loads(answer["body"])

    def up(self, owner: str = OWNER, idempotency_key: str = "", **request: Any) -> str:
        """Ask for a lease; its id."""
        headers = {"idempotency-key": idempotency_key} if idempotency_key else {}
        return str(self.api("POST", "/v1/leases", request, headers=headers, owner=owner)["id"])

    def down(self, lease_id: str, owner: str = OWNER) -> None:
        """Give a lease back."""
        self.api("DELETE", f"/v1/leases/{lease_id}", owner=owner)

    # --- what is so ---

    def record(self, lease_id: str) -> LeaseRecord:
        """The lease in the ledger, past any faults."""
        return self._sqlite.load(lease_id)

    def lease(self, lease_id: str) -> Lease:
        """Its row."""
        return self.record(lease_id).lease

    def events(self, lease_id: str) -> list[Event]:
        """Its whole story."""
        story: list[Event] = []
        cursor = None
        while True:
            page = self._sqlite.events(lease_id, cursor=cursor, limit=500)
            story.extend(page.items)
            cursor = page.cursor
            if cursor is None:
                return story

    def leases(self) -> list[Lease]:
        """All leases of all owners, oldest first."""
        found: list[Lease] = []
        cursor = None
        while True:
            page = self._sqlite.leases_of(None, cursor=cursor, limit=500)
            found.extend(page.items)
            cursor = page.cursor
            if cursor is None:
                return found[::-1]


def void(_: object) -> None:
    """Throw a value away where a callback must return None."""
