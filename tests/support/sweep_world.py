"""What the sweep's cases plant at the simulated provider: machines in nobody's hands, machines of others, schedules
that do not run.
"""

import json
from collections.abc import Mapping
from typing import Any

from gpulease.domain.sweep import SweepState
from gpulease_local.asl import Invoke, TaskReply
from gpulease_local.simulate.virtual import DEPLOYMENT

from tests.support.case_world import REGION, VM_PLAN, CaseWorld

NOBODYS = "l-bbbbbbbbbbbb"
"""A lease that the ledger has never heard of."""
SWEEP, CHECK = "SweepFunction", "CheckLeasesFunction"


def marker(resource: str, deployment: str = DEPLOYMENT) -> str:
    """The marker of a resource id."""
    return f"gpulease:{deployment}:{resource}"


def plant(
    world: CaseWorld, tags: list[str], region: str = REGION, plan: str = VM_PLAN, path: str = "/instances"
) -> str:
    """A machine that nobody asked us for, with these tags; its provider id."""
    body: Mapping[str, Any] = {"region": region, "plan": plan, "os_id": 1743, "label": "box", "tags": tags}
    return _create(world, path, body)


def plant_network(world: CaseWorld, description: str, region: str = REGION) -> str:
    """A VPC with that description; its provider id."""
    return _create(world, "/vpcs", {"region": region, "description": description})


def strangers(world: CaseWorld, count: int, tags: list[str] | None = None) -> list[str]:
    """Machines of other people in the same account, which must be left alone."""
    body = {"region": REGION, "plan": VM_PLAN, "os_id": 1743, "label": "theirs", "tags": tags or ["team:physics"]}
    limit = world.cloud.settings.requests_per_second
    world.set(requests_per_second=None)
    made = [world._plant("instance", "/instances", body) for _ in range(count)]
    world.set(requests_per_second=limit)
    world.foreign = (*world.foreign, *made)
    return [each.id for each in made]


def forget_planting(world: CaseWorld) -> None:
    """Calls so far were ours to build the world, not the product's."""
    world.calls_before = world.cloud.calls_total


def _create(world: CaseWorld, path: str, body: Mapping[str, Any]) -> str:
    headers = {"Authorization": "Bearer theirs", "Content-Type": "application/json"}
    answer = world.cloud.handle("POST", path, {}, headers, json.dumps(body).encode(), "203.0.113.9")
    assert answer.status in (201, 202), answer
    (made,) = answer.json().values()
    return str(made["id"])


class SweepWorld(CaseWorld):
    """A case whose schedules can be switched off, as by somebody who disables their rules."""

    def __init__(self, **settings: Any) -> None:
        self.off: set[str] = set()
        super().__init__(**settings)

    def _killable(self, invoke: Invoke) -> Invoke:
        inner = super()._killable(invoke)

        def switched(function: str, payload: Any) -> TaskReply:
            return TaskReply(value=None) if function in self.off else inner(function, payload)

        return switched

    def alarms(self, name: str) -> list[dict[str, Any]]:
        """The facts of every alarm of that name."""
        return [dict(facts) for each, facts in self.stack.log.alarms if each == name]

    def state_of(self, region: str = REGION) -> SweepState:
        """What sweeps remember of a region."""
        return self.stack.stack.deps.sweeps.load("vultr", region)
