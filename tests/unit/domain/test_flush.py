"""How long a machine that is to go is kept so that its agent can save the cache."""

from typing import Any

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.flush import (
    FLUSH_TIME,
    LONGEST_FLUSH,
    Word,
    asked,
    by_this_clock,
    ended,
    heard,
    look_seconds,
    moved_on,
    new_flush,
    open_flush,
    postponed,
    waiting_text,
)
from gpulease.domain.lease import LeaseState, PauseMode, Reason
from gpulease.domain.pause import is_stuck, request_pause, stopping_since
from gpulease.domain.record import LeaseRecord
from gpulease.domain.release import needs_alarm, next_to_release
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import cancel, to_release
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pause_records import NOW, after, later, running


def an_agent(**told: Any) -> AgentRecord:
    values = {"first_report_at": NOW, "last_report_at": NOW, **told}
    return AgentRecord(lease_id="l-aaaaaaaaaaaa", attempt=1, token_sha256="0" * 64, **values)


FLUSH = new_flush(1, NOW)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_without_a_word_it_ends_after_ninety_seconds() -> None:
    agent = an_agent(last_report_at=later(seconds=80))

    assert FLUSH.deadline == NOW + FLUSH_TIME
    assert heard(FLUSH, agent, later(seconds=89)) is Word.SAVING
    assert heard(FLUSH, agent, later(seconds=90)) is Word.LATE


@pytest.mark.parametrize(
    ("saving_at", "asked_at", "deadline"),
    [
        (None, 80, 90),
        (10, 20, 90),  # nothing to be written yet
        (35, 40, 125),
        (10, 65, 100),  # nearly over: the last word counts
        (870, 880, 900),  # never beyond the longest
        (2000, 2000, 900),
    ],
)
def test_a_word_that_it_still_saves_moves_the_end(saving_at: float | None, asked_at: float, deadline: float) -> None:
    agent = an_agent(saving_at=None if saving_at is None else later(seconds=saving_at))

    assert moved_on(FLUSH, agent, later(seconds=asked_at)).deadline == later(seconds=deadline)


def test_another_machines_agent_moves_nothing() -> None:
    other = an_agent(saving_at=later(seconds=80)).model_copy(update={"attempt": 2})

    assert moved_on(FLUSH, other, later(seconds=85)) is FLUSH
    assert heard(FLUSH, other, later(seconds=5)) is Word.SILENT


@given(st.lists(st.floats(0, 3600), min_size=1, max_size=50))
def test_whatever_is_said_it_ends_in_time_and_the_end_never_comes_nearer(said: list[float]) -> None:
    flush = FLUSH
    for at in sorted(said):
        before, agent = flush, an_agent(saving_at=later(seconds=at), last_report_at=later(seconds=at))
        flush = moved_on(flush, agent, later(seconds=at))

        assert before.deadline <= flush.deadline <= flush.latest == NOW + LONGEST_FLUSH
        assert heard(flush, agent, later(seconds=at)) is not Word.SAVING or later(seconds=at) < flush.latest


@given(st.floats(1, 10), st.floats(20, 1200))
def test_who_reports_every_ten_seconds_that_it_saves_is_waited_for_and_few_writes_are_needed(
    every: float, saves_for: float
) -> None:
    flush, writes, at = FLUSH, 0, 0.0
    while at < min(saves_for, LONGEST_FLUSH.total_seconds() - 1):
        at += every
        now = later(seconds=at)
        agent = an_agent(saving_at=now, last_report_at=now)
        moved = moved_on(flush, agent, now)
        writes += moved is not flush
        flush = moved
        assert heard(flush, agent, now) is Word.SAVING or now >= flush.latest

    assert writes <= at / 30 + 1


def test_a_save_that_was_over_before_it_was_asked_for_is_none() -> None:
    assert heard(FLUSH, an_agent(flushed_at=later(seconds=-1)), NOW) is Word.SAVING
    assert heard(FLUSH, an_agent(flushed_at=later(seconds=3)), later(seconds=4)) is Word.SAVED


def test_who_has_said_that_it_is_saved_may_go_silent() -> None:
    """The look may come late, and the machine may have been shut down from inside by then."""
    done = an_agent(flushed_at=later(seconds=20), last_report_at=later(seconds=20))

    assert heard(FLUSH, done, later(minutes=5)) is Word.SAVED


@pytest.mark.parametrize(
    "agent", [None, an_agent(first_report_at=None), an_agent(last_report_at=later(minutes=-3))], ids=str
)
def test_who_cannot_hear_is_not_waited_for(agent: AgentRecord | None) -> None:
    assert heard(FLUSH, agent, NOW) is Word.SILENT


def test_it_is_asked_once() -> None:
    wish = asked(FLUSH, an_agent(flushed_at=later(hours=-1)), later(seconds=2))

    assert wish is not None
    assert (wish.flush_wanted_at, wish.flush_until, wish.flushed_at) == (later(seconds=2), FLUSH.latest, None)
    assert asked(FLUSH, wish, later(seconds=9)) is None


def test_a_clock_that_is_set_back_has_it_asked_once_and_its_answer_heard() -> None:
    back = later(minutes=-4)

    wish = asked(FLUSH, an_agent(), back)

    assert wish is not None and asked(FLUSH, wish, later(minutes=-3.9)) is None
    assert heard(FLUSH, wish, back) is Word.SAVING
    assert heard(FLUSH, wish.model_copy(update={"flushed_at": later(minutes=-3.9)}), back) is Word.SAVED


@pytest.mark.parametrize(("seconds", "deadline", "latest"), [(-3600, -3510, -2700), (-20, 90, 900), (40, 90, 900)])
def test_a_clock_that_is_set_back_by_much_does_not_have_it_waited_for_that_much_longer(
    seconds: float, deadline: float, latest: float
) -> None:
    flush = by_this_clock(FLUSH, later(seconds=seconds))

    assert (flush.deadline, flush.latest) == (later(seconds=deadline), later(seconds=latest))


def test_looks_are_frequent_at_first_and_never_later_than_the_end() -> None:
    moved = FLUSH.model_copy(update={"deadline": later(seconds=300)})

    assert [look_seconds(FLUSH, later(seconds=s)) for s in (0, 88, 90, 200)] == [5, 2, 1, 1]
    assert [look_seconds(moved, later(seconds=s)) for s in (80, 100, 294)] == [5, 15, 6]


# --- a release --------------------------------------------------------------------------------------------------------


def a_release() -> LeaseRecord:
    record = running()
    return after(record, cancel(record, now=NOW, reason=Reason.USER, flush=FLUSH))


def test_everything_is_marked_at_once_and_the_machines_turn_comes_at_the_end() -> None:
    record = a_release()

    assert {r.state for r in record.resources} == {ResourceState.RELEASING}
    assert record.lease.waiting_for == waiting_text(FLUSH) == "its cache to be saved (until 12:15 UTC at most)"
    todo = next_to_release(record, later(seconds=1))
    assert (todo.resource, todo.wait_seconds) == (None, 5)
    due = next_to_release(record, later(seconds=90)).resource
    assert due is not None and due.kind == "instance"


def test_when_it_is_saved_the_machines_turn_is_now() -> None:
    record = a_release()
    saved = after(record, ended(record, Word.SAVED, later(seconds=20), an_agent()))

    todo = next_to_release(saved, later(seconds=20))
    assert todo.resource is not None and todo.resource.kind == "instance"
    assert open_flush(saved.lease) is None and saved.lease.waiting_for == "everything to be given back"


def test_another_machine_of_the_same_attempt_is_not_kept_for_the_saving() -> None:
    """A second one that a create whose answer was lost has made: nobody uses it."""
    record = running()
    (machine,) = (r for r in record.resources if r.kind == "instance")
    double = to_release(machine.model_copy(update={"id": f"{machine.id}d", "provider_id": "p-2"}), NOW)
    record = LeaseRecord(record.lease, (*record.resources, double))
    record = after(record, cancel(record, now=NOW, reason=Reason.USER, flush=FLUSH))

    moved = postponed(record, FLUSH.model_copy(update={"deadline": FLUSH.latest}), later(seconds=60))

    assert [row.id for row in moved.resources] == [machine.id]
    todo = next_to_release(after(record, moved), later(seconds=61)).resource
    assert todo is not None and todo.id == double.id


def test_the_time_of_saving_is_not_held_against_the_provider() -> None:
    record = a_release()
    moved = FLUSH.model_copy(update={"deadline": FLUSH.latest})
    record = after(record, postponed(record, moved, later(minutes=2)))
    record = after(record, ended(record, Word.LATE, later(minutes=15)))

    (machine,) = (r for r in record.resources if r.kind == "instance")
    assert machine.release is not None and machine.release.next_try_at == later(minutes=15)
    assert not needs_alarm(machine.release, later(minutes=24))
    assert needs_alarm(machine.release, later(minutes=25))


def test_what_was_not_saved_whole_is_told() -> None:
    record = a_release()
    agent = an_agent(problems=("object store: it was not saved whole (rclone 10): too slow", "docker: x"))

    (told,) = ended(record, Word.SAVED, later(minutes=1), agent).events
    assert (told.kind, told.level) == ("cache_not_saved", "warning")
    assert "rclone 10" in told.text and "docker" not in told.text


def test_nothing_can_be_ended_that_is_not_waited_for() -> None:
    with pytest.raises(ValueError, match="waits for no agent"):
        ended(running(), Word.SAVED, NOW)


# --- a pause ----------------------------------------------------------------------------------------------------------


def test_a_pause_is_stuck_ten_minutes_after_its_machine_was_to_stop() -> None:
    record = running()
    change = request_pause(record, now=NOW, mode=PauseMode.STOP, reason=Reason.USER, flush=FLUSH)
    record = after(record, change)
    progress, flush = record.lease.pause, record.lease.flush
    assert progress is not None and flush is not None and record.lease.state is LeaseState.PAUSING

    assert record.lease.waiting_for == waiting_text(FLUSH)
    assert not is_stuck(progress, later(minutes=11), flush)
    done = flush.model_copy(update={"ended_at": later(minutes=8)})
    assert stopping_since(progress, done) == later(minutes=8)
    assert not is_stuck(progress, later(minutes=17.9), done)
    assert is_stuck(progress, later(minutes=18), done)
