"""What all worlds of whole leases share: a stack in virtual time, the states that leases were shown in, and its story.

Times of a case are T+: seconds since `t0`, which the world sets when it begins.
"""

import json
from collections.abc import Callable
from typing import Any

from gpulease.domain.event import Event
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.ports import Change, Ledger
from gpulease_local.asl import TaskReply
from gpulease_local.simulate.virtual import VirtualStack

from tests.support.watched_ledger import CommitFault, WatchedLedger


class StackWorld:
    """A world makes `stack` with `wrap_ledger=self._watched` and says what it checks at each write: `_committed`.

    `close()` after use."""

    stack: VirtualStack
    t0: float = 0.0

    def __init__(self) -> None:
        self.states: list[tuple[float, str, LeaseState]] = []
        """(T+, lease id, state) at each write of a lease's row."""
        self.wrong_claims: list[str] = []
        """What was written and contradicted by a provider's book at that moment."""
        self.ledger: WatchedLedger | None = None

    def close(self) -> None:
        """Let other worlds use this process."""
        self.stack.close()

    # --- script ---

    def at(self, seconds: float) -> None:
        """Let time pass until T+seconds."""
        self.stack.engine.run_until(self.t0 + seconds)

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self.stack.run_for(seconds)

    def until(self, lease_id: str, state: LeaseState, *, within: float) -> float:
        """Let time pass until the lease is in that state; T+ of the last write that says so. Fails after `within`."""
        self.wait(lambda: self.lease(lease_id).state is state, within, f"{lease_id} is not {state}")
        return next(at for at, whose, what in reversed(self.states) if (whose, what) == (lease_id, state))

    def wait(self, done: Callable[[], bool], within: float, what: str) -> float:
        """Let time pass; T+ of then. Fails after `within`."""
        reached = self.stack.run_until(done, limit_seconds=within, step_seconds=2.0)
        assert reached, f"{what} within {within} s\n{self.story()}"
        return self.now

    def invoke(self, function: str, lease_id: str) -> TaskReply:
        """Run a step now, beside whatever runs."""
        payload = {"lease_id": lease_id, "epoch": self.lease(lease_id).epoch}
        return self.stack.stack.functions.invoke(function, payload)

    def before_commit(self, when: Callable[[Change], bool], action: Callable[[], object]) -> None:
        """Do something just before the first write that `when` picks."""
        assert self.ledger is not None
        self.ledger.faults.append(CommitFault(when, None, False, 1, action))

    def fail_commits(
        self,
        when: Callable[[Change], bool],
        fail: Callable[[], BaseException],
        *,
        carried_out: bool = False,
        times: int = 1,
    ) -> CommitFault:
        """Writes that `when` picks are lost, or their answers are."""
        assert self.ledger is not None
        fault = CommitFault(when, fail, carried_out, times)
        self.ledger.faults.append(fault)
        return fault

    # --- what is so ---

    @property
    def now(self) -> float:
        """T+ of now."""
        return self.stack.clock.time() - self.t0

    def lease(self, lease_id: str) -> Lease:
        """The lease's row."""
        return self.stack.lease(lease_id)

    def record(self, lease_id: str) -> LeaseRecord:
        """The lease with its resources."""
        return self.stack.record(lease_id)

    def view(self, lease_id: str) -> dict[str, Any]:
        """As the API shows it."""
        return self.stack.api("GET", f"/v1/leases/{lease_id}")

    def events(self, lease_id: str, kind: str = "") -> list[Event]:
        """Its story, or all of one kind."""
        return [each for each in self.stack.events(lease_id) if not kind or each.kind == kind]

    def states_of(self, lease_id: str) -> list[LeaseState]:
        """The states it was shown in, in order, repeats left out."""
        seen: list[LeaseState] = []
        for _, whose, state in self.states:
            if whose == lease_id and (not seen or seen[-1] is not state):
                seen.append(state)
        return seen

    def story(self, *lease_ids: str) -> str:
        """What happened to them, or to all, for people."""
        told = (lease for lease in self.stack.leases() if not lease_ids or lease.id in lease_ids)
        return "\n".join(line for lease in told for line in self._lines(lease))

    def _lines(self, lease: Lease) -> list[str]:
        told = [
            f"T+{e.at.timestamp() - self.t0:8.1f} {lease.id} {e.level:7} {e.kind}: {e.text} {json.dumps(e.facts)}"
            for e in self.stack.events(lease.id)
        ]
        return [f"{lease.id}: {lease.state} {lease.reason}", *told]

    # --- parts ---

    def _watched(self, inner: Ledger) -> Ledger:
        self.ledger = WatchedLedger(inner, self._committed)
        return self.ledger

    def _committed(self, change: Change) -> None:
        """After each write."""
        if change.lease is not None:
            self.states.append((self.now, change.lease_id, change.lease.state))
