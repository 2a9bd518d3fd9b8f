"""What becomes of a lease, or of a cache, while its deployment is being drained (`gpulease drain`).

Invariant: whoever has written one, or is about to begin an attempt or to ask for a volume for it, reads the switch
after that write. So what is accepted at the moment of the switch is ended by the request that made it, by whoever put
the switch on and lists what is open, or by its own workflow before anything is asked of a provider. A cache's volume
that was asked for before is its user's, and is seen to its end.
"""

from gpulease.domain.lease import LeaseState, Reason, execution_name
from gpulease.domain.record import LeaseRecord
from gpulease.domain.transitions import cancel
from gpulease.ports import Deps

DETAIL = "the deployment is being drained"


def end_while_draining(record: LeaseRecord, deps: Deps) -> bool:
    """End the lease, or the cache, if the deployment is being drained; whether it is. Raises LeaseConflict,
    LeaseSuperseded when somebody else has changed it meanwhile, and starts nothing then."""
    if not deps.drains.load().on:
        return False
    lease = record.lease
    if lease.state in (LeaseState.RELEASING, LeaseState.RELEASED):
        return True
    deps.ledger.commit(cancel(record, now=deps.clock.now(), reason=Reason.USER, detail=DETAIL))
    epoch = lease.epoch + 1
    # Should this be lost, check_leases starts it from the ledger.
    deps.workflows.start("release", execution_name(lease.id, "release", epoch), lease.id, epoch)
    return True
