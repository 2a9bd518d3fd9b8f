"""The world in which cases of AWS and of idleness are played: the whole stack in virtual time on the simulated accounts
it is given, strangers in the same account, agents where there are workloads, and the checks of `cloud_checks.py`.

Times of a case are seconds since its T+0, when the world begins; workloads count from then too. What AWS was asked is
kept in full (`sent`), each with the function that asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.ports import Change
from gpulease_local.asl import TaskReply
from gpulease_local.simulate.clouds import MACHINE, Thing
from gpulease_local.simulate.virtual import DEPLOYMENT, OWNER, START, Invoke, VirtualStack
from gpulease_local.simulate.virtual_aws import Handler
from gpulease_local.simulate.workloads import Workload
from gpulease_sim.aws import SimResponse
from gpulease_sim.aws.faults import Fault
from gpulease_sim.aws.settings import Rule

from tests.support.cloud_checks import problems_of
from tests.support.ec2_world import steady as steady_aws
from tests.support.kills import Kill, Killed
from tests.support.stack_world import StackWorld
from tests.support.vultr_world import steady as steady_vultr

REGION, ZONE, OTHER_ZONE = "us-east-1", "us-east-1a", "us-east-1b"
PLAN = "g6.xlarge"
ONE_AWS: Mapping[str, Any] = {"providers": ["aws"], "regions": [REGION], "plans": [PLAN]}
"""A request that the zones of one region fit."""
ONE_SPOT: Mapping[str, Any] = {**ONE_AWS, "spot": "spot"}
R_SECONDS = 300.0
QUIET_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A call to AWS: T+, the function that made it (empty = the API or an agent), and what came of it."""

    at: float
    function: str
    action: str
    params: Mapping[str, str]
    status: int
    """0: no answer."""
    code: str

    @property
    def changes(self) -> bool:
        """Whether it may change something."""
        return not self.action.startswith(("Describe", "Get"))


class _Watching:
    """Between boto3 and the account."""

    def __init__(self, inner: Handler, world: "CloudWorld") -> None:
        self._inner, self._world = inner, world

    def handle(self, headers: Mapping[str, str], body: bytes) -> SimResponse:
        self._world.keys_seen.add(headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0])
        action = headers.get("X-Amz-Target", "").rpartition(".")[2] or dict(parse_qsl(body.decode())).get("Action", "")
        kill = self._world.due_kill(action)
        if kill is not None and not kill.sent:
            self._world.strike(kill)
        try:
            answer = self._inner.handle(headers, self._world.rewrite(body))
        finally:
            self._world.note_sent()
        if kill is not None and kill.sent:
            self._world.strike(kill)
        return answer


class CloudWorld(StackWorld):
    """One case. `close()` after use."""

    def __init__(
        self,
        *providers: str,
        reworded: bool = False,
        seed: int = 0,
        workload_of: Callable[[str], Workload | None] | None = None,
        vultr: Mapping[str, Any] | None = None,
        wrap_schedule: Callable[[str, Callable[[], None]], Callable[[], None]] = lambda function, fire: fire,
        stack: type[VirtualStack] = VirtualStack,
        start: float = START,
        **aws: Any,
    ) -> None:
        super().__init__()
        self.kills: list[Kill] = []
        self.sent: list[Sent] = []
        self.keys_seen: set[str] = set()
        """Access keys that signed calls to AWS."""
        self.watchers: list[Callable[[Change], None]] = []
        """Told of each change after it was written."""
        self.function = ""
        self.rewrite: Callable[[bytes], bytes] = lambda body: body
        """What becomes of a call on its way to AWS."""
        self.stack = stack(
            seed=seed,
            providers=providers or ("aws",),
            aws_settings=steady_aws(**{"reworded": reworded, **aws}),
            settings=steady_vultr(**{"reworded": reworded, "requests_per_second": 30, **(vultr or {})}),
            wrap_ledger=self._watched,
            wrap_invoke=self._killable,
            wrap_schedule=wrap_schedule,
            wrap_aws=lambda inner: _Watching(inner, self),
            workload_of=workload_of,
            start=start,
        )
        self.aws = self.stack.aws
        self.stack.load()
        for cloud in self.stack.clouds:
            cloud.strangers(DEPLOYMENT)
        self.strangers = frozenset(each.id for each in self.stack.clouds.things())
        self.t0 = start
        self.sent.clear()

    # --- script ---

    def fault(self, **where: Any) -> None:
        """Misbehaviour of the AWS API from now on; times of it are T+."""
        for name in ("from_seconds", "until_seconds"):
            if where.get(name) is not None:
                where[name] += self.t0
        self.aws.faults.add(Fault(**where))

    def no_faults(self) -> None:
        """AWS behaves again."""
        self.aws.faults.clear()

    def machine(self, *numbers: int, **change: Any) -> None:
        """How our nth machines at AWS behave that are launched from now on (from 1; none = all)."""
        made = sum(each.role == MACHINE and each.id in self.strangers for each in self.stack.clouds.things())
        rule = Rule(match=f"gpulease:{DEPLOYMENT}:", nth=tuple(number + made for number in numbers), change=change)
        self.set(rules=(*self.aws.settings.rules, rule))

    def set(self, **changes: Any) -> None:
        """Other settings of the AWS account from now on."""
        self.aws.settings = replace(self.aws.settings, **changes)

    def kill(self, call: str, function: str = ".*", **where: Any) -> Kill:
        """Let a function die at a call to AWS; see `Kill`."""
        kill = Kill(function=function, method=call, **where)
        self.kills.append(kill)
        return kill

    def before(self, call: str, act: Callable[[], object], times: float = 1) -> None:
        """Do something just before a step's call is sent."""
        self.kill(call, action=act, sent=False, times=times)

    def due_kill(self, action: str) -> Kill | None:
        """The kill that falls on this call of a step, if any."""
        if not self.function:
            return None
        return next((kill for kill in self.kills if kill.falls_on(self.function, action, "")), None)

    def strike(self, kill: Kill) -> None:
        """End the function under way, or do what was asked for at this point."""
        if kill.action is not None:
            kill.action()
            return
        self.stack.pass_time(kill.after_seconds)
        raise Killed(kill.error)

    def note_sent(self) -> None:
        """Remember the call that AWS has just answered."""
        seen = self.aws.calls[-1]
        self.sent.append(Sent(seen.at - self.t0, self.function, seen.action, seen.params, seen.status, seen.code))

    def up(self, owner: str = OWNER, **request: Any) -> str:
        """Ask for a lease (one plan at AWS unless told otherwise); its id."""
        return self.stack.up(owner=owner, **{"name": "box", **(request or ONE_AWS)})

    def running(self, **request: Any) -> str:
        """Ask for a lease and wait until it runs; its id."""
        lease_id = self.up(**request)
        self.until(lease_id, LeaseState.RUNNING, within=1800)
        return lease_id

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """One POST of the owner."""
        return self.stack.api("POST", path, body, query=query or None)

    # --- what is so ---

    def machine_of(self, lease_id: str) -> Resource:
        """Its newest machine."""
        return self.record(lease_id).of_kind(ResourceKind.INSTANCE)[-1]

    def event_at(self, lease_id: str, kind: str) -> float:
        """T+ of the last event of that kind."""
        return self.events(lease_id, kind)[-1].at.timestamp() - self.t0

    def ours(self, role: str = MACHINE) -> list[Thing]:
        """What was ever made for us, in one role; parts of machines left out."""
        things = self.stack.clouds.things()
        return [each for each in things if each.role == role and each.id not in self.strangers and not each.part_of]

    def existing(self, role: str = MACHINE) -> list[Thing]:
        """Those of them that are there now, stopped ones included."""
        return [each for each in self.ours(role) if each.exists(self.stack.clock.time())]

    def costing(self) -> list[Thing]:
        """Our machines whose compute is billed now."""
        return [each for each in self.existing() if each.source.is_billed(self.stack.clock.time())]

    def gone_at(self, provider_id: str) -> float:
        """T+ of its end; fails while it exists."""
        thing = self.stack.clouds.find(provider_id)
        assert thing is not None and not thing.exists(self.stack.clock.time()), f"{provider_id} exists at {self.now}"
        return thing.destroyed_from - self.t0

    def calls(self, action: str, *, naming: str = "", since: float = -1.0) -> list[Sent]:
        """Calls to AWS by their whole action, with this among their parameters."""
        return [
            each
            for each in self.sent
            if each.action == action and each.at >= since and (not naming or naming in each.params.values())
        ]

    def assert_right_at_the_end(self, *, twins: int = 0, may_log: tuple[str, ...] = ()) -> None:
        """The checks that hold at the end of every case, after half an hour in which nothing more may happen.

        `twins`: machines that the provider made beside the ones asked for. `may_log`: errors that belong to the case.
        """
        self.run_for(2 * R_SECONDS)
        quiet_from = self.now
        self.run_for(QUIET_SECONDS)
        problems = problems_of(self, quiet_from=quiet_from, twins=twins, may_log=may_log)
        assert not problems, "\n".join((*problems, "", self.story()))

    # --- parts ---

    def _committed(self, change: Change) -> None:
        super()._committed(change)
        now = self.stack.clock.time()
        for watcher in self.watchers:
            watcher(change)
        if change.lease is not None:
            if change.lease.state is LeaseState.RELEASED:
                self._must_not_exist(f":{change.lease_id}.", change.lease_id, now)
            if change.lease.state is LeaseState.PAUSED:
                self._must_cost_nothing(change.lease_id, now)
        for resource in change.resources:
            if resource.state is ResourceState.RELEASED:
                thing = self.stack.clouds.find(resource.provider_id) if resource.provider_id else None
                if thing is not None and thing.exists(now):
                    self._claim(f"{resource.id} is released", thing.id, now)
                elif not resource.provider_id:
                    self._must_not_exist(f":{resource.id}", resource.id, now)

    def _must_not_exist(self, marker: str, what: str, now: float) -> None:
        for each in self.stack.clouds.things():
            if each.exists(now) and any(marker in text for text in each.markers) and each.id not in self.strangers:
                self._claim(f"{what} is released", each.id, now)

    def _must_cost_nothing(self, lease_id: str, now: float) -> None:
        leaving = {r.provider_id for r in self.record(lease_id).resources if r.state is ResourceState.RELEASING}
        for each in self.ours():
            ours = any(f":{lease_id}." in marker for marker in each.markers)
            if ours and each.id not in leaving and each.exists(now) and each.source.is_billed(now):
                self._claim(f"{lease_id} is paused", each.id, now)

    def _claim(self, what: str, provider_id: str, now: float) -> None:
        self.wrong_claims.append(f"T+{now - self.t0:.1f}: written that {what}, and {provider_id} is there")

    def _killable(self, invoke: Invoke) -> Invoke:
        def killable(function: str, payload: Any) -> TaskReply:
            before, self.function = self.function, function
            try:
                return invoke(function, payload)
            except Killed as killed:
                return TaskReply(error=str(killed), cause="the function ended without an answer")
            finally:
                self.function = before

        return killable
