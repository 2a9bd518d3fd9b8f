"""No order of events takes a lease through a pause in a way that breaks a law."""

from datetime import datetime, timedelta

from gpulease.domain.cost import cost_of, rate_now
from gpulease.domain.lease import (
    NEXT_STATES,
    Attempt,
    LeaseState,
    PauseMode,
    Reason,
    ResumeMode,
)
from gpulease.domain.pause import (
    is_paused_in_fact,
    paused,
    request_pause,
    seen_stopped,
)
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import Rate, ResourceState
from gpulease.domain.resume import (
    asked_to_start,
    given_up_resuming,
    kept_machine,
    new_machine,
    now_running,
    request_resume,
    started,
)
from gpulease.domain.transitions import cancel
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pause_records import FULL, LEASE, NOW, OFFER, STOPPED, after, machine, running

EVENTS = ("pause", "stopped", "paused", "resume", "ask", "refuse", "started", "ready", "replace", "give_up", "cancel")


def step(record: LeaseRecord, what: str, now: datetime) -> LeaseRecord:
    """The record after an event; unchanged where the rules do not let it happen."""
    lease, kept = record.lease, kept_machine(record)
    state = lease.state
    if what == "pause" and state is LeaseState.RUNNING:
        return after(record, request_pause(record, now=now, mode=PauseMode.STOP, reason=Reason.IDLE))
    if what == "stopped" and state is LeaseState.PAUSING and kept is not None:
        return after(record, Change(LEASE, resources=(seen_stopped(kept, now, "stopped", STOPPED),)))
    if what == "paused" and state is LeaseState.PAUSING and is_paused_in_fact(record):
        return after(record, paused(record, now, ""))
    if what == "resume" and state is LeaseState.PAUSED:
        return after(record, request_resume(record, now=now))
    if what == "cancel" and state not in (LeaseState.RELEASING, LeaseState.RELEASED):
        return after(record, cancel(record, now=now, reason=Reason.USER))
    if state is not LeaseState.RESUMING or lease.resume is None:
        return record
    starting = lease.resume.mode is ResumeMode.START
    if what == "ask" and starting and lease.resume.started_at is None:
        return after(record, asked_to_start(record, now))
    if what == "refuse" and starting and lease.resume.tries and lease.resume.started_at is None:
        refused = lease.resume.model_copy(update={"refused_for": "no_capacity"})
        return LeaseRecord(lease.model_copy(update={"resume": refused}), record.resources)
    if what == "started" and starting and lease.resume.started_at is None and kept is not None:
        change = started(record, kept, now, words="pending", price=FULL, time_to_boot=timedelta(minutes=10))
        return after(record, change)
    if what == "replace" and starting and lease.resume.refused_for:
        record = after(record, new_machine(record, now, Reason.NO_CAPACITY, ""))
        number = len(record.lease.attempts) + 1
        tried = Attempt(number=number, offer=OFFER, started_at=now, ready_deadline=now + timedelta(minutes=10))
        lease = record.lease.model_copy(update={"attempts": (*record.lease.attempts, tried)})
        return LeaseRecord(lease, (*record.resources, machine(number, rates=(Rate(since=now, usd_per_hour=FULL),))))
    if what == "ready" and lease.resume is not None and (lease.resume.started_at is not None or not starting):
        return after(record, now_running(record, now, ""))
    if what == "give_up":
        return after(record, given_up_resuming(record, now, Reason.NO_CAPACITY, ""))
    return record


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_any_order_of_events_keeps_the_laws(events: list[str]) -> None:
    record, now = running(), NOW
    for what in events:
        now += timedelta(seconds=20)
        before, record = record, step(record, what, now)

        lease = record.lease
        assert lease.state is before.lease.state or lease.state in NEXT_STATES[before.lease.state]
        assert lease.epoch >= before.lease.epoch
        if lease.state is not before.lease.state and lease.state is not LeaseState.RUNNING:
            assert lease.epoch > before.lease.epoch or lease.state is LeaseState.PAUSED
        held = [m for m in record.resources if m.state is ResourceState.HELD]
        if lease.state is LeaseState.PAUSED:
            assert all(m.stopped_at is not None and rate_now(m) == STOPPED for m in held)
        if lease.state in (LeaseState.PAUSING, LeaseState.PAUSED):
            assert not any(m.address for m in held), "no address of a machine that stops"
            assert len(held) == 1 and lease.attempt is not None and lease.attempt.number == held[0].attempt
        if lease.state is LeaseState.RUNNING:
            assert len(held) == 1 and lease.attempt is not None and lease.attempt.number == held[0].attempt
            assert lease.pause is None and lease.resume is None and lease.paused_at is None
        if lease.state not in (LeaseState.RELEASING, LeaseState.RELEASED):
            ran = [m for m in before.resources if m.state is ResourceState.HELD and m.stopped_at is not None]
            for each in ran:
                row = record.resource(each.id)
                assert row is not None
                kept = row.state is ResourceState.HELD
                assert kept or (lease.state is LeaseState.RUNNING and what == "ready"), "law 12"
        for each in record.resources:
            assert list(each.rates) == sorted(each.rates, key=lambda rate: rate.since)
            assert cost_of(each, now) >= 0
