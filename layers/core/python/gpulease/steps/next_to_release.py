"""What to give back next; a pure rule over the ledger says it (`domain/release.py`).

While its agent saves the cache a machine's turn has not come; each look here asks how that stands (`steps/saving.py`).
"""

from datetime import timedelta

from gpulease.domain.cache import to_leave
from gpulease.domain.lease import LeaseState
from gpulease.domain.release import next_to_release
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.cache import leave_untouched
from gpulease.steps.saving import let_save
from gpulease.steps.shared_network import leave_unused
from gpulease.steps.starting import go_on, start_release

OUTCOMES = frozenset({"instance", "volume", "network", "cache", "none", "waiting", "handed_over", "superseded"})
HAND_OVER_AFTER = timedelta(days=1)
"""With pauses of four minutes about 5,000 history events, far below the service's limit of 25,000."""


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = let_save(load_current(command, deps), deps)
    now = deps.clock.now()
    if command.started_at is not None and now - command.started_at > HAND_OVER_AFTER:
        if record.lease.state is LeaseState.RELEASING:
            go_on(record, "release", deps)
        else:
            # Beside a lease that lives, for a failed attempt or a dropped network: nobody asks for it by name.
            start_release(record, deps, f"h{int(now.timestamp())}")
        return Outcome("handed_over")
    todo = next_to_release(record, now)
    if todo.cache:
        return Outcome("cache")
    if todo.resource is not None:
        return Outcome(todo.resource.kind.value)
    leave_unused(record, deps)
    if to_leave(record):
        leave_untouched(load_current(command, deps), deps)
    return Outcome("waiting", todo.wait_seconds) if todo.wait_seconds else Outcome("none")
