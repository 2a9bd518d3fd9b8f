"""The world in which pauses are played: the whole stack in virtual time on a simulated AWS account and a simulated
Vultr one, and a check of each claim `paused` at the moment it is written.

Invariant: a lease is never written as paused, nor a machine as stopped, while the provider's book bills its compute.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.ports import Change
from gpulease_local.simulate.guests import FLUSH_SECONDS
from gpulease_local.simulate.virtual import VirtualStack
from gpulease_local.simulate.workloads import Workload
from gpulease_sim.aws import Settings
from gpulease_sim.aws.book import BookObject
from gpulease_sim.aws.faults import Fault
from gpulease_sim.aws.settings import changed

from tests.support.ec2_world import steady as steady_aws
from tests.support.stack_world import StackWorld
from tests.support.vultr_world import steady as steady_vultr

ONE_AWS: Mapping[str, Any] = {"providers": ["aws"], "regions": ["us-east-1"], "plans": ["g6.xlarge"]}
"""A request that the zones of one region fit."""
ONE_VULTR: Mapping[str, Any] = {
    "providers": ["vultr"],
    "regions": ["ewr"],
    "plans": ["vcg-l40s-16c-180g-48vram"],
    "plan_kinds": ["vm"],
}
R_SECONDS = 300.0


class PauseWorld(StackWorld):
    """One case. `close()` after use."""

    def __init__(
        self,
        aws: Settings | None = None,
        workload_of: Callable[[str], Workload | None] | None = None,
        flush_seconds: tuple[float, float] = FLUSH_SECONDS,
        **vultr: Any,
    ) -> None:
        super().__init__()
        self.stack = VirtualStack(
            providers=("aws", "vultr"),
            aws_settings=aws or steady_aws(),
            settings=steady_vultr(**{"requests_per_second": 30, **vultr}),
            wrap_ledger=self._watched,
            workload_of=workload_of,
            flush_seconds=flush_seconds,
        ).load()
        self.aws = self.stack.aws
        self.t0 = self.stack.clock.time()

    # --- script ---

    def up(self, name: str = "box", **request: Any) -> str:
        """Ask for a lease and wait until it runs; its id."""
        lease_id = self.stack.up(name=name, **(request or ONE_AWS))
        self.until(lease_id, LeaseState.RUNNING, within=1800)
        return lease_id

    def pause(self, lease_id: str) -> dict[str, Any]:
        return self.stack.api("POST", f"/v1/leases/{lease_id}/pause")

    def resume(self, lease_id: str, **query: str) -> dict[str, Any]:
        return self.stack.api("POST", f"/v1/leases/{lease_id}/resume", query=query)

    def paused(self, lease_id: str) -> float:
        """Pause it and wait; T+ of `paused`."""
        self.pause(lease_id)
        return self.until(lease_id, LeaseState.PAUSED, within=1200)

    def fault(self, **where: Any) -> None:
        """Misbehaviour of the AWS API from now on."""
        self.aws.faults.add(Fault(**where))

    def no_faults(self) -> None:
        self.aws.faults.clear()

    def behave(self, **change: Any) -> None:
        """How machines behave that are launched from now on."""
        self.aws.settings = replace(self.aws.settings, instance=changed(self.aws.settings.instance, change))

    # --- what is so ---

    def machine(self, lease_id: str) -> Resource:
        """Its newest machine."""
        return self.record(lease_id).of_kind(ResourceKind.INSTANCE)[-1]

    def booked(self, lease_id: str) -> BookObject:
        """Its newest machine by the provider's book."""
        return self.aws.book.get(self.machine(lease_id).provider_id)

    def machines_booked(self) -> list[BookObject]:
        """All machines that were ever made at AWS."""
        return [each for each in self.aws.book.objects() if each.kind == "instance"]

    def calls(self, action: str, since: float = -1.0) -> list[float]:
        """T+ of each such call to AWS."""
        return [c.at - self.t0 for c in self.aws.calls if c.action == action and c.at - self.t0 >= since]

    def assert_right(self, *, may_log: tuple[str, ...] = ()) -> None:
        """What holds at the end of every case: no wrong claim, the ledger's open machines are those that exist, nothing
        failed."""
        problems = list(self.wrong_claims)
        listed = {
            r.provider_id
            for lease in self.stack.leases()
            for r in self.record(lease.id).resources
            if r.state is not ResourceState.RELEASED and r.kind is ResourceKind.INSTANCE
        }
        exist = {each.id for each in self.machines_booked() if each.destroyed is None}
        exist |= {e.id for e in self.stack.cloud.book.billed() if e.kind in ("instance", "bare_metal")}
        problems += [f"billed and not listed: {each}" for each in sorted(exist - listed)]
        problems += [f"listed and not there: {each}" for each in sorted(listed - exist)]
        problems += [
            f"execution {e.name} {e.status}: {e.error} {e.cause}"
            for e in self.stack.engine.executions()
            if e.status in ("FAILED", "TIMED_OUT")
        ]
        problems += [f"logged: {name} {facts}" for name, facts in self.stack.log.errors if name not in may_log]
        assert not problems, "\n".join((*problems, self.story()))

    # --- parts ---

    def _committed(self, change: Change) -> None:
        super()._committed(change)
        now = self.stack.clock.time()
        if change.lease is not None:
            if change.lease.state is LeaseState.PAUSED:
                self._must_cost_nothing(change.lease_id, now)
            if change.lease.state in (LeaseState.PAUSING, LeaseState.PAUSED):
                self._must_have_no_address(change.lease_id)

    def _must_cost_nothing(self, lease_id: str, now: float) -> None:
        """Compute of a paused lease, by the books of both providers. What is on its way out is shown as billed."""
        leaving = {r.provider_id for r in self.record(lease_id).resources if r.state is ResourceState.RELEASING}
        for each in self.machines_booked():
            ours = any(f":{lease_id}." in marker for marker in each.markers)
            if ours and each.hourly_usd > Decimal(0) and each.id not in leaving:
                self.wrong_claims.append(f"T+{now - self.t0:.1f}: {lease_id} says paused, {each.id} is billed")
        for entry in self.stack.cloud.book.billed(now):
            if any(f":{lease_id}." in marker for marker in entry.markers) and entry.id not in leaving:
                self.wrong_claims.append(f"T+{now - self.t0:.1f}: {lease_id} says paused, {entry.id} is billed")

    def _must_have_no_address(self, lease_id: str) -> None:
        for machine in self.record(lease_id).of_kind(ResourceKind.INSTANCE):
            if machine.state is ResourceState.HELD and machine.address:
                self.wrong_claims.append(f"{lease_id} shows the address {machine.address} of a machine that stops")
