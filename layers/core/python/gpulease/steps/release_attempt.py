"""Mark what a failed attempt left, start giving it back beside this workflow, and say whether to try another offer."""

from gpulease.domain.lease import IN_PROVISION, Reason
from gpulease.domain.record import Change
from gpulease.domain.selection import may_try_next
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, to_release
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current, with_attempt
from gpulease.steps.cache import leave_untouched
from gpulease.steps.shared_network import leave_unused
from gpulease.steps.starting import start_release

THROTTLED_PAUSE_SECONDS = 5
"""The account's queue does the rest."""
OUTCOMES = frozenset({"next", "give_up", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    lease = record.lease
    if not lease.attempts:
        return Outcome("next")
    attempt = lease.attempts[-1]
    if attempt.open and attempt.reason is None:
        # A late or doubled run: this attempt has not failed.
        return Outcome("next")
    left = [r for r in record.resources if r.attempt == attempt.number and r.released_at is None]
    if attempt.open:
        now = deps.clock.now()
        ended = with_attempt(lease, attempt.model_copy(update={"ended_at": now}))
        marked = tuple(m for r in left if (m := to_release(r, now)) is not r)
        ended = ended.model_copy(update={"updated_at": now, "next_check_at": now + CHECK_WORKFLOW_EVERY})
        deps.ledger.commit(Change(lease_id=lease.id, lease=ended, resources=marked, epoch=command.epoch))
    if left:
        start_release(record, deps, f"a{attempt.number}")
    # A machine that was refused is gone already, and no release looks after it.
    leave_unused(deps.ledger.load(lease.id), deps)
    if attempt.volume is not None:
        leave_untouched(deps.ledger.load(lease.id), deps)
    if not may_try_next(lease.spec, attempt.reason):
        return Outcome("give_up")
    return Outcome("next", THROTTLED_PAUSE_SECONDS if attempt.reason is Reason.THROTTLED else 1)
