"""Ask for the attachment, at most every few seconds, until the machine is seen attached: accepted is not attached."""

from datetime import datetime, timedelta

from gpulease.domain.lease import IN_PROVISION, Attachment, Attempt, Lease, Reason
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.spec import NetworkScope
from gpulease.domain.transitions import event
from gpulease.errors import (
    NetworkUnsupported,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of, with_attempt
from gpulease.steps.machine import machine_of, without
from gpulease.steps.network import go_without, network_of
from gpulease.steps.observing import may_change, may_read
from gpulease.steps.shared_network import network_of_member
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"attached", "waiting", "unsupported", "failed", "superseded"})
LOOK_PAUSE_SECONDS = 3
TRY_PAUSE_SECONDS = 8
ASK_AGAIN_AFTER = timedelta(seconds=60)
"""An accepted attach becomes visible within ten seconds (Vultr, measured); then it is asked for again."""
MAX_REFUSALS = 3
"""Unreadable refusals of a ready machine that are taken for "this plan cannot"."""


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _turn(command, deps), deps)


def _turn(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt, machine = record.lease.attempt, machine_of(record)
    if attempt is None or attempt.reason is not None or machine is None:
        return Outcome("failed")
    attachment = attempt.attachment or Attachment()
    if attachment.dropped:
        return Outcome("unsupported")
    if attachment.attached_at is not None:
        return Outcome("attached")
    network = _network(record, attempt, deps)
    if network is None or network.state is not ResourceState.HELD:
        if attachment.holder_id:
            return go_without(record, deps, Reason.PRIVATE_NETWORK_FAILED, "the shared network is gone")
        return Outcome("unsupported")
    now = deps.clock.now()
    provider = deps.providers.get(machine.account)
    if not _is_late(attempt, now) and not may_read(deps, provider):
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    try:
        seen = provider.observe(ref_of(machine))
    except ProviderError as error:
        if _is_late(attempt, now):
            return _give_up(record, deps, str(error))
        raise
    lost = without(record, attempt, machine, seen, deps)
    if lost is not None:
        return Outcome("failed") if lost.what == "failed" else Outcome("waiting", LOOK_PAUSE_SECONDS)
    if isinstance(seen, Observation) and network.provider_id in seen.network_ids:
        return _attached(record, attempt, machine, network, deps)
    if _is_late(attempt, now):
        return _give_up(record, deps, f"asked {attachment.tries} times")
    if not isinstance(seen, Observation) or seen.condition is not Condition.READY:
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    if attachment.accepted_at is not None and now - attachment.accepted_at < ASK_AGAIN_AFTER:
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    if not may_change(deps, provider):
        return Outcome("waiting", LOOK_PAUSE_SECONDS)
    return _ask(record, attempt, machine, network, deps)


def _network(record: LeaseRecord, attempt: Attempt, deps: Deps) -> Resource | None:
    if record.lease.spec.network_scope is NetworkScope.LEASE:
        return network_of(record)
    found = network_of_member(attempt, deps)
    return found[1] if found else None


def _is_late(attempt: Attempt, now: datetime) -> bool:
    return attempt.network_deadline is not None and now >= attempt.network_deadline


def _give_up(record: LeaseRecord, deps: Deps, detail: str) -> Outcome:
    why = f"the machine was not attached in time ({detail})"
    return go_without(record, deps, Reason.PRIVATE_NETWORK_FAILED, why)


def _attached(record: LeaseRecord, attempt: Attempt, machine: Resource, network: Resource, deps: Deps) -> Outcome:
    now = deps.clock.now()
    attachment = attempt.attachment or Attachment()
    lease = _with(record, attempt, attachment.model_copy(update={"attached_at": now}))
    own = network.lease_id == lease.id
    known = network.model_copy(update={"attached_to": machine.id, "status": "attached"})
    how = f"asked {attachment.tries} times" if attachment.tries else "by its create call"
    told = event(
        lease.id,
        now,
        "network_attached",
        f"the private network is attached ({how})",
        resource_id=network.id,
        tries=attachment.tries,
    )
    deps.ledger.commit(
        Change(
            lease_id=lease.id, lease=lease, resources=(known,) if own else (), events=(told,), epoch=record.lease.epoch
        )
    )
    return Outcome("attached")


def _with(record: LeaseRecord, attempt: Attempt, attachment: Attachment) -> Lease:
    return with_attempt(record.lease, attempt.model_copy(update={"attachment": attachment}))


def _ask(record: LeaseRecord, attempt: Attempt, machine: Resource, network: Resource, deps: Deps) -> Outcome:
    provider = deps.providers.get(machine.account)
    attachment = attempt.attachment or Attachment()
    accepted, unclear, refusals, pause = False, False, 0, TRY_PAUSE_SECONDS
    try:
        provider.attach_network(ref_of(machine), ref_of(network))
        accepted, pause = True, LOOK_PAUSE_SECONDS
    except NetworkUnsupported as error:
        why = f"plan {machine.plan} has no private networking ({error.facts.message})"
        return go_without(record, deps, Reason.NETWORK_UNSUPPORTED, why)
    except (ProviderBusy, ProviderUnavailable, ProviderUnexpected) as error:
        unclear = not isinstance(error, ProviderBusy)
        deps.log.info("attach_not_yet", lease_id=record.lease.id, resource_id=network.id, reason=str(error))
    except ProviderRejected as error:
        refusals = 1
        if attachment.refusals + refusals >= MAX_REFUSALS:
            why = f"plan {machine.plan} was refused {MAX_REFUSALS} times ({error.facts.message})"
            return go_without(record, deps, Reason.NETWORK_UNSUPPORTED, why)
    tried = attachment.model_copy(
        update={
            "tries": attachment.tries + 1,
            "refusals": attachment.refusals + refusals,
            "accepted_at": deps.clock.now() if accepted else None,
            "ever_accepted": attachment.ever_accepted or accepted or unclear,
        }
    )
    deps.ledger.commit(Change(lease_id=record.lease.id, lease=_with(record, attempt, tried), epoch=record.lease.epoch))
    return Outcome("waiting", pause)
