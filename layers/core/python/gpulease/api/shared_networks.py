"""The shared networks that a lease uses, for its view. They are held by records of their own, which no route shows."""

from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind, resource_id
from gpulease.domain.shared_network import SharedNetwork, shared_network
from gpulease.errors import LeaseNotFound
from gpulease.ports import Ledger


def shared_networks(record: LeaseRecord, ledger: Ledger) -> list[SharedNetwork]:
    """Those that a machine of the lease is a member of now; most leases have none, and then nothing is read."""
    found = []
    for attempt in record.lease.attempts:
        attachment = attempt.attachment
        if attachment is None or not attachment.holder_id or attachment.left or attachment.dropped:
            continue
        try:
            holder = ledger.load(attachment.holder_id)
        except LeaseNotFound:
            continue
        network = shared_network(holder)
        member = resource_id(record.lease.id, ResourceKind.INSTANCE, attempt.number)
        if network is not None and member in holder.lease.members:
            found.append(SharedNetwork(network, len(holder.lease.members) - 1))
    return found
