"""Nothing of the machine's compute is billed any more: say so, and what still is."""

from gpulease.domain.lease import LeaseState
from gpulease.domain.pause import is_paused_in_fact, paused
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.pausing import paused_text

OUTCOMES = frozenset({"paused", "not_yet", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PAUSING, LeaseState.PAUSED)
    if record.lease.state is LeaseState.PAUSED:
        return Outcome("paused")
    if not is_paused_in_fact(record):
        return Outcome("not_yet", 5)
    deps.ledger.commit(paused(record, deps.clock.now(), paused_text(record, deps)))
    return Outcome("paused")
