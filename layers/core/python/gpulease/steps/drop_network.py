"""The lease goes on without its private network: mark the network and start giving it back beside this workflow."""

from gpulease.domain.lease import LeaseState
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import to_release
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.network import network_of
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"dropped", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PROVISIONING)
    network = network_of(record)
    if network is None or network.state is ResourceState.RELEASED:
        return Outcome("dropped")
    marked = to_release(network, deps.clock.now())
    if marked is not network:
        deps.ledger.commit(Change(lease_id=record.lease.id, resources=(marked,), epoch=command.epoch))
    start_release(record, deps, f"n{network.attempt}")
    return Outcome("dropped")
