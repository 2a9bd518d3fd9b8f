"""Let the agent save the cache, then ask once for the machine to stop; or say that it is given back instead.

To ask twice is harmless, so nothing is written before the call. Cut off anywhere, the next turn sees what became of it.
"""

from datetime import timedelta

from gpulease.domain.flush import look_seconds, open_flush
from gpulease.domain.lease import LeaseState, PauseMode, PauseProgress
from gpulease.domain.observation import Absent, Condition
from gpulease.domain.pause import (
    asked_to_stop,
    not_paused,
    refused_to_stop,
    should_ask_again,
    switched_to_keep_cache,
    unclear_stop,
)
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Resource
from gpulease.errors import (
    ProviderAuthFailed,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
)
from gpulease.pause_facts import machine_held
from gpulease.ports import Deps, Provider
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of
from gpulease.steps.observing import throttled_pause_seconds
from gpulease.steps.pausing import tell_if_stuck
from gpulease.steps.saving import let_save

OUTCOMES = frozenset({"stopping", "waiting", "keep_cache", "refused", "superseded"})
BUSY_PAUSE = timedelta(seconds=15)
AUTH_PAUSE = timedelta(seconds=30)


def run(command: StepCommand, deps: Deps) -> Outcome:
    record = let_save(load_current(command, deps, LeaseState.PAUSING), deps)
    progress = record.lease.pause
    if progress is None:
        return Outcome("stopping")
    flush = open_flush(record.lease)
    if flush is not None:
        return Outcome("waiting", look_seconds(flush, deps.clock.now()))
    if progress.mode is PauseMode.KEEP_CACHE:
        return Outcome("keep_cache")
    record = tell_if_stuck(record, deps)
    machine, progress = machine_held(record), record.lease.pause or progress
    if machine is None or machine.stopped_at is not None:
        return Outcome("stopping")
    if not should_ask_again(progress, deps.clock.now(), stopping=False):
        return Outcome("stopping", 1)
    return _stop(record, progress, machine, deps)


def _stop(record: LeaseRecord, progress: PauseProgress, machine: Resource, deps: Deps) -> Outcome:
    provider = deps.providers.get(machine.account)
    try:
        provider.stop(ref_of(machine))
    except (ProviderBusy, ProviderThrottled, ProviderAuthFailed) as error:
        return _not_now(record, progress, machine, error, deps)
    except ProviderRejected as error:
        return _refused(record, progress, machine, provider, error, deps)
    except ProviderError as error:
        # It may have been carried out: what is seen decides.
        _note(record, unclear_stop(progress, deps.clock.now(), str(error)), deps)
        return Outcome("stopping", 2)
    _note(record, asked_to_stop(progress, deps.clock.now()), deps)
    return Outcome("stopping", 5)


def _not_now(
    record: LeaseRecord, progress: PauseProgress, machine: Resource, error: ProviderError, deps: Deps
) -> Outcome:
    pause = BUSY_PAUSE
    if isinstance(error, ProviderAuthFailed):
        alarms.auth_failed(deps, machine.account, error)
        pause = AUTH_PAUSE
    if isinstance(error, ProviderThrottled):
        pause = timedelta(seconds=throttled_pause_seconds(error, machine.id))
    _note(record, refused_to_stop(progress, deps.clock.now(), str(error), pause), deps)
    return Outcome("waiting", int(pause.total_seconds()))


def _refused(
    record: LeaseRecord,
    progress: PauseProgress,
    machine: Resource,
    provider: Provider,
    error: ProviderRejected,
    deps: Deps,
) -> Outcome:
    """Never, the provider says. Decided by what is so: it may be stopped, or gone, all the same (law 7)."""
    seen = provider.observe(ref_of(machine))
    now = deps.clock.now()
    if isinstance(seen, Absent) or seen.condition in (Condition.STOPPING, Condition.STOPPED, Condition.DELETING):
        _note(record, refused_to_stop(progress, now, str(error), BUSY_PAUSE), deps)
        return Outcome("stopping")
    if record.lease.cache_id:
        deps.ledger.commit(switched_to_keep_cache(record, now, error.facts.message))
        return Outcome("keep_cache")
    if seen.condition is not Condition.READY:
        _note(record, refused_to_stop(progress, now, str(error), BUSY_PAUSE), deps)
        return Outcome("waiting", int(BUSY_PAUSE.total_seconds()))
    alarms.pause_stuck(deps, machine, error.reason, str(error))
    deps.ledger.commit(not_paused(record, now, str(error), seen.address))
    return Outcome("refused")


def _note(record: LeaseRecord, progress: PauseProgress, deps: Deps) -> None:
    lease = record.lease.model_copy(update={"pause": progress, "updated_at": deps.clock.now()})
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, epoch=lease.epoch))
