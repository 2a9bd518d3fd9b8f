"""Several looks within one call, where the pause between them is short.

On Lambda a wait of some seconds costs less than a turn of the state machine, which is three transitions. Invariants:
each look is a whole turn that reads the ledger anew, so a cancel is seen by the next look, and a call that is cut off
while it waits is one that was cut off between two turns; a call ends in good time before its function's time-out;
however much is under way, few calls wait at the same time, since an AWS account may begin with ten of them at once.
Where nobody may wait (one computer, simulations) the first look is the only one.
"""

from collections.abc import Callable

from gpulease.errors import LedgerUnavailable
from gpulease.ports import Deps
from gpulease.steps.base import Outcome

LONGEST_PAUSE_SECONDS = 10
"""Half of where a wait at 256 MB costs as much as a turn: three transitions at
0.000025 USD buy 22 s at 0.25 GB and 0.0000133334 USD."""
CALLS_AT_ONCE = 5
QUEUE = "calls-that-wait"


def look_again(look: Callable[[], Outcome], deps: Deps, *, again: str = "waiting") -> Outcome:
    """Look until there is another outcome than `again`, or the pause is long, or time is up; the last outcome."""
    began = deps.clock.now()
    outcome = look()
    most = deps.waits.most_seconds
    if not most or not _may_stay(outcome, again) or not _is_our_turn(deps, most):
        return outcome
    while _may_stay(outcome, again):
        pause = max(1, outcome.wait_seconds)
        if (deps.clock.now() - began).total_seconds() + pause > most:
            break
        deps.waits.sleep(pause)
        outcome = look()
    return outcome


def _may_stay(outcome: Outcome, again: str) -> bool:
    return outcome.outcome == again and outcome.may_stay and outcome.wait_seconds <= LONGEST_PAUSE_SECONDS


def _is_our_turn(deps: Deps, most_seconds: float) -> bool:
    """One call begins to wait per fifth of the longest wait, so that at most five do."""
    try:
        slot = deps.shared.reserve(QUEUE, deps.clock.now(), most_seconds / CALLS_AT_ONCE, 0.0)
    except LedgerUnavailable:
        return False
    return slot is not None
