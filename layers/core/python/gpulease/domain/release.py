"""Giving back: in which order, at which pace, and what counts as proof. Laws 4, 5 and 6 of the design live here.

Nothing here gives up. Pauses grow to four minutes and stay there; a resource leaves `releasing` only by absence read
twice from calls that succeeded, or, for an intent that no create answer ever confirmed, by its marker not being found
anywhere after the provider's visibility window.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from gpulease.domain.cache import to_leave
from gpulease.domain.flush import look_seconds, open_flush
from gpulease.domain.lease import Attempt
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import CREATED, ReleaseProgress, Resource, ResourceKind, ResourceState

FIRST_PAUSE_SECONDS = 5.0
PAUSE_GROWTH = 1.5
MAX_PAUSE_SECONDS_EARLY = 20.0
"""At first: a machine that becomes deletable is deleted at most so much later, and one that is gone seen as gone."""
PATIENT_AFTER_LOOKS = 35
"""About ten minutes. They begin anew with the first accepted delete, whenever that comes."""
MAX_PAUSE_SECONDS = 240.0
"""With a call that ends in a timeout and the destruction itself still below five minutes: a provider that is back is
noticed, and the machine gone, within one round of the sweep."""
SOON_GONE = timedelta(seconds=60)
"""An accepted delete takes effect within 30 s (Vultr). Seen soon, so that no hour is counted that was not billed."""
ALARM_AFTER = timedelta(minutes=10)
ABSENCES_NEEDED = 2
ABSENCE_GAP = timedelta(seconds=3)
DELETE_AGAIN_AFTER = (timedelta(seconds=120), timedelta(seconds=240), timedelta(seconds=480))
"""After a delete that was accepted, or may have been, and has no effect. Three deletes in eight minutes: more has made
providers suspend keys."""

ORDER = (
    ResourceKind.SPOT_REQUEST,
    ResourceKind.INSTANCE,
    ResourceKind.VOLUME,
    ResourceKind.ADDRESS,
    ResourceKind.SNAPSHOT,
    ResourceKind.NETWORK,
)


@dataclass(frozen=True, slots=True)
class NextRelease:
    """What to give back now. `resource` None: leave a cache, or wait so long (seconds), or nothing is left (0)."""

    resource: Resource | None
    wait_seconds: int = 0
    cache: bool = False
    """A machine that had a cache's volume is gone: its volume must be seen free."""


def next_to_release(record: LeaseRecord, now: datetime) -> NextRelease:
    """The resource to work on next: machines before what they hold, and of these the one whose turn is longest due."""
    leaving = [turn for attempt in to_leave(record) if (turn := leave_turn(record, attempt)) is not None]
    if any(turn <= now for turn in leaving):
        return NextRelease(None, cache=True)
    waiting = [r for r in record.resources if r.state is ResourceState.RELEASING]
    if not waiting and not leaving:
        return NextRelease(None)
    ready = [r for r in waiting if not _must_wait_for_machine(r, record)]
    due = [r for r in ready if r.release is not None and r.release.next_try_at <= now]
    if due:
        return NextRelease(min(due, key=lambda r: (ORDER.index(r.kind), _turn(r), r.id)))
    turns = [*leaving, *(_turn(r) for r in ready)]
    soonest = min(turns, default=now + timedelta(seconds=MAX_PAUSE_SECONDS_EARLY))
    flush = open_flush(record.lease)
    if flush is not None:
        # The machine's turn is written down as the end of that; it comes when its agent is heard to be ready.
        soonest = min(soonest, now + timedelta(seconds=look_seconds(flush, now)))
    return NextRelease(None, max(1, ceil((soonest - now).total_seconds())))


def _turn(resource: Resource) -> datetime:
    return resource.release.next_try_at if resource.release else resource.intended_at


def leave_turn(record: LeaseRecord, attempt: Attempt) -> datetime | None:
    """When the volume of a cache that this attempt's machine had is looked at next; None = it cannot have had it."""
    if attempt.volume is None or not attempt.volume.ever_accepted:
        return None
    machines = record.of_kind(ResourceKind.INSTANCE, attempt.number)
    gone = max((m.released_at for m in machines if m.released_at is not None), default=attempt.started_at)
    return max(gone, attempt.volume.next_try_at or gone)


def _must_wait_for_machine(resource: Resource, record: LeaseRecord) -> bool:
    """A network goes after the machine of its attempt. One dropped beside a machine that stays does not wait. Volumes
    likewise: the machine's end detaches them."""
    if resource.kind not in (ResourceKind.NETWORK, ResourceKind.VOLUME):
        return False
    machines = record.of_kind(ResourceKind.INSTANCE, resource.attempt)
    return any(m.state is ResourceState.RELEASING for m in machines)


def should_delete_now(progress: ReleaseProgress, now: datetime, *, seen_deleting: bool) -> bool:
    """Whether a delete call is due, or only a look. An accepted delete is repeated late, a refused one soon."""
    if progress.last_taken_at is None:
        return True
    patience = DELETE_AGAIN_AFTER[min(progress.repeats, len(DELETE_AGAIN_AFTER) - 1)]
    if seen_deleting:
        patience = DELETE_AGAIN_AFTER[-1]
    return now - progress.last_taken_at >= patience


def delete_sent(progress: ReleaseProgress, now: datetime, *, accepted: bool, unclear: bool) -> ReleaseProgress:
    """Count one delete call. Once one may have been carried out, a refusal may mean "on its way already", whatever its
    words: from then on each call counts against the patience for the next one."""
    taken_before = progress.last_taken_at is not None
    taken = accepted or unclear or taken_before
    return progress.model_copy(
        update={
            "looks": 0 if accepted and not progress.accepted else progress.looks,
            "tries": progress.tries + 1,
            "accepted": progress.accepted + accepted,
            "repeats": progress.repeats + taken_before,
            "last_taken_at": now if taken else None,
        }
    )


def pause_seconds(progress: ReleaseProgress, now: datetime) -> float:
    """Pause before the next turn."""
    most = MAX_PAUSE_SECONDS if progress.looks >= PATIENT_AFTER_LOOKS else MAX_PAUSE_SECONDS_EARLY
    if progress.last_taken_at is not None and now - progress.last_taken_at < SOON_GONE:
        most = MAX_PAUSE_SECONDS_EARLY
    # The exponent is capped so that a release which takes weeks does not overflow.
    return float(min(FIRST_PAUSE_SECONDS * PAUSE_GROWTH ** min(progress.looks, 20), most))


def absent_once_more(progress: ReleaseProgress, now: datetime) -> ReleaseProgress:
    """Count one reading of absence, unless it follows the last one too closely to be a second opinion."""
    if progress.last_absence_at is not None and now - progress.last_absence_at < ABSENCE_GAP:
        return progress
    return progress.model_copy(
        update={
            "absences": progress.absences + 1,
            "first_absence_at": progress.first_absence_at or now,
            "last_absence_at": now,
        }
    )


def seen_again(progress: ReleaseProgress) -> ReleaseProgress:
    """It is there (again): earlier absences prove nothing."""
    if not progress.absences:
        return progress
    return progress.model_copy(update={"absences": 0, "first_absence_at": None, "last_absence_at": None})


def is_proven_gone(progress: ReleaseProgress) -> bool:
    return progress.absences >= ABSENCES_NEEDED


def may_close_intent(
    resource: Resource, now: datetime, *, create_timeout_seconds: float, window_seconds: float
) -> bool:
    """Whether an intent whose marker is found nowhere may be closed as "never appeared" (law 2)."""
    sent = resource.create_sent_at or resource.intended_at
    return now >= sent + timedelta(seconds=create_timeout_seconds + window_seconds)


def may_be_hidden(resource: Resource, now: datetime, *, create_timeout_seconds: float, window_seconds: float) -> bool:
    """Whether it may exist although nothing shows it: so fresh that reads need not know it, and none has yet (C04)."""
    if resource.status != CREATED:
        return False
    sent = (resource.create_sent_at or resource.intended_at) + timedelta(seconds=create_timeout_seconds)
    return now < min(resource.held_at or sent, sent) + timedelta(seconds=window_seconds)


def released(resource: Resource, now: datetime, note: str) -> Resource:
    """The resource proven gone. Its cost ends when it was first read as absent."""
    first = resource.release.first_absence_at if resource.release else None
    return resource.model_copy(
        update={"state": ResourceState.RELEASED, "released_at": first or now, "release_note": note}
    )


def needs_alarm(progress: ReleaseProgress, now: datetime) -> bool:
    since = progress.not_before or progress.requested_at
    return progress.alarmed_at is None and now - since >= ALARM_AFTER
