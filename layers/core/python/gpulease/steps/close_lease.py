"""Everything of the lease is proven gone: close it. Does nothing for the release of a single attempt or network."""

from gpulease.domain.cache import has_left_all
from gpulease.domain.lease import LeaseState
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import event, moved, to_release
from gpulease.ports import Deps
from gpulease.steps.agent_access import shut_out
from gpulease.steps.base import Outcome, StepCommand, load_current

OUTCOMES = frozenset({"closed", "not_yet", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps)
    lease = record.lease
    if lease.state is not LeaseState.RELEASING:
        return Outcome("closed")
    now = deps.clock.now()
    left = [resource for resource in record.resources if resource.state is not ResourceState.RELEASED]
    if left:
        marked = tuple(m for r in left if (m := to_release(r, now)) is not r)
        if marked:
            deps.ledger.commit(Change(lease_id=lease.id, resources=marked, epoch=command.epoch))
        return Outcome("not_yet", 5)
    if not has_left_all(lease):
        # A cache still counts a machine of it: its volume has not been seen free.
        return Outcome("not_yet", 5)
    shut_out(lease.id, deps)
    closed = moved(lease, LeaseState.RELEASED, now, released_at=now, waiting_for="", next_check_at=None)
    text = f"{lease.name} is released ({lease.reason}): everything is proven gone"
    told = event(lease.id, now, "released", text, reason=str(lease.reason))
    deps.ledger.commit(Change(lease_id=lease.id, lease=closed, events=(told,), epoch=command.epoch))
    return Outcome("closed")
