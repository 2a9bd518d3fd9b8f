"""A stopped machine that is kept hands its cache's volume over to the new one, and gets it back. Pure functions.

Invariants: from the wish on nobody claims to know where the volume is, until it was seen; the old machine has left only
when the volume was read as free twice; a machine that is started again has its volume before it starts.
"""

from datetime import datetime, timedelta

from gpulease.domain.cache import DETACH_AFTER
from gpulease.domain.lease import Attempt, Lease, ResumeMode, ResumeProgress, VolumeAttachment

PATIENCE = timedelta(minutes=10)
"""How long a stopped machine has to let go of its volume: nothing of it is mounted, so seconds are usual (AWS)."""
REFUSED_AGAIN_AFTER = timedelta(seconds=10)


def starts_again(lease: Lease) -> bool:
    """Whether the lease is on its way back with its stopped machine."""
    return lease.resume is not None and lease.resume.mode is ResumeMode.START


def unseen(volume: VolumeAttachment) -> VolumeAttachment:
    """The attachment as one of which only is known that it may be there."""
    return VolumeAttachment(holder_id=volume.holder_id, ever_accepted=True)


def to_be_tried_anew(volume: VolumeAttachment | None) -> VolumeAttachment | None:
    """After a resume in vain: what was tried and how long is no matter of the next one."""
    if volume is None or volume.attached_at is not None:
        return volume
    update = {"deadline": None, "tries": 0, "refusals": 0, "next_try_at": None, "accepted_at": None}
    return volume.model_copy(update=update)


def wished(volume: VolumeAttachment, now: datetime) -> VolumeAttachment:
    """To be handed over: written before anything is asked for."""
    return unseen(volume).model_copy(update={"hand_over_at": now})


def asked_to_detach(volume: VolumeAttachment, now: datetime) -> VolumeAttachment:
    """Before each call, so that twins send one, and a lost answer is given time to show what came of it."""
    pause = DETACH_AFTER * 2 ** min(volume.detach_tries, 4)
    update = {"detach_tries": volume.detach_tries + 1, "detach_asked_at": now, "next_try_at": now + pause}
    return volume.model_copy(update={**update, "free_looks": 0})


def refused_to_detach(volume: VolumeAttachment, now: datetime) -> VolumeAttachment:
    """The call was refused for now: it may be asked again soon."""
    return volume.model_copy(update={"next_try_at": now + REFUSED_AGAIN_AFTER})


def may_be_on_its_way(volume: VolumeAttachment, now: datetime) -> bool:
    """Whether a detach that was asked for may still take effect on what is shown as attached."""
    return volume.detach_asked_at is not None and now - volume.detach_asked_at < DETACH_AFTER


def needs_volume(attempt: Attempt) -> bool:
    """Whether a machine that is started again has to get its cache's volume back first."""
    volume = attempt.volume
    return volume is not None and not volume.dropped and (volume.left or volume.attached_at is None)


def seen_by_resume(volume: VolumeAttachment, progress: ResumeProgress) -> bool:
    """Whether it was seen attached since the resume began: what is older somebody may have detached meanwhile."""
    return volume.attached_at is not None and volume.attached_at >= progress.requested_at


def patient_anew(progress: ResumeProgress, now: datetime) -> ResumeProgress:
    """Its owner's patience is for the start, and begins when the volume is back."""
    return progress.model_copy(
        update={"give_up_at": max(progress.give_up_at, now + (progress.give_up_at - progress.requested_at))}
    )
