"""Runs whole leases through the real workflows in virtual time and reports what the provider's book says afterwards."""

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from gpulease.domain.lease import LeaseState, Reason
from gpulease.runtime.world import monotonic

from gpulease_local.asl import TransitionEvent
from gpulease_local.simulate.audit import audit
from gpulease_local.simulate.faults import faults_of, settings_of
from gpulease_local.simulate.scenario import Wish, wishes
from gpulease_local.simulate.virtual import ApiRefused, VirtualStack
from gpulease_local.world import DepsClock

_CENT = Decimal("0.01")
PATIENCE_SECONDS = 6 * 3600.0
"""After the last lease should have ended. What has not ended by then is stuck."""


@dataclass
class Report:
    """The one JSON object that `gpulease simulate` prints. All but the wall-clock figures are the seed's alone."""

    leases: int
    seed: int
    faults: str
    refused: int = 0
    released: int = 0
    running_ok: int = 0
    orphans: int = 0
    duplicates: int = 0
    stuck: int = 0
    closed_while_billed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    machines_created: int = 0
    provider_calls: int = 0
    transitions: int = 0
    alarms: int = 0
    cost_book_usd: str = "0"
    cost_ledger_usd: str = "0"
    virtual_hours: float = 0.0
    wall_seconds: float = 0.0
    leases_per_second: float = 0.0
    digest: str = ""
    suspects: list[str] = field(default_factory=list)
    """Ids to look into when a count above is not 0."""

    @property
    def ok(self) -> bool:
        """Whether the promise held."""
        return not (self.orphans or self.duplicates or self.stuck or self.closed_while_billed)

    def as_json(self) -> str:
        """One line-broken JSON object."""
        return json.dumps(asdict(self), indent=2)


class Simulation:
    """One run. The stack can be looked at afterwards (`stack`)."""

    def __init__(self, *, leases: int, seed: int, faults: str = "none") -> None:
        self._wishes = wishes(leases, seed)
        self._seed = seed
        self._faults = faults
        self.stack = VirtualStack(seed=seed, settings=settings_of(faults, seed, leases))
        self._log = hashlib.sha256()
        self._transitions = 0
        self._ran: set[str] = set()
        self._holds: dict[str, float] = {}
        self._refused = 0

    def run(self) -> Report:
        """Everything, from the first request to the last proof."""
        began = monotonic()
        stack = self.stack.load()
        start = stack.clock.time()
        stack.cloud.faults.add(*faults_of(self._faults))
        stack.engine.on_transition = self._on_transition
        for wish in self._wishes:
            stack.engine.call_at(start + wish.at, lambda wish=wish: self._ask(wish))  # type: ignore[misc]
        last = max((w.at + w.hold_seconds for w in self._wishes), default=0.0)
        stack.engine.run_until(start + last)
        stack.run_until(self._all_ended, limit_seconds=PATIENCE_SECONDS, step_seconds=60.0)
        return self._report(start, monotonic() - began)

    # --- users ---

    def _ask(self, wish: Wish) -> None:
        try:
            lease_id = self.stack.up(**wish.request)
        except ApiRefused:
            # No offer fits (a price limit, a count): nothing was created, and the user was told why.
            self._refused += 1
            return
        self._holds[lease_id] = wish.hold_seconds
        if wish.cancel_after is not None:
            when = self.stack.clock.time() + wish.cancel_after
            self.stack.engine.call_at(when, lambda: self.stack.down(lease_id))

    def _on_transition(self, event: TransitionEvent) -> None:
        self._transitions += 1
        line = f"{event.time:.6f} {event.machine} {event.execution} {event.from_state} {event.to_state} {event.error}\n"
        self._log.update(line.encode())
        if event.to_state == "Provisioned":
            lease_id = event.execution.partition("-provision-")[0]
            if lease_id not in self._ran and lease_id in self._holds:
                self._ran.add(lease_id)
                when = event.time + self._holds[lease_id]
                self.stack.engine.call_at(when, lambda: self.stack.down(lease_id))

    def _all_ended(self) -> bool:
        return all(lease.state is LeaseState.RELEASED for lease in self.stack.leases())

    # --- what came of it ---

    def _report(self, start: float, wall_seconds: float) -> Report:
        stack = self.stack
        records = [stack.record(lease.id) for lease in stack.leases()]
        found = audit(stack.cloud.book, records, DepsClock(stack.clock))
        for record in records:
            self._log.update(record.lease.model_dump_json().encode())
        for each in stack.cloud.book.objects():
            self._log.update(f"{each.id} {each.created} {each.destroyed} {each.cost_usd}\n".encode())
        ended = [record.lease for record in records if record.lease.state is LeaseState.RELEASED]
        return Report(
            leases=len(records),
            seed=self._seed,
            faults=self._faults,
            refused=self._refused,
            released=len(ended),
            running_ok=sum(record.lease.running_at is not None for record in records),
            orphans=len(found.orphans),
            duplicates=len(found.duplicates),
            stuck=len(found.stuck),
            closed_while_billed=len(found.closed_while_billed),
            reasons=dict(sorted(Counter((lease.reason or Reason.LOST).value for lease in ended).items())),
            machines_created=sum(each.kind != "vpc" for each in stack.cloud.book.objects()),
            provider_calls=stack.cloud.calls_total,
            transitions=self._transitions,
            alarms=len(stack.log.alarms),
            cost_book_usd=str(found.cost_book_usd.quantize(_CENT)),
            cost_ledger_usd=str(found.cost_ledger_usd.quantize(_CENT)),
            virtual_hours=round((stack.clock.time() - start) / 3600, 2),
            wall_seconds=round(wall_seconds, 2),
            leases_per_second=round(len(records) / wall_seconds, 1) if wall_seconds else 0.0,
            digest=self._log.hexdigest(),
            suspects=[*found.orphans, *found.duplicates, *found.stuck, *found.closed_while_billed][:50],
        )


def simulate(*, leases: int, seed: int, faults: str = "none") -> Report:
    """One run in a stack of its own."""
    simulation = Simulation(leases=leases, seed=seed, faults=faults)
    try:
        return simulation.run()
    finally:
        simulation.stack.close()


def describe(report: Report) -> list[str]:
    """The report for people."""
    values: dict[str, Any] = asdict(report)
    return [f"{name:22} {value}" for name, value in values.items() if name != "suspects" or value]
