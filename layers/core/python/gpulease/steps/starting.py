"""Starting workflows from a decision that is already in the ledger. A doubled start is harmless by its name."""

from datetime import datetime, timedelta

from gpulease.domain.cache import to_leave
from gpulease.domain.event import Event
from gpulease.domain.lease import Lease, LeaseKind, LeaseState, ResumeMode, execution_name
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import MAX_PAUSE_SECONDS, leave_turn
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.transitions import CHECK_WORKFLOW_EVERY
from gpulease.ports import Deps

OVERDUE = timedelta(seconds=MAX_PAUSE_SECONDS + 60)
"""A release whose next turn is so long past has no workflow behind it any more."""


_MACHINES = {
    LeaseState.REQUESTED: "provision",
    LeaseState.PROVISIONING: "provision",
    LeaseState.PAUSING: "pause",
    LeaseState.RESUMING: "resume",
    LeaseState.RELEASING: "release",
}


def machine_for(lease: Lease) -> str | None:
    """Which workflow moves this lease on now; None = none does."""
    if lease.kind is LeaseKind.CACHE and lease.state in (LeaseState.REQUESTED, LeaseState.PROVISIONING):
        return "cache"
    if lease.state is LeaseState.RESUMING and lease.resume is not None and lease.resume.mode is ResumeMode.NEW:
        return "provision"
    return _MACHINES.get(lease.state)


def start_release(record: LeaseRecord, deps: Deps, suffix: str = "") -> None:
    lease = record.lease
    deps.workflows.start("release", execution_name(lease.id, "release", lease.epoch, suffix), lease.id, lease.epoch)


def workflow_name(lease: Lease, machine: str) -> str:
    """Name of the execution that moves this lease on now."""
    return execution_name(lease.id, machine, lease.epoch, f"r{lease.restarts}" if lease.restarts else "")


def go_on(record: LeaseRecord, machine: str, deps: Deps, *events: Event) -> None:
    """Let a new execution go on from the ledger, under the lease's next name.

    The name is written first: should this die before the start, `check_leases` finds it not running and goes on.
    """
    lease = record.lease.model_copy(
        update={"restarts": record.lease.restarts + 1, "next_check_at": deps.clock.now() + CHECK_WORKFLOW_EVERY}
    )
    deps.ledger.commit(Change(lease_id=lease.id, lease=lease, events=events, epoch=lease.epoch))
    deps.workflows.start(machine, workflow_name(lease, machine), lease.id, lease.epoch)


def overdue(record: LeaseRecord, now: datetime) -> list[Resource]:
    """What should be on its way out and is not being worked on."""
    return [
        r
        for r in record.resources
        if r.state is ResourceState.RELEASING and r.release is not None and r.release.next_try_at + OVERDUE < now
    ]


def overdue_turns(record: LeaseRecord, now: datetime) -> list[datetime]:
    """Turns that were missed: of what should be on its way out, and of leaving caches."""
    leaving = (turn for attempt in to_leave(record) if (turn := leave_turn(record, attempt)) is not None)
    turns = [r.release.next_try_at for r in overdue(record, now) if r.release is not None]
    return turns + [turn for turn in leaving if turn + OVERDUE < now]


def start_overdue_release(record: LeaseRecord, deps: Deps, now: datetime) -> bool:
    """Start `release` again when something that should be on its way out is not being worked on. True = it was."""
    turns = overdue_turns(record, now)
    if not turns:
        return False
    # The name tells which turn was missed, so two checkers that notice it at once start one execution. Should that one
    # end without having taken a turn, its name is used up: after 1, 2, 4, 8 ... hours there is another. Seldom, since
    # where no turn can be taken all of them go on trying.
    missed = min(turns)
    again = ((now - missed) // timedelta(hours=1)).bit_length()
    start_release(record, deps, f"t{int(missed.timestamp())}" + (f"-{again}" if again else ""))
    return True
