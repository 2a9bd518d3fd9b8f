"""Give the machine of a lease that is being paused back, where a stopped one would be billed in full; its cache stays.

`release` works beside, as for a failed attempt; `PollStopped` waits until all of it is proven gone.
"""

from gpulease.domain.lease import LeaseState
from gpulease.domain.pause import keep_cache
from gpulease.domain.resource import ResourceState
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"kept", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PAUSING)
    change = keep_cache(record, deps.clock.now())
    if change is not None:
        deps.ledger.commit(change)
        record = deps.ledger.load(command.lease_id)
    if any(resource.state is not ResourceState.RELEASED for resource in record.resources):
        # A doubled start is harmless by its name; one that was lost is mended by the next turn.
        start_release(record, deps, f"a{len(record.lease.attempts)}")
    return Outcome("kept")
