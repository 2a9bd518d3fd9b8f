"""The lease goes on without its private network: mark the network and start giving it back beside this workflow."""

from gpulease.domain.lease import IN_PROVISION, Attachment, Attempt
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import to_release
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current, with_attempt
from gpulease.steps.network import network_of
from gpulease.steps.shared_network import leave_unused
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"dropped", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt = record.lease.attempt
    if attempt is not None and attempt.attachment is not None and attempt.attachment.holder_id:
        return _leave(record, attempt, attempt.attachment, deps)
    network = network_of(record)
    if network is None or network.state is ResourceState.RELEASED:
        return Outcome("dropped")
    marked = to_release(network, deps.clock.now())
    if marked is not network:
        deps.ledger.commit(Change(lease_id=record.lease.id, resources=(marked,), epoch=command.epoch))
    start_release(record, deps, f"n{network.attempt}")
    return Outcome("dropped")


def _leave(record: LeaseRecord, attempt: Attempt, attachment: Attachment, deps: Deps) -> Outcome:
    """A shared network stays for the others; what becomes of it is decided where the last one leaves."""
    if not attachment.dropped:
        dropped = attempt.model_copy(update={"attachment": attachment.model_copy(update={"dropped": True})})
        lease = with_attempt(record.lease, dropped)
        deps.ledger.commit(Change(lease_id=lease.id, lease=lease, epoch=lease.epoch))
        record = deps.ledger.load(lease.id)
    leave_unused(record, deps)
    return Outcome("dropped")
