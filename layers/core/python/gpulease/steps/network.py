"""What the network steps share: which network, and how a lease goes on without one."""

from gpulease.domain.lease import Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.spec import PrivateNetwork
from gpulease.domain.transitions import event
from gpulease.errors import LeaseSuperseded
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, fail_attempt


def network_of(record: LeaseRecord) -> Resource | None:
    """The current attempt's network: the newest one that is not closed; a dropped one counts, so none is made again."""
    attempt = record.lease.attempt
    if attempt is None:
        return None
    networks = record.of_kind(ResourceKind.NETWORK, attempt.number)
    return next((n for n in reversed(networks) if not _without_effect(n)), None)


def _without_effect(network: Resource) -> bool:
    """Closed without ever having existed: another one may be made."""
    return network.state is ResourceState.RELEASED and network.provider_id == ""


def go_without(record: LeaseRecord, deps: Deps, reason: Reason, why: str, *resources: Resource) -> Outcome:
    """No private network: a warning and on (`preferred`), or the end of this attempt (`required`)."""
    lease, now = record.lease, deps.clock.now()
    if lease.attempt is None:
        raise LeaseSuperseded(f"{lease.id} has no attempt under way")
    if lease.spec.private_network is PrivateNetwork.REQUIRED:
        deps.ledger.commit(fail_attempt(record, now, reason, why, *resources))
        return Outcome("failed")
    warning = f"no private network: {why}"
    if warning in lease.warnings and not resources:
        return Outcome("unsupported")
    warned = lease.model_copy(update={"warnings": tuple(dict.fromkeys((*lease.warnings, warning))), "updated_at": now})
    told = event(lease.id, now, "network_dropped", warning, "warning")
    deps.ledger.commit(Change(lease_id=lease.id, lease=warned, resources=resources, events=(told,), epoch=lease.epoch))
    return Outcome("unsupported")
