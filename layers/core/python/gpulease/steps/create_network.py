"""Make the lease's private network, after its machine (law 6): a refused machine then leaves no network behind.

A shared one is made by the first of those who join it: the intent has one id whoever writes it, so one write wins.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpulease.domain.lease import IN_PROVISION, Attempt, Lease, LeaseKind, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import may_close_intent
from gpulease.domain.resource import Resource, ResourceKind, ResourceState, marker_for, resource_id
from gpulease.domain.shared_network import shared_network
from gpulease.domain.spec import NetworkScope, PrivateNetwork
from gpulease.domain.transitions import event
from gpulease.errors import (
    LeaseConflict,
    LeaseSuperseded,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps, NetworkRequest, Provider
from gpulease.steps.base import Outcome, StepCommand, account_identity, load_current, record_fact, ref_of, with_attempt
from gpulease.steps.facts import adopt, note_created
from gpulease.steps.network import go_without, network_of
from gpulease.steps.observing import may_change
from gpulease.steps.shared_network import join, pause_before_joining, place_of

OUTCOMES = frozenset({"created", "not_wanted", "waiting", "unsupported", "failed", "superseded"})
SEARCH_PAUSE_SECONDS = 10
TURN_PAUSE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Home:
    """Where the network is recorded: with the lease itself, or with the holder of a shared one."""

    record: LeaseRecord
    network: Resource | None
    attempt: int

    @property
    def shared(self) -> bool:
        return self.record.lease.kind is LeaseKind.NETWORK


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt = record.lease.attempt
    if attempt is None or attempt.reason is not None:
        return Outcome("failed")
    if record.lease.spec.private_network is PrivateNetwork.NONE:
        return Outcome("not_wanted")
    if attempt.attachment is not None and attempt.attachment.dropped:
        return Outcome("not_wanted")
    if attempt.offer.private_network is False:
        why = f"plan {attempt.offer.plan} has no private networking"
        return go_without(record, deps, Reason.NETWORK_UNSUPPORTED, why)
    provider = deps.providers.get(attempt.offer.provider)
    if record.lease.spec.network_scope is NetworkScope.OWNER:
        holder = join(record, attempt, place_of(record.lease, attempt, provider), deps)
        record = _with_deadline(command_record(deps, record), deps)
        if holder is None and not _is_late(record, deps):
            return Outcome("waiting", pause_before_joining(record))
        home = Home(holder or record, shared_network(holder) if holder else None, attempt=1)
    else:
        home = Home(record, network_of(record), attempt.number)
    network = home.network
    if network is None:
        if _is_late(record, deps):
            why = "the private network could not be made in time"
            return go_without(record, deps, Reason.PRIVATE_NETWORK_FAILED, why)
        if not may_change(deps, provider):
            return Outcome("waiting", TURN_PAUSE_SECONDS)
        return _create(record, home, provider, deps)
    if network.state is ResourceState.HELD:
        return Outcome("created")
    if network.state is ResourceState.INTENDED:
        return _search(record, network, provider, deps)
    return Outcome("not_wanted")


def _is_late(record: LeaseRecord, deps: Deps) -> bool:
    attempt = record.lease.attempt
    deadline = attempt.network_deadline if attempt is not None else None
    return deadline is not None and deps.clock.now() >= deadline


def _with_deadline(record: LeaseRecord, deps: Deps) -> LeaseRecord:
    """The record with the moment at which it goes on without a network, written when it is new."""
    attempt, now = record.lease.attempt, deps.clock.now()
    if attempt is None or attempt.network_deadline is not None:
        return record
    lease = _waiting(record.lease, attempt, now, deps)
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, epoch=lease.epoch))
    return command_record(deps, record)


def _waiting(lease: Lease, attempt: Attempt, now: datetime, deps: Deps) -> Lease:
    deadline = attempt.network_deadline or now + timedelta(seconds=deps.policy.attach_deadline_seconds)
    with_deadline = with_attempt(lease, attempt.model_copy(update={"network_deadline": deadline}))
    return with_deadline.model_copy(update={"waiting_for": "its private network", "updated_at": now})


def _create(record: LeaseRecord, home: Home, provider: Provider, deps: Deps) -> Outcome:
    """Write the intent, of which there is one whoever asks, and send the call if it was ours."""
    opened = account_identity(provider, deps)
    now, attempt = deps.clock.now(), record.lease.attempt
    if attempt is None:
        return Outcome("failed")
    lease = home.record.lease
    tries = len(home.record.of_kind(ResourceKind.NETWORK, home.attempt))
    identity = resource_id(lease.id, ResourceKind.NETWORK, home.attempt) + (f".{tries + 1}" if tries else "")
    intent = Resource(
        id=identity,
        lease_id=lease.id,
        attempt=home.attempt,
        kind=ResourceKind.NETWORK,
        provider=provider.name,
        account=provider.account,
        account_identity=opened,
        region=attempt.offer.region,
        marker=marker_for(deps.policy.deployment, identity),
        state=ResourceState.INTENDED,
        intended_at=now,
        create_sent_at=now,
        billing=provider.billing_rule(ResourceKind.NETWORK),
    )
    # A holder's row is left alone: it is written by all who join.
    changed = None if home.shared else _waiting(lease, attempt, now, deps)
    told = event(lease.id, now, "network_intended", f"asking for a private network in {intent.region}")
    deps.sweeps.note_place(intent.account, intent.region)
    try:
        deps.ledger.commit(
            Change(lease_id=lease.id, lease=changed, resources=(intent,), events=(told,), epoch=lease.epoch)
        )
    except LeaseConflict:
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
    except LeaseSuperseded:
        if not home.shared:
            raise
        # The holder came to its end between the two reads: there is a next one to join.
        return Outcome("waiting", pause_before_joining(record))
    try:
        seen = provider.create_network(NetworkRequest(region=intent.region, marker=intent.marker))
    except (ProviderUnavailable, ProviderUnexpected) as error:
        deps.log.warning("create_answer_unclear", lease_id=lease.id, resource_id=intent.id, reason=str(error))
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
    except (ProviderRejected, ProviderThrottled) as error:
        return _refused(command_record(deps, record), intent, error, deps)
    note_created(deps, lease.id, intent.id, seen)
    return Outcome("created")


def command_record(deps: Deps, record: LeaseRecord) -> LeaseRecord:
    """The record as it is now, for the same epoch (raises LeaseSuperseded)."""
    lease = record.lease
    return load_current(StepCommand(lease_id=lease.id, epoch=lease.epoch), deps, *IN_PROVISION)


def _refused(record: LeaseRecord, intent: Resource, error: ProviderRejected | ProviderThrottled, deps: Deps) -> Outcome:
    why = f"the provider refused a private network ({error.reason}: {error.facts.message})"
    note = f"refused: {error.reason}"
    if isinstance(error, ProviderThrottled):
        _close(intent, note, deps)
        return Outcome("waiting", int(error.facts.retry_after_seconds) + 2)
    if intent.lease_id != record.lease.id:
        _close(intent, note, deps)
        return go_without(record, deps, Reason(error.reason), why)
    closed = _closed(record.resource(intent.id) or intent, note, deps)
    return go_without(record, deps, Reason(error.reason), why, closed)


def _closed(intent: Resource, note: str, deps: Deps) -> Resource:
    update = {"state": ResourceState.RELEASED, "released_at": deps.clock.now(), "release_note": note}
    return intent.model_copy(update=update)


def _close(intent: Resource, note: str, deps: Deps) -> None:
    """That nothing exists is a fact, whatever became of the lease or the holder."""

    def change(record: LeaseRecord, stored: Resource) -> Change | None:
        if stored.state is ResourceState.RELEASED or stored.provider_id:
            return None
        return Change(lease_id=record.lease.id, resources=(_closed(stored, note, deps),))

    record_fact(deps, intent.lease_id, intent.id, change)


def _search(record: LeaseRecord, network: Resource, provider: Provider, deps: Deps) -> Outcome:
    """The answer to the create call was lost: find it by its marker, or close the intent after the window."""
    found = provider.find(ref_of(network))
    if found:
        adopt(deps, network, found)
        return Outcome("created")
    now = deps.clock.now()
    timeout, window = provider.capabilities.create_timeout_seconds, provider.visibility_window_seconds
    closable = may_close_intent(network, now, create_timeout_seconds=timeout, window_seconds=window)
    if closable:
        _close(network, "never appeared", deps)
    if _is_late(record, deps):
        return go_without(record, deps, Reason.PRIVATE_NETWORK_FAILED, "the private network never appeared")
    return Outcome("waiting", 1 if closable else SEARCH_PAUSE_SECONDS)
