"""Make a cache's volume: write the intent, then send the one create call; laws 1 and 2 as for machines and networks."""

from datetime import timedelta

from gpulease.domain.cache import per_hour, spec_of, volume_of
from gpulease.domain.lease import Lease, LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import may_close_intent
from gpulease.domain.resource import Rate, Resource, ResourceKind, ResourceState, marker_for, resource_id
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY, cancel, event, moved
from gpulease.draining import end_while_draining
from gpulease.errors import (
    InputInvalid,
    LeaseConflict,
    ProviderAuthFailed,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps, Provider, VolumeRequest
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, account_identity, load_current, record_fact, ref_of
from gpulease.steps.facts import adopt, note_created
from gpulease.steps.observing import may_change, throttled_pause_seconds
from gpulease.steps.refusals import STALE_AFTER, reason_of
from gpulease.steps.starting import start_release

OUTCOMES = frozenset({"created", "waiting", "failed", "superseded"})
SEARCH_PAUSE_SECONDS = 10
TURN_PAUSE_SECONDS = 3
GIVE_UP_AFTER = timedelta(minutes=30)
"""Of asking: throttled, or created and never seen, again and again."""


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.REQUESTED, LeaseState.PROVISIONING, LeaseState.RUNNING)
    if record.lease.state is LeaseState.RUNNING:
        return Outcome("created")
    provider = deps.providers.get(spec_of(record.lease).account)
    volume = volume_of(record)
    if volume is not None and volume.state is ResourceState.HELD:
        return Outcome("created")
    if volume is not None:
        return _search(record, volume, provider, deps)
    if end_while_draining(record, deps):
        return Outcome("superseded")
    if deps.clock.now() - record.lease.created_at >= GIVE_UP_AFTER:
        return give_up(record, Reason.NEVER_APPEARED, "the provider did not make a volume in time", deps)
    if not may_change(deps, provider):
        return Outcome("waiting", TURN_PAUSE_SECONDS)
    return _create(record, provider, deps)


def give_up(record: LeaseRecord, reason: Reason, why: str, deps: Deps) -> Outcome:
    """End a cache that could not be made; its owner is told why, and what may exist is given back."""
    deps.ledger.commit(cancel(record, now=deps.clock.now(), reason=reason, detail=why[:500]))
    start_release(deps.ledger.load(record.lease.id), deps)
    return Outcome("failed")


def _create(record: LeaseRecord, provider: Provider, deps: Deps) -> Outcome:
    spec, lease = spec_of(record.lease), record.lease
    try:
        price = provider.volume_price_per_month(spec.region, spec.size_gb, spec.throughput_mibps)
    except InputInvalid as error:
        return give_up(record, Reason.REJECTED, str(error), deps)
    opened = account_identity(provider, deps)
    now = deps.clock.now()
    number = len(record.of_kind(ResourceKind.VOLUME)) + 1
    identity = resource_id(lease.id, ResourceKind.VOLUME, number)
    intent = Resource(
        id=identity,
        lease_id=lease.id,
        attempt=number,
        kind=ResourceKind.VOLUME,
        provider=provider.name,
        account=provider.account,
        account_identity=opened,
        region=spec.region,
        zone=spec.zone,
        marker=marker_for(deps.policy.deployment, identity),
        state=ResourceState.INTENDED,
        intended_at=now,
        create_sent_at=now,
        billing=provider.billing_rule(ResourceKind.VOLUME),
        rates=(Rate(since=now, usd_per_hour=per_hour(price)),),
        size_gb=spec.size_gb,
    )
    # First of all: should everything after this be lost, the sweep still looks there.
    deps.sweeps.note_place(intent.account, intent.region)
    told = event(lease.id, now, "volume_intended", f"asking {provider.name} for {spec.size_gb} GB in {spec.region}")
    try:
        deps.ledger.commit(
            Change(lease.id, lease=_under_way(lease, deps), resources=(intent,), events=(told,), epoch=lease.epoch)
        )
    except LeaseConflict:
        # A twin of this step wrote the intent first: the create call is its business.
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
    if deps.clock.now() - now > STALE_AFTER:
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
    return _send(intent, spec.zone, lease, provider, deps)


def _under_way(lease: Lease, deps: Deps) -> Lease:
    now = deps.clock.now()
    return moved(
        lease, LeaseState.PROVISIONING, now, waiting_for="its volume", next_check_at=now + CHECK_WORKFLOW_EVERY
    )


def _send(intent: Resource, zone: str, lease: Lease, provider: Provider, deps: Deps) -> Outcome:
    request = VolumeRequest(
        region=intent.region,
        size_gb=intent.size_gb,
        marker=intent.marker,
        label=f"gpulease-{lease.name}"[:63],
        zone=zone,
        idempotency_token=intent.id,
        throughput_mibps=spec_of(lease).throughput_mibps,
    )
    try:
        seen = provider.create_volume(request)
    except (ProviderUnavailable, ProviderUnexpected) as error:
        deps.log.warning("create_answer_unclear", lease_id=lease.id, resource_id=intent.id, reason=str(error))
        return Outcome("waiting", SEARCH_PAUSE_SECONDS)
    except ProviderThrottled as error:
        _close(intent, "refused: throttled", deps)
        return Outcome("waiting", throttled_pause_seconds(error, lease.id))
    except (ProviderRejected, ProviderAuthFailed) as error:
        if isinstance(error, ProviderAuthFailed):
            alarms.auth_failed(deps, provider.account, error)
        return _refused(intent, lease, error, deps)
    note_created(deps, lease.id, intent.id, seen)
    return Outcome("created")


def _refused(intent: Resource, lease: Lease, error: ProviderRejected | ProviderAuthFailed, deps: Deps) -> Outcome:
    """The provider said no: that nothing exists is a fact, whatever becomes of the cache."""
    reason = reason_of(error)
    _close(intent, f"refused: {reason}", deps)
    record = load_current(StepCommand(lease_id=lease.id, epoch=lease.epoch), deps, LeaseState.PROVISIONING)
    return give_up(record, reason, error.facts.message, deps)


def _close(intent: Resource, note: str, deps: Deps) -> None:
    def change(record: LeaseRecord, stored: Resource) -> Change | None:
        if stored.state is ResourceState.RELEASED or stored.provider_id:
            return None
        update = {"state": ResourceState.RELEASED, "released_at": deps.clock.now(), "release_note": note}
        return Change(lease_id=record.lease.id, resources=(stored.model_copy(update=update),))

    record_fact(deps, intent.lease_id, intent.id, change)


def _search(record: LeaseRecord, volume: Resource, provider: Provider, deps: Deps) -> Outcome:
    """The answer to the create call was lost: find it by its marker, or close the intent after the window."""
    try:
        found = provider.find(ref_of(volume))
    except ProviderAuthFailed as error:
        # Nothing is known of the volume: it waits for the key.
        alarms.auth_failed(deps, volume.account, error)
        return Outcome("waiting", 30)
    if found:
        adopt(deps, volume, found)
        return Outcome("created")
    timeout, window = provider.capabilities.create_timeout_seconds, provider.visibility_window_seconds
    if may_close_intent(volume, deps.clock.now(), create_timeout_seconds=timeout, window_seconds=window):
        _close(volume, "never appeared", deps)
        return Outcome("waiting", 1)
    return Outcome("waiting", SEARCH_PAUSE_SECONDS)
