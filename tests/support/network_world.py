"""Leases of several owners and their private networks in virtual time, judged by the simulated provider's book."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpulease.domain.lease import LeaseKind, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.errors import LedgerUnavailable
from gpulease_local.asl import TaskReply
from gpulease_local.books import MACHINES
from gpulease_local.simulate.audit import audit
from gpulease_local.simulate.effects import Do, Effect, Effects, Kind
from gpulease_local.simulate.virtual import DEPLOYMENT, Invoke, VirtualStack
from gpulease_local.world import DepsClock
from gpulease_sim.vultr import BookObject, MachineRule, SeenCall

from tests.support.vultr_world import steady

ADA, GRACE = (f"arn:aws:iam::111122223333:user/{name}" for name in ("ada", "grace"))
REGION = "ewr"
VM: Mapping[str, Any] = {
    "regions": [REGION],
    "plans": ["vcg-l40s-16c-180g-48vram"],
    "plan_kinds": ["vm"],
    "private_network": "required",
}
"""A request that one offer fits."""


class Misfortune:
    """`Meddler` that lets one effect go wrong: the nth of those that `falls_on` picks.

    `how`: `before` and `after` kill the function around the effect; `lost` carries a write out and loses its answer.
    """

    def __init__(self, falls_on: Callable[[Effect], bool], how: str, nth: int = 1) -> None:
        self._falls_on = falls_on
        self._how = how
        self._left = nth
        self.effects: Effects | None = None
        self.struck = ""
        self.seen: list[str] = []

    def around(self, effect: Effect, do: Do) -> Any:
        """Carry it out, unless it is the one."""
        if not self._falls_on(effect):
            return do()
        self.seen.append(str(effect))
        self._left -= 1
        if self._left != 0:
            return do()
        self.struck = str(effect)
        assert self.effects is not None
        if self._how == "before":
            raise self.effects.kill()
        result = do()
        if self._how == "lost" and effect.kind is Kind.LEDGER:
            raise LedgerUnavailable("written, and the answer was lost")
        if self._how == "after":
            raise self.effects.kill()
        return result

    def invoke(self, function: str, payload: Any, invoke: Invoke) -> TaskReply:
        """Call it."""
        return invoke(function, payload)


class NetworkWorld:
    """A stack, and what a test asks about networks. `close()` after use."""

    def __init__(
        self, *, misfortune: Misfortune | None = None, machines: dict[str, Any] | None = None, **settings: Any
    ):
        effects = Effects(misfortune)
        if misfortune is not None:
            misfortune.effects = effects
        rule = MachineRule(match=f"^gpulease:{DEPLOYMENT}:", change=machines or {})
        self.stack = VirtualStack(
            settings=steady(**{"rules": (rule,), **settings}),
            wrap_ledger=effects.wrap_ledger,
            wrap_transport=effects.wrap_transport,
            wrap_invoke=effects.wrap_invoke,
            wrap_workflows=effects.wrap_workflows,
        ).load()
        self.stack.engine.on_transition = effects.on_transition
        self.cloud = self.stack.cloud

    def close(self) -> None:
        """Let other worlds use this process."""
        self.stack.close()

    def up(self, count: int = 1, owner: str = ADA, **request: Any) -> list[str]:
        """Ask for so many leases at once; their ids."""
        return [self.stack.up(owner, **{"name": f"box-{n}", **VM, **request}) for n in range(count)]

    def down(self, leases: Iterable[str]) -> None:
        """Give them back."""
        for lease_id in leases:
            self.stack.down(lease_id, owner=self.stack.lease(lease_id).owner)

    def until(self, leases: Iterable[str], *states: LeaseState, within: float = 3600) -> None:
        """Let time pass until all of them are in one of these states."""
        ids = list(leases)
        reached = self.stack.run_until(
            lambda: all(self.stack.lease(each).state in states for each in ids), limit_seconds=within, step_seconds=5
        )
        assert reached, "\n".join(self.story(each) for each in ids if self.stack.lease(each).state not in states)

    def until_over(self, within: float = 3600) -> None:
        """Let time pass until nothing is left, networks included."""
        over = self.stack.run_until(
            lambda: all(lease.state is LeaseState.RELEASED for lease in self.stack.leases()),
            limit_seconds=within,
            step_seconds=5,
        )
        left = [lease.id for lease in self.stack.leases() if lease.state is not LeaseState.RELEASED]
        assert over, "\n".join(self.story(each) for each in left)

    # --- what is so ---

    def networks(self) -> list[BookObject]:
        """Every network that was ever made for us."""
        return [each for each in self.cloud.book.objects() if each.kind == "vpc" and _is_ours(each)]

    def machines(self) -> list[BookObject]:
        """Every machine that was ever made for us."""
        return [each for each in self.cloud.book.objects() if each.kind in MACHINES and _is_ours(each)]

    def holders(self) -> list[LeaseRecord]:
        """What holds shared networks, oldest first."""
        return [self.stack.record(each.id) for each in self.stack.leases() if each.kind is LeaseKind.NETWORK]

    def calls(self, method: str, path: str) -> list[SeenCall]:
        """Calls whose path ends like that."""
        return [each for each in self.cloud.calls if each.method == method and each.path.endswith(path)]

    def joined(self, lease_id: str) -> bool:
        """Whether the lease's machine was seen in its network."""
        attempt = self.stack.lease(lease_id).attempts[-1]
        return attempt.attachment is not None and attempt.attachment.attached_at is not None

    def story(self, lease_id: str) -> str:
        """What happened to a lease, for people."""
        lines = [f"{each.at} {each.kind}: {each.text}" for each in self.stack.events(lease_id)]
        return "\n".join((f"{lease_id}: {self.stack.lease(lease_id).model_dump_json()}", *lines))

    def assert_nothing_is_left(self) -> None:
        """Neither orphans nor duplicates, nothing billed, every record closed."""
        records = [self.stack.record(lease.id) for lease in self.stack.leases()]
        found = audit(self.stack.clouds, records, DepsClock(self.stack.clock).now())
        assert (found.billed, found.orphans, found.duplicates, found.stuck) == ((), (), (), ())


def _is_ours(each: BookObject) -> bool:
    return any(marker.startswith(f"gpulease:{DEPLOYMENT}:") for marker in each.markers)
