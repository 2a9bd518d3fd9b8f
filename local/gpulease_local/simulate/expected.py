"""Whether a lease ended for the right reason: judged by what the provider's book and the storm say happened to it.

Each rule asks for evidence. A reason without evidence is wrong, and so is `user` where something else came first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import LeaseRecord

from gpulease_local.simulate.clouds import Thing

NOTICED_WITHIN_SECONDS = 15 * 60.0
"""A machine that is gone is noticed within two sweeps and the time they take."""
_SLACK_SECONDS = 150.0
"""A machine ready so shortly before the deadline may be seen too late."""
_UNCLEAR = frozenset(
    {"lost_before", "lost_after", "timeout", "gateway", "gateway_after", "wrong_shape", "empty", "ignored", "refused"}
)


@dataclass
class Story:
    """What is known of one lease from outside."""

    asked_at: float
    given_back_at: float | None = None
    state_when_given_back: LeaseState | None = None
    removed_at: float | None = None
    """When its machine was deleted by hand."""
    ready_at: dict[str, float] = field(default_factory=dict)
    """Marker of a machine to when it would accept SSH; infinite = never."""
    ended_for: set[str] = field(default_factory=set)
    """Why its machines came to nothing by themselves, by the provider's own word."""
    refusals: int = 0
    """Creates and attaches of this lease that the provider itself refused."""
    misfortunes: set[str] = field(default_factory=set)
    misfortunes_at: list[float] = field(default_factory=list)
    more_in_motion_seconds: float = 0.0
    """Spent on pausing and resuming."""
    disturbed: bool = False
    """A clock step, an outage or lost schedules fell into its life."""


def why_wrong(record: LeaseRecord, story: Story, machines: Iterable[Thing]) -> str:
    """Empty when the reason is right; else what speaks against it."""
    lease = record.lease
    if lease.state is not LeaseState.RELEASED or lease.reason is None:
        return ""  # counted as stuck
    reason = lease.reason
    ended_at = lease.release_requested_at.timestamp() if lease.release_requested_at else None
    if story.given_back_at is not None and story.state_when_given_back not in (
        LeaseState.RELEASING,
        LeaseState.RELEASED,
        None,
    ):
        if reason is not Reason.USER:
            return f"given back while {story.state_when_given_back}, and it says {reason}"
        return _not_noticed(story)
    if reason is Reason.USER:
        return "" if story.given_back_at is not None else "nobody gave it back"
    if reason is Reason.EXPIRED:
        limit = lease.spec.max_duration_seconds
        over = limit is not None and lease.running_at is not None and ended_at is not None
        if over and limit is not None and lease.running_at is not None and ended_at is not None:
            return "" if ended_at >= lease.running_at.timestamp() + limit - 1 else "its time was not over"
        return "it had no maximum duration, or never ran"
    return "" if _has_evidence(reason, record, story, machines, ended_at) else f"nothing speaks for {reason}"


def _not_noticed(story: Story) -> str:
    if story.removed_at is None or story.given_back_at is None or story.disturbed:
        return ""
    late = story.given_back_at - story.removed_at
    return f"its machine was gone for {late:.0f} s unnoticed" if late > NOTICED_WITHIN_SECONDS else ""


def _has_evidence(
    reason: Reason, record: LeaseRecord, story: Story, machines: Iterable[Thing], ended_at: float | None
) -> bool:
    if reason.value in story.ended_for:
        return True
    happened = story.misfortunes
    unclear = bool(happened & _UNCLEAR) or story.disturbed
    match reason:
        case Reason.LOST:
            gone = any(ended_at is not None and m.destroyed_from <= ended_at for m in machines)
            return gone or "ignored" in happened
        case Reason.NOT_READY_IN_TIME:
            return story.disturbed or _was_late(record, story) or _was_delayed(record, story)
        case Reason.NO_CAPACITY if lease_uses_one_place(record):
            # Few offers are left there, and live stock may have ruled all of them out.
            return story.refusals > 0 or any(not a.asked for a in record.lease.attempts) or not record.lease.attempts
        case Reason.CACHE_BUSY:
            return lease_uses_one_place(record)
        case Reason.CACHE_FAILED:
            return lease_uses_one_place(record) and (story.refusals > 0 or bool(happened) or story.disturbed)
        case Reason.NO_CAPACITY | Reason.QUOTA_EXCEEDED | Reason.REJECTED:
            return story.refusals > 0 or "refused" in happened
        case Reason.NETWORK_UNSUPPORTED:
            return story.refusals > 0 or "refused" in happened
        case Reason.PRIVATE_NETWORK_FAILED:
            return story.refusals > 0 or bool(happened) or story.disturbed
        case Reason.THROTTLED:
            return "throttled" in happened or story.refusals > 0
        case Reason.UNREACHABLE:
            # An agent is silent here only where its machine has ended, or hangs. The lists would tell it sooner, where
            # the sweep can look.
            gone = any(ended_at is not None and m.destroyed_from <= ended_at for m in machines)
            return gone or Reason.BOOT_FAILED in story.ended_for
        case Reason.NEVER_APPEARED:
            return unclear or bool(happened)
        case _:
            return False


def lease_uses_one_place(record: LeaseRecord) -> bool:
    """Whether its cache ties it to one place."""
    return bool(record.lease.cache_id)


def _was_late(record: LeaseRecord, story: Story) -> bool:
    asked = [a for a in record.lease.attempts if a.asked]
    if not asked:
        return False
    deadline = asked[-1].ready_deadline.timestamp()
    markers = [r.marker for r in record.resources if r.attempt == asked[-1].number]
    return any(story.ready_at.get(marker, 0.0) > deadline - _SLACK_SECONDS for marker in markers)


def _was_delayed(record: LeaseRecord, story: Story) -> bool:
    """Whether something went wrong while the last machine was waited for."""
    asked = [a for a in record.lease.attempts if a.asked]
    if not asked:
        return False
    begin, end = asked[-1].started_at.timestamp(), asked[-1].ready_deadline.timestamp() + _SLACK_SECONDS
    return any(begin <= at <= end for at in story.misfortunes_at)
