"""Wait until the provider shows a cache's volume as usable; then the cache is."""

from datetime import timedelta

from gpulease.domain.cache import next_check, volume_of
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import ABSENCES_NEEDED
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.transitions import event, moved
from gpulease.errors import ProviderAuthFailed
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of
from gpulease.steps.create_volume import give_up
from gpulease.steps.observing import may_read
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"available", "waiting", "failed", "superseded"})
PAUSE_SECONDS = 5
PATIENT_AFTER = timedelta(minutes=2)
PATIENT_PAUSE_SECONDS = 30
GIVE_UP_AFTER = timedelta(minutes=60)
"""Seconds as a rule; a client of Vultr's own allows 60 minutes."""


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _look(command, deps), deps)


def _look(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PROVISIONING, LeaseState.RUNNING)
    if record.lease.state is LeaseState.RUNNING:
        return Outcome("available")
    volume = volume_of(record)
    if volume is None or volume.state is not ResourceState.HELD:
        # It was closed meanwhile, or its id is not known: the first step knows what to do about that.
        return Outcome("failed") if volume is None else Outcome("waiting", PAUSE_SECONDS)
    provider = deps.providers.get(volume.account)
    age = deps.clock.now() - (volume.held_at or volume.intended_at)
    pause = PAUSE_SECONDS if age < PATIENT_AFTER else PATIENT_PAUSE_SECONDS
    if not may_read(deps, provider):
        return Outcome("waiting", pause)
    try:
        seen = provider.observe(ref_of(volume))
    except ProviderAuthFailed as error:
        alarms.auth_failed(deps, volume.account, error)
        return Outcome("waiting", PATIENT_PAUSE_SECONDS)
    if isinstance(seen, Absent):
        return _absent(record, volume, provider, deps) or Outcome("waiting", pause)
    if seen.condition is Condition.READY:
        return _available(record, volume, seen, deps)
    if seen.condition is Condition.FAILED:
        return give_up(record, Reason.CACHE_FAILED, f"the provider shows its volume as {seen.words}", deps)
    if age >= GIVE_UP_AFTER:
        why = f"its volume was not usable after {GIVE_UP_AFTER.seconds // 60} minutes; last state: {seen.words}"
        return give_up(record, Reason.CACHE_FAILED, why, deps)
    return Outcome("waiting", pause)


def _available(record: LeaseRecord, volume: Resource, seen: Observation, deps: Deps) -> Outcome:
    now = deps.clock.now()
    ready = moved(record.lease, LeaseState.RUNNING, now, running_at=now, ready_at=now, waiting_for="", restarts=0)
    ready = ready.model_copy(update={"next_check_at": next_check(ready, now)})
    known = volume.model_copy(update={"status": seen.words, "absences": 0, "size_gb": seen.size_gb or volume.size_gb})
    told = event(ready.id, now, "cache_available", f"cache {ready.name} is available", resource_id=volume.id)
    deps.ledger.commit(Change(ready.id, lease=ready, resources=(known,), events=(told,), epoch=ready.epoch))
    return Outcome("available")


def _absent(record: LeaseRecord, volume: Resource, provider: Provider, deps: Deps) -> Outcome | None:
    """None = look again. Fresh things may be missing from reads for a while (case C04)."""
    window = timedelta(seconds=provider.visibility_window_seconds)
    if deps.clock.now() < (volume.held_at or volume.intended_at) + window:
        return None
    if volume.absences + 1 < ABSENCES_NEEDED or provider.find(ref_of(volume)):
        counted = volume.model_copy(update={"absences": volume.absences + 1})
        deps.ledger.commit(Change(record.lease.id, resources=(counted,), epoch=record.lease.epoch))
        return None
    return give_up(record, Reason.LOST, "its volume is gone at the provider before it was usable", deps)
