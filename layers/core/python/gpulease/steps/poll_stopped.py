"""Wait until nothing of the machine's compute is billed: it is seen stopped, or proven gone where it was given back.

A stop that was accepted and has no effect is asked for again, with patience; while it lasts the lease is shown as
`pausing` and its machine as billed, and after ten minutes people are told.
"""

from datetime import timedelta

from gpulease.domain.lease import LeaseState, PauseMode
from gpulease.domain.observation import Absent, Condition
from gpulease.domain.pause import keep_cache_done, should_ask_again, stopping_since
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource
from gpulease.errors import ProviderAuthFailed
from gpulease.pause_facts import machine_held, offer_of_machine
from gpulease.ports import Deps
from gpulease.steps import alarms
from gpulease.steps.base import Outcome, StepCommand, load_current, ref_of
from gpulease.steps.observing import may_read, observe
from gpulease.steps.pausing import gone, note_stopped, tell_if_stuck
from gpulease.steps.starting import go_on, start_overdue_release
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"stopped", "waiting", "again", "lost", "handed_over", "superseded"})
HAND_OVER_AFTER = timedelta(hours=6)
"""At most some 2,500 turns of less than ten history events each, below the service's limit of 25,000."""
NOT_NOW_SECONDS = 2
AUTH_PAUSE_SECONDS = 30
GIVEN_BACK_PAUSE_SECONDS = 15
SLOW_AFTER = timedelta(minutes=5)


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _look(command, deps), deps)


def _look(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, LeaseState.PAUSING)
    now = deps.clock.now()
    if command.started_at is not None and now - command.started_at > HAND_OVER_AFTER:
        go_on(record, "pause", deps)
        return Outcome("handed_over")
    progress = record.lease.pause
    if progress is None:
        return Outcome("waiting", NOT_NOW_SECONDS)
    if progress.mode is PauseMode.KEEP_CACHE:
        if keep_cache_done(record):
            return Outcome("stopped")
        start_overdue_release(record, deps, now)
        return Outcome("waiting", _pause(record, GIVEN_BACK_PAUSE_SECONDS, deps))
    record = tell_if_stuck(record, deps)
    machine = machine_held(record)
    if machine is None or machine.stopped_at is not None:
        return Outcome("stopped")
    return _look_at(record, machine, deps)


def _look_at(record: LeaseRecord, machine: Resource, deps: Deps) -> Outcome:
    provider = deps.providers.get(machine.account)
    try:
        seen = observe(deps, machine)
        if not isinstance(seen, Absent) and seen is not None and seen.condition is Condition.STOPPED:
            # What is claimed now is about money: no shared list, which may be a moment old.
            seen = provider.observe(ref_of(machine)) if may_read(deps, provider) else None
    except ProviderAuthFailed as error:
        alarms.auth_failed(deps, machine.account, error)
        return Outcome("waiting", AUTH_PAUSE_SECONDS)
    if seen is None:
        return Outcome("waiting", NOT_NOW_SECONDS)
    if isinstance(seen, Absent):
        if gone(record, machine, provider, deps):
            return Outcome("lost")
        return Outcome("waiting", _pause(record, 5, deps))
    if seen.condition is Condition.STOPPED:
        price = provider.stopped_price_per_hour(offer_of_machine(record.lease, machine))
        note_stopped(record, machine, seen.words, price, deps)
        return Outcome("stopped")
    stopping = seen.condition in (Condition.STOPPING, Condition.DELETING)
    progress = record.lease.pause
    if progress is not None and should_ask_again(progress, deps.clock.now(), stopping=stopping):
        return Outcome("again")
    return Outcome("waiting", _pause(record, 5, deps))


def _pause(record: LeaseRecord, first: int, deps: Deps) -> int:
    progress = record.lease.pause
    slow = progress is not None and deps.clock.now() - stopping_since(progress, record.lease.flush) > SLOW_AFTER
    return 30 if slow else first
