"""The world in which the behaviour cases are played: the whole stack in virtual time, a foreigner in the same account,
and the checks that hold at the end of every case.

Times of a case are seconds since its T+0, the moment at which its (first) lease was asked for.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.ports import Change
from gpulease.providers.http import RawResponse, Transport
from gpulease_local.asl import TaskReply
from gpulease_local.simulate.virtual import DEPLOYMENT, OWNER, Invoke, VirtualStack
from gpulease_sim.vultr import BookObject, MachineRule, SeenCall, Settings

from tests.support.case_checks import problems_of
from tests.support.kills import Kill, Killed
from tests.support.stack_world import StackWorld
from tests.support.vultr_world import steady

R_SECONDS = 300.0
V_SECONDS = 120.0
CREATE_TIMEOUT_SECONDS = 60.0
REGION = "ewr"
VM_PLAN = "vcg-l40s-16c-180g-48vram"
METAL_PLAN = "vbm-48c-1024gb-4-a100-gpu"
ONE_VM: Mapping[str, Any] = {"regions": [REGION], "plans": [VM_PLAN], "plan_kinds": ["vm"]}
"""A request that one offer fits."""
ONE_METAL: Mapping[str, Any] = {
    "regions": [REGION],
    "plans": [METAL_PLAN],
    "plan_kinds": ["bare_metal"],
    "gpu_count": 4,
}
QUIET_SECONDS = 1800.0
SCOPES = pytest.mark.parametrize("scope", ["owner", "lease"])
"""A network shared by all leases of its owner, or the lease's own."""


class _KillingTransport:
    def __init__(self, inner: Transport, world: "CaseWorld") -> None:
        self._inner = inner
        self._world = world

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
        path = url.partition("/v2")[2].partition("?")[0]
        self._world.note_sent(method, path)
        kill = self._world.due_kill(method, path)
        if kill is not None and not kill.sent:
            self._world.strike(kill)
        answer = self._inner.send(
            method, url, headers=headers, body=body, connect_timeout=connect_timeout, read_timeout=read_timeout
        )
        if kill is not None and kill.sent:
            self._world.strike(kill)
        return answer


@dataclass(frozen=True)
class Foreign:
    """Something of somebody else in the same account, as it was planted."""

    kind: str
    id: str
    label: str
    tags: tuple[str, ...]


class CaseWorld(StackWorld):
    """One case. `close()` after use."""

    def __init__(self, *, reworded: bool = False, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.reworded = reworded
        self.kills: list[Kill] = []
        self.sent: list[tuple[float, str, str, str]] = []
        """(T+, function, method, path) of every call by a workflow: not the sweep's and not the API's."""
        self.tasks: list[tuple[str, int, float]] = []
        """(function, bytes of its answer, seconds it took) of every call by a state machine."""
        self._function = ""
        chosen: Settings = steady(**{"reworded": reworded, "requests_per_second": 30, **settings})
        self.stack = VirtualStack(
            seed=seed,
            settings=chosen,
            wrap_ledger=self._watched,
            wrap_transport=lambda transport: _KillingTransport(transport, self),
            wrap_invoke=self._killable,
        ).load()
        self.cloud = self.stack.cloud
        self.t0 = self.stack.clock.time()
        self.foreign = self._plant_foreigners()
        self.foreign_machines = sum(each.kind == "instance" for each in self.foreign)
        self.calls_before = self.cloud.calls_total

    # --- script ---

    def machine(self, *numbers: int, **change: Any) -> None:
        """How our nth machines behave (from 1; none = all that carry our marker)."""
        nth = tuple(number + self.foreign_machines for number in numbers)
        rule = MachineRule(match=f"^gpulease:{DEPLOYMENT}:", nth=nth, change=change)
        self.set(rules=(*self.cloud.settings.rules, rule))

    def set(self, **changes: Any) -> None:
        """Other settings of the account from now on."""
        self.cloud.settings = replace(self.cloud.settings, **changes)

    def kill(self, **where: Any) -> Kill:
        """Let a function die; see `Kill`."""
        kill = Kill(**where)
        self.kills.append(kill)
        return kill

    def due_kill(self, method: str, path: str) -> Kill | None:
        """The kill that falls on this call of a step, if any."""
        if not self._function:
            return None
        return next((kill for kill in self.kills if kill.falls_on(self._function, method, path)), None)

    def note_sent(self, method: str, path: str) -> None:
        """Remember a call that a workflow makes."""
        if self._function:
            self.sent.append((self.now, self._function, method, path))

    def strike(self, kill: Kill) -> None:
        """End the function under way, or do what was asked for at this point."""
        if kill.action is not None:
            kill.action()
            return
        self.stack.pass_time(kill.after_seconds)
        raise Killed(kill.error)

    def before(self, method: str, path: str, action: Callable[[], object], **where: Any) -> None:
        """Do something just before a step's call is sent, every time unless told otherwise."""
        self.kill(method=method, path=path, action=action, sent=False, **{"times": math.inf, **where})

    def up(self, owner: str = OWNER, **request: Any) -> str:
        """Ask for a lease (one VM offer unless told otherwise); its id. The first one sets T+0."""
        if not self.stack.leases():
            self.t0 = self.stack.clock.time()
        return self.stack.up(owner=owner, **{"name": "box", **(request or ONE_VM)})

    def down(self, lease_id: str, owner: str = OWNER) -> None:
        """Give it back."""
        self.stack.down(lease_id, owner=owner)

    # --- what is so ---

    def machine_of(self, lease_id: str, attempt: int = 1) -> Resource:
        """The machine of one attempt."""
        return self.record(lease_id).of_kind(ResourceKind.INSTANCE, attempt)[0]

    def network(self) -> Resource:
        """The newest private network of the world, whether its lease holds it or a holder of its own does."""
        networks = [
            resource
            for lease in self.stack.leases()
            for resource in self.record(lease.id).of_kind(ResourceKind.NETWORK)
        ]
        return max(networks, key=lambda network: (network.intended_at, network.id))

    def until_nothing_is_billed(self, *, within: float) -> float:
        """Let time pass until nothing of ours is left; T+ of then. Fails after `within`."""
        gone = self.stack.run_until(lambda: not self.billed(), limit_seconds=within, step_seconds=2.0)
        assert gone, f"still there after {within} s: {self.billed()}"
        return self.now

    def ours(self, kind: str = "") -> list[BookObject]:
        """Everything that was ever made for us; `kind` as in the book."""
        prefix = f"gpulease:{DEPLOYMENT}:"
        return [
            each
            for each in self.cloud.book.objects()
            if any(marker.startswith(prefix) for marker in each.markers) and kind in ("", each.kind)
        ]

    def billed(self, kind: str = "") -> list[BookObject]:
        """What exists for us now."""
        return [each for each in self.ours(kind) if each.destroyed is None]

    def calls(self, method: str = ".*", path: str = ".*", since: float = -1.0) -> list[SeenCall]:
        """Calls since the beginning of the case; `at` is T+, `path` a regex of the whole path."""
        assert self.cloud.calls_total <= (self.cloud.calls.maxlen or 0), "the record of calls is not complete"
        return [
            call._replace(at=call.at - self.t0)
            for call in list(self.cloud.calls)[self.calls_before :]
            if re.fullmatch(method, call.method) and re.fullmatch(path, call.path) and call.at - self.t0 >= since
        ]

    def gone_at(self, provider_id: str) -> float:
        """T+ of the end of its bill; fails while it is billed."""
        destroyed = self.cloud.book.get(provider_id).destroyed
        assert destroyed is not None, f"{provider_id} is still billed at T+{self.now:.0f}"
        return destroyed - self.t0

    def longest_history(self) -> int:
        """Events of the longest execution so far."""
        return max((each.events for each in self.stack.engine.executions()), default=0)

    # --- checks ---

    def assert_right_at_the_end(
        self, *, twins_made_by_the_provider: int = 0, still: tuple[str, ...] = (), may_log: tuple[str, ...] = ()
    ) -> None:
        """The checks that hold at the end of every case, after half an hour in which nothing more may happen.

        `twins_made_by_the_provider`: machines that the provider made beside the one asked for. `still`: leases that
        are rightly on their way still. `may_log`: error lines, and errors of executions, that belong to the case.
        """
        # A shared network goes after the last lease that used it.
        self.run_for(2 * R_SECONDS)
        before = self.cloud.calls_total
        self.run_for(QUIET_SECONDS)
        problems = problems_of(self, since=before, twins=twins_made_by_the_provider, still=still, may_log=may_log)
        assert not problems, "\n".join((*problems, "", self.story()))

    # --- parts ---

    def _committed(self, change: Change) -> None:
        super()._committed(change)
        now = self.stack.clock.time()
        if change.lease is not None and change.lease.state is LeaseState.RELEASED:
            self._must_be_gone(change.lease_id, f":{change.lease_id}.", now)
        for resource in change.resources:
            if resource.state is ResourceState.RELEASED:
                if not resource.provider_id:
                    self._must_be_gone(resource.id, f":{resource.id}", now, exactly=True)
                elif any(each.id == resource.provider_id for each in self.cloud.book.billed(now)):
                    self._claim(resource.id, resource.provider_id, now)

    def _must_be_gone(self, what: str, part: str, now: float, *, exactly: bool = False) -> None:
        for each in self.cloud.book.billed(now):
            if any(marker.endswith(part) if exactly else part in marker for marker in each.markers):
                self._claim(what, each.id, now)

    def _hidden_for_too_long(self, machine_id: str, now: float) -> bool:
        """Whether the provider hides it, and longer than it says it would: nobody can know of it."""
        machine = self.cloud.account.machines.get(machine_id)
        if machine is None or machine.listed_at <= now:
            return False
        return machine.listed_at - machine.created > CREATE_TIMEOUT_SECONDS + V_SECONDS

    def _claim(self, what: str, provider_id: str, now: float) -> None:
        if not self._hidden_for_too_long(provider_id, now):
            self.wrong_claims.append(f"T+{now - self.t0:.1f}: {what} was written as released, {provider_id} is billed")

    def _killable(self, invoke: Invoke) -> Invoke:
        def killable(function: str, payload: Any) -> TaskReply:
            self._function, began = function, self.stack.clock.time()
            try:
                reply = invoke(function, payload)
            except Killed as killed:
                reply = TaskReply(error=str(killed), cause="the function ended without an answer")
            finally:
                self._function = ""
            self.tasks.append((function, len(json.dumps(reply.value)), self.stack.clock.time() - began))
            return reply

        return killable

    def _plant_foreigners(self) -> tuple[Foreign, ...]:
        others_marker = "gpulease:elsewhere0:l-aaaaaaaaaaaa"
        machine = {"region": REGION, "plan": VM_PLAN, "os_id": 1743}
        return (
            self._plant("instance", "/instances", machine | {"label": "gpulease-box", "tags": ["team:physics"]}),
            self._plant("instance", "/instances", machine | {"label": "box", "tags": [f"{others_marker}.instance.1"]}),
            self._plant("vpc", "/vpcs", {"region": REGION, "description": f"{others_marker}.network.1"}),
            self._plant("vpc", "/vpcs", {"region": REGION, "description": "gpulease"}),
        )

    def _plant(self, kind: str, path: str, body: Mapping[str, Any]) -> Foreign:
        headers = {"Authorization": "Bearer theirs", "Content-Type": "application/json"}
        answer = self.cloud.handle("POST", path, {}, headers, json.dumps(body).encode(), "203.0.113.7")
        assert answer.status in (201, 202), answer
        return Foreign(kind, answer.json()[kind]["id"], str(body.get("label", "")), tuple(body.get("tags", ())))
