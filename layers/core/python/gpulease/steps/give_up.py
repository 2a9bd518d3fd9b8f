"""No offer is left, or a failure that no other offer mends: end the lease with the reason that tells the user most."""

from gpulease.domain.lease import LeaseState
from gpulease.domain.selection import reason_to_give_up
from gpulease.domain.transitions import cancel
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"given_up", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.REQUESTED, LeaseState.PROVISIONING)
    reason, detail = reason_to_give_up(record.lease)
    deps.ledger.commit(cancel(record, now=deps.clock.now(), reason=reason, detail=detail))
    # Should this be where the process dies, `check_leases` finds a releasing lease without a workflow.
    start_release(deps.ledger.load(command.lease_id), deps)
    return Outcome("given_up")
