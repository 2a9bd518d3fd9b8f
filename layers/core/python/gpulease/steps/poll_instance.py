"""Wait until the provider says that the machine is ready; find it by its marker where the create answer was lost."""

from gpulease.domain.lease import IN_PROVISION
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, load_current
from gpulease.steps.machine import look, machine_of, poll_pause_seconds
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"active", "waiting", "failed", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _look(command, deps), deps)


def _look(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt, machine = record.lease.attempt, machine_of(record)
    if attempt is None or attempt.reason is not None or machine is None:
        return Outcome("failed")
    seen = look(record, attempt, machine, deps)
    if seen.what == "ready":
        return Outcome("active")
    if seen.what == "failed":
        return Outcome("failed")
    return Outcome("waiting", seen.wait_seconds or poll_pause_seconds(attempt, machine, deps))
