"""The last proof before `running`: ready at the provider, and the machine itself answers on its SSH port."""

from gpulease.domain.lease import IN_PROVISION, Reason
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand, fail_attempt, load_current, waiting_for
from gpulease.steps.machine import look, machine_of, poll_pause_seconds
from gpulease.steps.staying import look_again

OUTCOMES = frozenset({"ready", "waiting", "failed", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    return look_again(lambda: _look(command, deps), deps)


def _look(command: StepCommand, deps: Deps) -> Outcome:
    record = load_current(command, deps, *IN_PROVISION)
    attempt, machine = record.lease.attempt, machine_of(record)
    if attempt is None or attempt.reason is not None or machine is None:
        return Outcome("failed")
    seen = look(record, attempt, machine, deps)
    if seen.what == "failed":
        return Outcome("failed")
    now = deps.clock.now()
    pause = min(5, poll_pause_seconds(attempt, now))
    if seen.what == "waiting" or seen.observation is None:
        return Outcome("waiting", seen.wait_seconds or pause)
    if deps.probe.tcp_open(seen.observation.address, deps.policy.ssh_port):
        return Outcome("ready")
    # What was written by `look` is read again: the lease row may have changed with it.
    record = load_current(command, deps, *IN_PROVISION)
    if now >= attempt.ready_deadline:
        detail = f"{seen.observation.words}, but nothing answers on {seen.observation.address}:{deps.policy.ssh_port}"
        deps.ledger.commit(fail_attempt(record, now, Reason.NOT_READY_IN_TIME, detail))
        return Outcome("failed")
    told = waiting_for(record, now, f"SSH to answer on {seen.observation.address}:{deps.policy.ssh_port}")
    if told is not None:
        deps.ledger.commit(told)
    return Outcome("waiting", pause)
