"""Pausing and resuming as pure rules: what a pause is, what may be claimed, and that no order breaks a law."""

from datetime import timedelta
from decimal import Decimal

import pytest
from gpulease.domain.cost import cost_of, rate_now
from gpulease.domain.lease import (
    Attempt,
    LeaseState,
    PauseMode,
    PauseProgress,
    Reason,
    ResumeMode,
)
from gpulease.domain.pause import (
    STOP_AGAIN_AFTER,
    UNCLEAR_AGAIN_AFTER,
    asked_to_stop,
    is_paused_in_fact,
    is_stuck,
    keep_cache,
    may_pause,
    may_resume,
    not_paused,
    pause_mode,
    paused,
    refused_to_stop,
    release_at,
    release_warning_at,
    seen_started,
    seen_stopped,
    should_ask_again,
    unclear_stop,
    warned_of_release,
)
from gpulease.domain.pause_plan import BilledPart, plan_pause
from gpulease.domain.policy import Capacity, LeasePolicy, PausedPolicy
from gpulease.domain.record import LeaseRecord
from gpulease.domain.release import released
from gpulease.domain.resource import ResourceState
from gpulease.domain.resume import (
    asked_to_start,
    back_to_paused,
    counted_attempts,
    given_up_resuming,
    gives_up_at,
    kept_machine,
    may_run,
    new_machine,
    now_running,
    started,
)

from tests.support.pause_records import (
    FULL,
    NOW,
    OFFER,
    STOPPED,
    after,
    later,
    machine,
    pausing,
    resting,
    resuming,
    running,
    stopped,
)

# --- what a pause is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("can_stop", "has_cache", "mode"),
    [
        (True, False, PauseMode.STOP),
        (True, True, PauseMode.STOP),
        (False, True, PauseMode.KEEP_CACHE),
        (False, False, None),
    ],
)
def test_a_pause_that_would_keep_nothing_is_none(can_stop: bool, has_cache: bool, mode: PauseMode | None) -> None:
    assert pause_mode(can_stop=can_stop, has_cache=has_cache) is mode


def test_a_plan_names_both_prices_and_each_part() -> None:
    cache = BilledPart("cache models", Decimal("0.02"))

    plan = plan_pause(PauseMode.STOP, provider="aws", running=FULL, stopped=STOPPED, cache=cache)

    assert plan.paused_usd_per_hour == Decimal("0.03") and plan.running_usd_per_hour == Decimal("0.82")
    assert "$0.820/h" in plan.text and "$0.030/h" in plan.text
    assert "instance store" in plan.text, "what a stop loses is told before it happens"
    nothing = plan_pause(None, provider="vultr", running=FULL, stopped=STOPPED, cache=None)
    assert nothing.paused_usd_per_hour == 0 and "keep nothing" in nothing.text
    spot = plan_pause(PauseMode.KEEP_CACHE, provider="aws", running=FULL, stopped=STOPPED, cache=cache, spot=True)
    assert spot.text.startswith("aws does not stop spot machines: the machine is given back")


@pytest.mark.parametrize("state", list(LeaseState))
def test_only_a_running_lease_is_paused_and_only_a_paused_one_resumed(state: LeaseState) -> None:
    lease = running().lease.model_copy(update={"state": state})

    assert (may_pause(lease) == "") == (state is LeaseState.RUNNING)
    assert (may_resume(lease) == "") == (state is LeaseState.PAUSED)


# --- to paused --------------------------------------------------------------------------------------------------------


def test_a_pause_takes_the_address_away_at_once_and_raises_the_epoch() -> None:
    record = pausing()

    assert (record.lease.state, record.lease.epoch) == (LeaseState.PAUSING, 2)
    assert [m.address for m in record.resources] == [""]
    assert rate_now(record.resources[0]) == FULL, "billed in full until it is seen stopped"


def test_paused_cannot_be_written_before_the_machine_is_seen_stopped() -> None:
    with pytest.raises(ValueError, match="not proven stopped"):
        paused(pausing(), NOW, "")


def test_a_stopped_machine_costs_its_disk_from_when_it_was_seen_stopped() -> None:
    record = stopped(pausing(), later(hours=1))
    (kept,) = record.resources

    assert cost_of(kept, later(hours=11)) == FULL + 10 * STOPPED
    assert seen_stopped(kept, later(hours=2), "stopped", STOPPED) is kept
    again = seen_started(kept, later(hours=11), "running", FULL)
    assert cost_of(again, later(hours=12)) == FULL + 10 * STOPPED + FULL


def test_a_stop_is_asked_for_again_with_growing_patience_and_a_stopping_machine_left_alone() -> None:
    progress = PauseProgress(mode=PauseMode.STOP, reason=Reason.USER, requested_at=NOW)
    assert should_ask_again(progress, NOW, stopping=False)
    asked_at = NOW
    for patience in (*STOP_AGAIN_AFTER, STOP_AGAIN_AFTER[-1]):
        progress = asked_to_stop(progress, asked_at)
        assert not should_ask_again(progress, asked_at + patience - timedelta(seconds=1), stopping=False)
        assert should_ask_again(progress, asked_at + patience, stopping=False)
        assert not should_ask_again(progress, asked_at + STOP_AGAIN_AFTER[0], stopping=True)
        asked_at += patience
    refused = refused_to_stop(progress, asked_at, "busy", timedelta(seconds=15))
    assert (refused.last_error, refused.tries) == ("busy", progress.tries)


def test_a_stop_without_an_answer_says_nothing_of_its_effect_and_is_asked_for_again_soon() -> None:
    progress = PauseProgress(mode=PauseMode.STOP, reason=Reason.USER, requested_at=NOW)
    for _ in range(4):
        progress = unclear_stop(progress, NOW, "no answer")
        assert (progress.tries, progress.last_error) == (0, "no answer")
        assert not should_ask_again(progress, NOW + UNCLEAR_AGAIN_AFTER - timedelta(seconds=1), stopping=False)
        assert should_ask_again(progress, NOW + UNCLEAR_AGAIN_AFTER, stopping=False)
        assert not should_ask_again(progress, NOW + UNCLEAR_AGAIN_AFTER, stopping=True), "it was carried out"


def test_people_are_told_once_after_ten_minutes() -> None:
    progress = PauseProgress(mode=PauseMode.STOP, reason=Reason.USER, requested_at=NOW)

    assert not is_stuck(progress, later(minutes=9.9))
    assert is_stuck(progress, later(minutes=10))
    assert not is_stuck(progress.model_copy(update={"alarmed_at": NOW}), later(minutes=30))


def test_what_is_given_back_for_a_pause_is_marked_whole_and_paused_when_all_of_it_is_gone() -> None:
    record = pausing(PauseMode.KEEP_CACHE)
    change = keep_cache(record, NOW)
    assert change is not None
    record = after(record, change)

    assert record.lease.attempt is None and record.resources[0].state is ResourceState.RELEASING
    assert keep_cache(record, NOW) is None and not is_paused_in_fact(record)
    gone = LeaseRecord(record.lease, (released(record.resources[0], NOW, "gone"),))
    assert after(gone, paused(gone, NOW, "")).lease.state is LeaseState.PAUSED


def test_a_machine_that_cannot_be_stopped_runs_on_with_its_address_and_a_warning() -> None:
    record = after(pausing(), not_paused(pausing(), later(minutes=1), "UnsupportedOperation", "203.0.113.7"))

    assert record.lease.state is LeaseState.RUNNING and record.lease.pause is None
    assert record.resources[0].address == "203.0.113.7"
    assert record.lease.warnings == ("it cannot be paused: UnsupportedOperation",)
    assert record.lease.ready_at == later(minutes=1), "idleness counts anew"


@pytest.mark.parametrize(
    ("limit", "warned"), [(7 * 86400, timedelta(days=6)), (3600, timedelta(minutes=30)), (None, None)]
)
def test_the_end_of_a_long_pause_is_told_a_day_before(limit: int | None, warned: timedelta | None) -> None:
    policy = LeasePolicy(paused=PausedPolicy(release_after_seconds=limit))
    lease = resting().lease.model_copy(update={"policy": policy, "paused_at": NOW})

    assert release_warning_at(lease) == (NOW + warned if warned is not None else None)
    assert (release_at(lease) is None) == (limit is None)
    if limit is not None:
        told = after(LeaseRecord(lease), warned_of_release(LeaseRecord(lease), NOW)).lease
        assert release_warning_at(told) is None and "given back at" in told.notices[-1]


# --- and back ---------------------------------------------------------------------------------------------------------


def test_a_resume_starts_the_kept_machine_and_gives_it_its_whole_time_to_boot() -> None:
    record = resuming()
    assert record.lease.resume is not None and record.lease.resume.mode is ResumeMode.START
    kept = kept_machine(record)
    assert kept is not None

    record = after(record, asked_to_start(record, later(hours=1)))
    change = started(
        record, kept, later(hours=1, seconds=5), words="pending", price=FULL, time_to_boot=timedelta(minutes=10)
    )
    record = after(record, change)

    attempt = record.lease.attempt
    assert attempt is not None and attempt.begun_at == later(hours=1)
    assert attempt.ready_deadline == later(hours=1, minutes=10, seconds=5)
    assert [rate.usd_per_hour for rate in record.resources[0].rates] == [FULL, STOPPED, FULL]
    assert record.resources[0].rates[-1].since == later(hours=1), "from when the start was asked for"


def test_a_refusal_goes_back_to_paused_and_deletes_nothing() -> None:
    record = after(resuming(), asked_to_start(resuming(), later(hours=1)))
    assert may_run(record), "the answer is not known"
    with pytest.raises(ValueError, match="may run"):
        back_to_paused(record, later(hours=1), Reason.NO_CAPACITY, "")
    resume = record.lease.resume
    assert resume is not None
    refused = resume.model_copy(update={"refused_for": "no_capacity"})
    record = LeaseRecord(record.lease.model_copy(update={"resume": refused}), record.resources)
    assert gives_up_at(refused) == refused.give_up_at

    change = given_up_resuming(record, later(hours=1, minutes=2), Reason.NO_CAPACITY, "none left")

    back = after(record, change)
    assert back.lease.state is LeaseState.PAUSED and back.lease.paused_at == later(minutes=1)
    assert back.lease.pause is not None and back.lease.pause.resume_failed is Reason.NO_CAPACITY
    assert back.resources == record.resources and not change.resources
    assert sum("the resume did not work" in notice for notice in back.lease.notices) == 1


def test_what_may_have_been_started_is_stopped_again_at_its_full_price() -> None:
    record = after(resuming(), asked_to_start(resuming(), later(hours=1)))

    record = after(record, given_up_resuming(record, later(hours=1, minutes=10), Reason.NOT_READY_IN_TIME, "silent"))

    assert record.lease.state is LeaseState.PAUSING and record.lease.attempt is not None
    assert record.resources[0].stopped_at is None and rate_now(record.resources[0]) == FULL
    record = stopped(record, later(hours=1, minutes=11))
    assert after(record, paused(record, later(hours=1, minutes=11), "")).lease.state is LeaseState.PAUSED


def test_a_replacement_keeps_the_old_machine_until_the_new_one_runs() -> None:
    record = resuming(on_no_capacity=Capacity.REPLACE)
    record = after(record, new_machine(record, later(hours=1), Reason.NO_CAPACITY, ""))
    assert record.lease.attempt is None and record.resources[0].state is ResourceState.HELD
    assert counted_attempts(record.lease) == ()
    second = Attempt(number=2, offer=OFFER, started_at=later(hours=1), ready_deadline=later(hours=2))
    lease = record.lease.model_copy(update={"attempts": (*record.lease.attempts, second)})
    record = LeaseRecord(lease, (*record.resources, machine(2)))

    done = after(record, now_running(record, later(hours=1, minutes=5), "runs"))
    old, new = done.resources
    assert (old.state, new.state) == (ResourceState.RELEASING, ResourceState.HELD)
    assert done.lease.ready_at == later(hours=1, minutes=5) and done.lease.running_at == NOW

    vain = after(record, given_up_resuming(record, later(hours=1, minutes=5), Reason.NO_CAPACITY, ""))
    old, new = vain.resources
    assert (old.state, new.state) == (ResourceState.HELD, ResourceState.RELEASING)
    assert vain.lease.attempt is not None and vain.lease.attempt.number == 1, "the next resume starts the old one"
