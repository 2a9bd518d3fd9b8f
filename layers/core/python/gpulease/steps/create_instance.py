"""Write the intent, then send the one create call. Laws 1 and 2 of the design are kept in this file.

Cut off before the intent: nothing happened. Cut off between intent and answer, or the answer lost: the intent is
there, so the next entry sends nothing, and `PollInstance` finds the machine by its marker or closes the intent.
"""

from datetime import datetime, timedelta
from functools import partial
from math import ceil

from gpulease.domain.event import Event
from gpulease.domain.gate import Lane
from gpulease.domain.lease import IN_PROVISION, Attempt, Lease, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import (
    Rate,
    Resource,
    ResourceKind,
    ResourceState,
    marker_for,
    resource_id,
)
from gpulease.domain.spec import LeaseSpec, NetworkScope, PrivateNetwork
from gpulease.domain.transitions import event
from gpulease.domain.user_data import UserDataTooLarge
from gpulease.errors import (
    LeaseConflict,
    LeaseSuperseded,
    ProviderAuthFailed,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps, InstanceRequest, Provider
from gpulease.steps import alarms
from gpulease.steps.agent_access import config_for, data_for, let_in
from gpulease.steps.base import (
    Outcome,
    StepCommand,
    account_identity,
    fail_attempt,
    load_current,
    record_fact,
    with_attempt,
)
from gpulease.steps.cache import take
from gpulease.steps.facts import note_created
from gpulease.steps.observing import take_turn_in
from gpulease.steps.refusals import STALE_AFTER, reason_of
from gpulease.steps.shared_network import network_to_pass, place_of

OUTCOMES = frozenset({"created", "waiting", "unknown", "failed", "superseded"})
FIRST_LOOK_SECONDS = 10
SEARCH_PAUSE_SECONDS = 3
SHUT_PATIENCE = timedelta(seconds=60)
"""A region that does not answer is waited for so long before another offer is tried."""
SHUT_PAUSE_SECONDS = 15
STOOD_STILL = timedelta(seconds=30)


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt = record.lease.attempt
    if attempt is None or attempt.reason is not None:
        return Outcome("failed")
    known = record.resource(resource_id(command.lease_id, ResourceKind.INSTANCE, attempt.number))
    if known is not None:
        return Outcome("created") if known.provider_id else Outcome("unknown", SEARCH_PAUSE_SECONDS)
    without_cache = take(record, attempt, deps)
    if without_cache is not None:
        return without_cache
    record, attempt = _again(command, record, deps)
    provider = deps.providers.get(attempt.offer.provider)
    waiting = _wait_for_turn(record, attempt, provider, deps)
    if waiting is not None:
        return waiting
    network_id = ""
    if _wants_shared_network(record.lease.spec):
        network_id = network_to_pass(record, attempt, place_of(record.lease, attempt, provider), deps)
        record = load_current(command, deps, *IN_PROVISION)
    agent = config_for(record, attempt, deps)
    try:
        user_data = data_for(record, agent, provider, deps)
    except UserDataTooLarge as error:
        deps.ledger.commit(fail_attempt(record, deps.clock.now(), Reason.REJECTED, str(error)))
        return Outcome("failed")
    intent = _intent(record, attempt, provider, deps)
    # First of all: should everything after this be lost, the sweep still looks there.
    deps.sweeps.note_place(intent.account, intent.region)
    late = _with_fresh_deadline(record, attempt, intent.intended_at)
    # The lease's row is always written: a twin may have ended this attempt since it was read.
    lease = late or record.lease.model_copy(update={"updated_at": intent.intended_at})
    try:
        deps.ledger.commit(
            Change(
                lease_id=command.lease_id,
                lease=lease,
                resources=(intent,),
                events=(_asked(intent, attempt),),
                epoch=command.epoch,
            )
        )
    except LeaseConflict:
        # A twin of this step wrote the intent first, or ended the attempt: the create call is its business.
        return Outcome("unknown")
    if agent is not None:
        let_in(record, attempt, agent, deps)
    if deps.clock.now() - intent.intended_at > STALE_AFTER:
        return Outcome("unknown")
    if late is not None:
        record = load_current(command, deps, *IN_PROVISION)
    else:
        record = LeaseRecord(lease.model_copy(update={"version": lease.version + 1}), record.resources)
    return _send(record, attempt, intent, provider, deps, user_data, network_id)


def _again(command: StepCommand, record: LeaseRecord, deps: Deps) -> tuple[LeaseRecord, Attempt]:
    """The record and its attempt as they are after a cache was taken; without a cache nothing is read."""
    attempt = record.lease.attempts[-1]
    if not record.lease.cache_id:
        return record, attempt
    record = load_current(command, deps, *IN_PROVISION)
    if record.lease.attempt is None or record.lease.attempt.number != attempt.number:
        raise LeaseSuperseded(f"{command.lease_id} has another attempt under way")
    return record, record.lease.attempt


def _with_fresh_deadline(record: LeaseRecord, attempt: Attempt, now: datetime) -> Lease | None:
    """The lease with its attempt counted from now, when the workflow stood still since the offer was chosen: a machine
    asked for must have its whole time to boot, or its first hour is paid for nothing. None = it did not."""
    if now - attempt.begun_at < STOOD_STILL:
        return None
    time_to_boot = attempt.ready_deadline - attempt.begun_at
    begun = attempt.model_copy(update={"create_slot_at": now, "ready_deadline": now + time_to_boot})
    return with_attempt(record.lease, begun)


def _wait_for_turn(record: LeaseRecord, attempt: Attempt, provider: Provider, deps: Deps) -> Outcome | None:
    """None = the create call may be sent now; until then no intent is written."""
    now = deps.clock.now()
    shut = deps.providers.shut_for_seconds(provider.account, attempt.offer.region)
    if shut:
        if now - attempt.started_at < SHUT_PATIENCE:
            return Outcome("waiting", min(ceil(shut), SHUT_PAUSE_SECONDS))
        why = f"{provider.name} does not answer in {attempt.offer.region}; nothing was asked for"
        deps.ledger.commit(fail_attempt(record, now, Reason.THROTTLED, why))
        return Outcome("failed")
    turn = take_turn_in(deps, provider, Lane.CHANGE, attempt.create_slot_at)
    if not turn.wait_seconds:
        return None
    if turn.slot != attempt.create_slot_at:
        time_to_boot = attempt.ready_deadline - attempt.begun_at
        queued = attempt.model_copy(update={"create_slot_at": turn.slot, "ready_deadline": turn.slot + time_to_boot})
        lease = with_attempt(record.lease, queued).model_copy(
            update={"waiting_for": f"its turn at {provider.name}, where many are asking", "updated_at": now}
        )
        deps.ledger.commit(Change(lease_id=lease.id, lease=lease, epoch=lease.epoch))
    return Outcome("waiting", turn.wait_seconds)


def _wants_shared_network(spec: LeaseSpec) -> bool:
    return spec.private_network is not PrivateNetwork.NONE and spec.network_scope is NetworkScope.OWNER


def _intent(record: LeaseRecord, attempt: Attempt, provider: Provider, deps: Deps) -> Resource:
    opened = account_identity(provider, deps)
    now = deps.clock.now()
    identity = resource_id(record.lease.id, ResourceKind.INSTANCE, attempt.number)
    offer = attempt.offer
    return Resource(
        id=identity,
        lease_id=record.lease.id,
        attempt=attempt.number,
        kind=ResourceKind.INSTANCE,
        provider=offer.provider,
        account=provider.account,
        account_identity=opened,
        region=offer.region,
        zone=offer.zone,
        marker=marker_for(deps.policy.deployment, identity),
        state=ResourceState.INTENDED,
        plan=offer.plan,
        subkind=offer.kind.value,
        intended_at=now,
        create_sent_at=now,
        billing=provider.billing_rule(ResourceKind.INSTANCE),
        rates=(Rate(since=now, usd_per_hour=offer.price_per_hour_usd),),
    )


def _asked(intent: Resource, attempt: Attempt) -> Event:
    text = f"asking {intent.provider} for {attempt.offer.plan} in {intent.region}"
    return event(intent.lease_id, intent.intended_at, "instance_intended", text, resource_id=intent.id)


def _send(
    record: LeaseRecord,
    attempt: Attempt,
    intent: Resource,
    provider: Provider,
    deps: Deps,
    user_data: bytes,
    network_id: str,
) -> Outcome:
    lease = record.lease
    request = InstanceRequest(
        offer=attempt.offer,
        marker=intent.marker,
        label=f"gpulease-{lease.name}-{lease.id}"[:63],
        user_data=user_data,
        image=lease.spec.image,
        idempotency_token=intent.id,
        network_provider_id=network_id,
        max_price_per_hour_usd=lease.spec.max_price_per_hour_usd,
    )
    try:
        seen = provider.create_instance(request)
    except (ProviderUnavailable, ProviderUnexpected) as error:
        deps.log.warning("create_answer_unclear", lease_id=lease.id, resource_id=intent.id, reason=str(error))
        return Outcome("unknown")
    except (ProviderRejected, ProviderAuthFailed, ProviderThrottled) as error:
        if isinstance(error, ProviderAuthFailed):
            alarms.auth_failed(deps, provider.account, error)
        return _refused(record, intent, error, deps)
    note_created(deps, lease.id, intent.id, seen)
    return Outcome("created", FIRST_LOOK_SECONDS)


def _refused(
    record: LeaseRecord,
    intent: Resource,
    error: ProviderRejected | ProviderAuthFailed | ProviderThrottled,
    deps: Deps,
) -> Outcome:
    """The provider said no: nothing exists, so the intent is closed in the same write that ends the attempt."""
    now = deps.clock.now()
    reason = reason_of(error)
    closed = intent.model_copy(
        update={
            "version": 1,
            "state": ResourceState.RELEASED,
            "released_at": now,
            "release_note": f"refused: {reason}",
        }
    )
    try:
        _end_attempt(record, now, reason, error, closed, deps)
    except (LeaseConflict, LeaseSuperseded):
        # The lease moved on meanwhile. That nothing was created stays a fact, and spares the wait for it to appear.
        record_fact(deps, record.lease.id, intent.id, partial(_close_refused, now=now, note=closed.release_note))
        raise
    return Outcome("failed", wait_seconds=int(error.facts.retry_after_seconds) + 1)


def _end_attempt(
    record: LeaseRecord, now: datetime, reason: Reason, error: ProviderError, closed: Resource, deps: Deps
) -> None:
    try:
        deps.ledger.commit(fail_attempt(record, now, reason, error.facts.message, closed, status=error.facts.status))
    except LeaseConflict:
        # Most often `check_leases` has looked at it during the call, and the answer still holds.
        lease = record.lease
        again = load_current(StepCommand(lease_id=lease.id, epoch=lease.epoch), deps, *IN_PROVISION)
        attempt = again.lease.attempt
        if attempt is None or attempt.number != closed.attempt or attempt.reason is not None:
            raise
        deps.ledger.commit(fail_attempt(again, now, reason, error.facts.message, closed, status=error.facts.status))


def _close_refused(record: LeaseRecord, intent: Resource, *, now: datetime, note: str) -> Change | None:
    if intent.state is ResourceState.RELEASED:
        return None
    closed = intent.model_copy(update={"state": ResourceState.RELEASED, "released_at": now, "release_note": note})
    return Change(lease_id=record.lease.id, resources=(closed,))
