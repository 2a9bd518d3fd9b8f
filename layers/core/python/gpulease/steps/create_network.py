"""Make the lease's private network, after its machine (law 6): a refused machine then leaves no network behind."""

from datetime import timedelta

from gpulease.domain.lease import Attempt, LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import may_close_intent
from gpulease.domain.resource import Resource, ResourceKind, ResourceState, marker_for, resource_id
from gpulease.domain.spec import PrivateNetwork
from gpulease.domain.transitions import event
from gpulease.errors import LeaseConflict, ProviderRejected, ProviderThrottled, ProviderUnavailable, ProviderUnexpected
from gpulease.ports import Deps, NetworkRequest, Provider
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of, with_attempt
from gpulease.steps.facts import adopt, note_created
from gpulease.steps.network import go_without, network_of

OUTCOMES = frozenset({"created", "not_wanted", "waiting", "unsupported", "failed", "superseded"})
SEARCH_PAUSE_SECONDS = 10


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PROVISIONING)
    attempt = record.lease.attempt
    if attempt is None or attempt.reason is not None:
        return Outcome("failed")
    if record.lease.spec.private_network is PrivateNetwork.NONE:
        return Outcome("not_wanted")
    provider = deps.providers.get(attempt.offer.provider)
    network = network_of(record)
    if network is None:
        return _create(record, attempt, provider, deps)
    if network.state is ResourceState.HELD:
        return Outcome("created")
    if network.state is ResourceState.INTENDED:
        return _search(record, network, provider, deps)
    return Outcome("not_wanted")


def _create(record: LeaseRecord, attempt: Attempt, provider: Provider, deps: Deps) -> Outcome:
    now = deps.clock.now()
    lease = record.lease
    tries = len(record.of_kind(ResourceKind.NETWORK, attempt.number))
    identity = resource_id(lease.id, ResourceKind.NETWORK, attempt.number) + (f".{tries + 1}" if tries else "")
    intent = Resource(
        id=identity,
        lease_id=lease.id,
        attempt=attempt.number,
        kind=ResourceKind.NETWORK,
        provider=provider.name,
        account=provider.account,
        region=attempt.offer.region,
        marker=marker_for(deps.policy.deployment, identity),
        state=ResourceState.INTENDED,
        intended_at=now,
        create_sent_at=now,
        billing=provider.billing_rule(ResourceKind.NETWORK),
    )
    deadline = attempt.network_deadline or now + timedelta(seconds=deps.policy.attach_deadline_seconds)
    with_deadline = with_attempt(lease, attempt.model_copy(update={"network_deadline": deadline}))
    changed = with_deadline.model_copy(update={"waiting_for": "its private network", "updated_at": now})
    told = event(lease.id, now, "network_intended", f"asking for a private network in {intent.region}")
    deps.sweeps.note_place(intent.account, intent.region)
    try:
        deps.ledger.commit(
            Change(lease_id=lease.id, lease=changed, resources=(intent,), events=(told,), epoch=lease.epoch)
        )
    except LeaseConflict:
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
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
    return load_current(StepCommand(lease_id=lease.id, epoch=lease.epoch), deps, LeaseState.PROVISIONING)


def _refused(record: LeaseRecord, intent: Resource, error: ProviderRejected | ProviderThrottled, deps: Deps) -> Outcome:
    now = deps.clock.now()
    stored = record.resource(intent.id) or intent
    note = f"refused: {error.reason}"
    closed = stored.model_copy(update={"state": ResourceState.RELEASED, "released_at": now, "release_note": note})
    if isinstance(error, ProviderThrottled):
        deps.ledger.commit(Change(lease_id=record.lease.id, resources=(closed,), epoch=record.lease.epoch))
        return Outcome("waiting", int(error.facts.retry_after_seconds) + 2)
    why = f"the provider refused a private network ({error.reason}: {error.facts.message})"
    return go_without(record, deps, Reason(error.reason), why, closed)


def _search(record: LeaseRecord, network: Resource, provider: Provider, deps: Deps) -> Outcome:
    """The answer to the create call was lost: find it by its marker, or close the intent after the window."""
    found = provider.find(ref_of(network))
    if found:
        adopt(deps, network, found)
        return Outcome("created")
    now = deps.clock.now()
    timeout, window = provider.capabilities.create_timeout_seconds, provider.visibility_window_seconds
    if not may_close_intent(network, now, create_timeout_seconds=timeout, window_seconds=window):
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
    closed = network.model_copy(
        update={"state": ResourceState.RELEASED, "released_at": now, "release_note": "never appeared"}
    )
    attempt = record.lease.attempt
    if attempt is not None and attempt.network_deadline is not None and now >= attempt.network_deadline:
        why = "the private network never appeared"
        return go_without(record, deps, Reason.PRIVATE_NETWORK_FAILED, why, closed)
    deps.ledger.commit(Change(lease_id=record.lease.id, resources=(closed,), epoch=record.lease.epoch))
    return Outcome("waiting", 1)
