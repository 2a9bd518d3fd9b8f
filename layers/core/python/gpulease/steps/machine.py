"""Watching one machine until it is ready: shared by `PollInstance` and `PollReadiness`.

What is decided here is decided by what the provider shows (law 7), and a deadline that has passed is acted on even when
the provider does not answer: giving back needs no permission of a broken API.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from gpulease.domain.event import Fact
from gpulease.domain.lease import Attempt, LeaseState, Reason
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import ABSENCES_NEEDED, may_close_intent
from gpulease.domain.resource import CREATED, Resource, ResourceKind, ResourceState, resource_id
from gpulease.domain.transitions import event
from gpulease.errors import ProviderAuthFailed, ProviderError, ProviderThrottled
from gpulease.ports import Deps
from gpulease.steps import alarms
from gpulease.steps.base import LOCKED_OUT, fail_attempt, ref_of, waiting_for
from gpulease.steps.facts import adopt
from gpulease.steps.observing import find, observe, throttled_pause_seconds


@dataclass(frozen=True, slots=True)
class Seen:
    """`ready`: `observation` is set. `waiting`: look again. `failed`: the attempt's reason has been written."""

    what: Literal["ready", "waiting", "failed"]
    observation: Observation | None = None
    wait_seconds: int = 0
    """Not before; 0 = as usual."""


NOT_NOW_SECONDS = 2
AUTH_PAUSE_SECONDS = 30
THROTTLED_GRACE = timedelta(minutes=5)
"""How much longer than its deadline a machine may take that could not be read because of the account's rate."""


def poll_pause_seconds(attempt: Attempt, machine: Resource, deps: Deps) -> int:
    """Pause before the next look, by how long this kind of machine usually takes (Vultr: VM 30 to 260 s, bare metal
    many minutes, up to 40). A VM's turn is short, so that ready is noticed within five seconds, unless its provider
    has news more seldom (AWS makes its status checks once a minute)."""
    every = deps.providers.get(machine.account).capabilities.look_every_seconds
    age = (deps.clock.now() - attempt.begun_at).total_seconds()
    if attempt.offer.kind is PlanKind.BARE_METAL:
        return 120 if age < 600 else 60
    return every if age < 300 else max(every, 10)


def machine_of(record: LeaseRecord) -> Resource | None:
    attempt = record.lease.attempt
    if attempt is None:
        return None
    return record.resource(resource_id(record.lease.id, ResourceKind.INSTANCE, attempt.number))


def look(record: LeaseRecord, attempt: Attempt, machine: Resource, deps: Deps) -> Seen:
    """Read the machine once and write down what is new about it."""
    now = deps.clock.now()
    provider = deps.providers.get(machine.account)
    late = now >= attempt.ready_deadline
    try:
        if late and machine.provider_id:
            # What is decided now ends the attempt: no shared list, which may be a moment old.
            seen: Observation | Absent | None = provider.observe(ref_of(machine))
        else:
            seen = observe(deps, machine) if machine.provider_id else _search(machine, deps)
    except ProviderAuthFailed as error:
        # Nothing is known of the machine and nothing could be done about it: its deadline waits for the key.
        return _locked_out(record, machine, error, deps)
    except ProviderThrottled as error:
        if now < attempt.ready_deadline + THROTTLED_GRACE:
            return Seen("waiting", wait_seconds=throttled_pause_seconds(error, machine.id))
        return _late(record, attempt, machine, deps, f"last answer of the provider: {error}")
    except ProviderError as error:
        if late:
            return _late(record, attempt, machine, deps, f"last answer of the provider: {error}")
        raise
    if seen is None:
        return Seen("waiting", wait_seconds=NOT_NOW_SECONDS)
    lost = without(record, attempt, machine, seen, deps)
    if lost is not None or isinstance(seen, Absent):
        return lost or Seen("waiting")
    _note(record, machine, seen, deps)
    if seen.condition is Condition.READY:
        return Seen("ready", seen)
    if now >= attempt.ready_deadline:
        return _late(record, attempt, machine, deps, f"last state: {seen.words}")
    return Seen("waiting", seen)


def without(
    record: LeaseRecord, attempt: Attempt, machine: Resource, seen: Observation | Absent, deps: Deps
) -> Seen | None:
    """What to do about a machine that is missing or broken at the provider; None = it is neither."""
    if isinstance(seen, Absent):
        return _absent(record, attempt, machine, seen, deps)
    if seen.condition is Condition.FAILED:
        why = f"the provider shows it as {seen.words}"
        reason = reason_told(seen.reason, Reason.BOOT_FAILED)
        deps.ledger.commit(fail_attempt(record, deps.clock.now(), reason, why))
        return Seen("failed")
    return None


def reason_told(told: str, otherwise: Reason) -> Reason:
    """What the provider told as the reason, if it told one that we know."""
    return Reason(told) if told in set(Reason) else otherwise


def _search(machine: Resource, deps: Deps) -> Absent | None:
    """Look for a machine whose id we never got. None = come again: found and written down, or not now."""
    found = find(deps, machine)
    if found is None:
        return None
    if not found:
        return Absent("by_marker")
    adopt(deps, machine, found)
    return None


def _locked_out(record: LeaseRecord, machine: Resource, error: ProviderAuthFailed, deps: Deps) -> Seen:
    alarms.auth_failed(deps, machine.account, error)
    now = deps.clock.now()
    told = waiting_for(record, now, f"{machine.provider} {LOCKED_OUT} of account {machine.account} again")
    if told is not None:
        text = f"authentication failed at {machine.provider}; nothing is concluded about {machine.provider_id}"
        facts: dict[str, Fact] = {
            "provider": machine.provider,
            "region": machine.region,
            "status": error.facts.status,
        }
        note = event(
            record.lease.id, now, "auth_failed", text, "error", resource_id=machine.id, reason=error.reason, **facts
        )
        deps.ledger.commit(replace(told, events=(note,)))
    return Seen("waiting", wait_seconds=AUTH_PAUSE_SECONDS)


def _note(record: LeaseRecord, machine: Resource, seen: Observation, deps: Deps) -> None:
    """Keep what is shown of the machine up to date. Skipped when nothing changed: a write costs money."""
    # While it is only starting again the provider may still show the address that it had before (C40).
    shown = seen.address if record.lease.state is LeaseState.PROVISIONING or seen.condition is Condition.READY else ""
    address = shown or machine.address
    known = (machine.status, machine.address, machine.absences) == (seen.words, address, 0)
    if known and LOCKED_OUT not in record.lease.waiting_for:
        return
    now = deps.clock.now()
    noted = machine.model_copy(update={"status": seen.words, "address": address, "absences": 0})
    told = event(record.lease.id, now, "instance_state", f"the provider shows {seen.words}", resource_id=machine.id)
    text = waiting_for(record, now, f"the machine to become ready ({seen.words})")
    deps.ledger.commit(
        Change(
            lease_id=record.lease.id,
            lease=text.lease if text else None,
            resources=(noted,),
            events=(told,),
            epoch=record.lease.epoch,
        )
    )


def _absent(record: LeaseRecord, attempt: Attempt, machine: Resource, seen: Absent, deps: Deps) -> Seen:
    provider, now = deps.providers.get(machine.account), deps.clock.now()
    if not machine.provider_id:
        window = provider.visibility_window_seconds
        timeout = provider.capabilities.create_timeout_seconds
        if not may_close_intent(machine, now, create_timeout_seconds=timeout, window_seconds=window):
            return Seen("waiting")
        closed = machine.model_copy(
            update={"state": ResourceState.RELEASED, "released_at": now, "release_note": "never appeared"}
        )
        detail = "the answer to the create call was lost, and no machine with its marker appeared"
        deps.ledger.commit(fail_attempt(record, now, Reason.NEVER_APPEARED, detail, closed))
        return Seen("failed")
    reason = reason_told(seen.reason, Reason.INTERRUPTED if attempt.offer.spot else Reason.LOST)
    if seen.ended:
        deps.ledger.commit(fail_attempt(record, now, reason, f"the provider shows that it ended: {seen.how}"))
        return Seen("failed")
    visible_by = (machine.held_at or machine.intended_at) + timedelta(seconds=provider.visibility_window_seconds)
    if now < visible_by:
        # Fresh things may be missing from reads for a while (case C04).
        return Seen("waiting")
    if machine.absences + 1 < ABSENCES_NEEDED or provider.find(ref_of(machine)):
        counted = machine.model_copy(update={"absences": machine.absences + 1})
        deps.ledger.commit(Change(lease_id=record.lease.id, resources=(counted,), epoch=record.lease.epoch))
        return Seen("waiting")
    once_seen = machine.status != CREATED
    detail = "the machine is gone at the provider" if once_seen else "the machine never became visible"
    deps.ledger.commit(fail_attempt(record, now, reason, detail))
    return Seen("failed")


def _late(record: LeaseRecord, attempt: Attempt, machine: Resource, deps: Deps, detail: str) -> Seen:
    minutes = round((attempt.ready_deadline - attempt.begun_at).total_seconds() / 60)
    text = f"not ready after {minutes} minutes; {detail}"
    deps.ledger.commit(fail_attempt(record, deps.clock.now(), Reason.NOT_READY_IN_TIME, text))
    return Seen("failed")
