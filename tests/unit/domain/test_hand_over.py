"""The rules by which a stopped machine hands its cache's volume over, and gets it back."""

from datetime import timedelta

import pytest
from gpulease.domain.cache import DETACH_AFTER, is_free, looked_free
from gpulease.domain.hand_over import (
    REFUSED_AGAIN_AFTER,
    asked_to_detach,
    may_be_on_its_way,
    needs_volume,
    patient_anew,
    refused_to_detach,
    seen_by_resume,
    starts_again,
    wished,
)
from gpulease.domain.lease import Attempt, Reason, VolumeAttachment
from gpulease.domain.policy import Capacity
from gpulease.domain.resume import back_to_paused, new_machine

from tests.support.pause_records import NOW, OFFER, after, later, resuming

HAD = VolumeAttachment(
    holder_id="c-aaaaaaaaaaaa", deadline=NOW, tries=2, refusals=1, ever_accepted=True, attached_at=NOW, free_looks=1
)


def attempt(volume: VolumeAttachment | None) -> Attempt:
    return Attempt(number=1, offer=OFFER, started_at=NOW, ready_deadline=NOW, volume=volume)


def test_from_the_wish_on_nobody_claims_that_it_is_attached_and_it_may_be() -> None:
    volume = wished(HAD, later(hours=1))

    assert volume.attached_at is None and volume.hand_over_at == later(hours=1)
    assert volume.ever_accepted and not volume.left, "it is left only when it is seen free"
    assert (volume.deadline, volume.tries, volume.refusals, volume.free_looks) == (None, 0, 0, 0)


def test_a_detach_is_asked_for_again_later_each_time_and_soon_after_a_refusal() -> None:
    volume, pauses = wished(HAD, NOW), []
    for _ in range(6):
        volume = asked_to_detach(volume, NOW)
        assert volume.next_try_at is not None
        pauses.append(volume.next_try_at - NOW)

    assert pauses == [DETACH_AFTER * n for n in (1, 2, 4, 8, 16, 16)]
    assert refused_to_detach(volume, NOW).next_try_at == NOW + REFUSED_AGAIN_AFTER


def test_a_look_that_found_it_free_counts_only_after_the_last_detach() -> None:
    once = looked_free(asked_to_detach(wished(HAD, NOW), NOW), NOW)

    assert is_free(looked_free(once, later(seconds=5)))
    assert not is_free(looked_free(asked_to_detach(once, later(seconds=5)), later(seconds=9)))


def test_what_is_shown_as_attached_may_still_leave_within_a_minute_of_a_detach() -> None:
    volume = asked_to_detach(wished(HAD, NOW), NOW)

    assert may_be_on_its_way(volume, later(seconds=59))
    assert not may_be_on_its_way(volume, later(seconds=60))
    assert not may_be_on_its_way(HAD, NOW)


@pytest.mark.parametrize(
    ("volume", "needs"),
    [
        (None, False),
        (HAD, False),
        (wished(HAD, NOW), True),
        (HAD.model_copy(update={"left": True}), True),
        (wished(HAD, NOW).model_copy(update={"dropped": True}), False),
    ],
    ids=["no_cache", "attached", "to_be_handed_over", "left", "cache_gone"],
)
def test_a_stopped_machine_starts_only_with_its_volume(volume: VolumeAttachment | None, needs: bool) -> None:
    assert needs_volume(attempt(volume)) is needs


def test_an_attachment_from_before_the_pause_is_not_believed_blindly() -> None:
    progress = resuming().lease.resume
    assert progress is not None

    assert not seen_by_resume(HAD, progress)
    assert seen_by_resume(HAD.model_copy(update={"attached_at": progress.requested_at}), progress)


def test_the_patience_for_a_start_begins_when_the_volume_is_back() -> None:
    progress = resuming().lease.resume
    assert progress is not None
    patience, now = progress.give_up_at - progress.requested_at, progress.requested_at + timedelta(minutes=9)

    assert patient_anew(progress, now).give_up_at == now + patience


def test_a_volume_that_was_handed_over_stays_left_when_the_new_machine_came_to_nothing() -> None:
    record = resuming(Capacity.REPLACE)
    assert starts_again(record.lease)
    given = record.lease.attempts[0].model_copy(update={"volume": HAD.model_copy(update={"left": True})})
    lease = record.lease.model_copy(update={"attempts": (given,)})
    record = after(
        type(record)(lease, record.resources), new_machine(record, later(hours=2), Reason.NO_CAPACITY, "none")
    )
    record = type(record)(record.lease.model_copy(update={"attempts": (given,)}), record.resources)
    assert not starts_again(record.lease)

    back = back_to_paused(record, later(hours=2), Reason.NO_CAPACITY, "none").lease

    assert back is not None and back.attempts[0].open and needs_volume(back.attempts[0])
