"""The agent of a stopped machine that is kept while new ones are tried: what its token does, and what it never does."""

import json
from datetime import timedelta

import pytest
from gpulease.domain.agent_protocol import KEYS_PATH, PROGRAM_PATH, new_token
from gpulease.domain.lease import LeaseState, Reason, ResumeMode, ResumeProgress
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceState
from gpulease.steps.agent_access import let_in, shut_out

from tests.support.agent_steps import LEASE, AgentWorld
from tests.support.ledger_samples import NOW

NEW = new_token(LEASE, "f" * 32)


@pytest.fixture
def world() -> AgentWorld:
    """A second machine is asked for while the first one is kept, stopped."""
    made = AgentWorld()
    assert made.report(gpus=1)["statusCode"] == 200
    lease = made.record().lease
    first = lease.attempts[0].model_copy(update={"ended_at": NOW, "reason": Reason.NO_CAPACITY})
    second = first.model_copy(update={"number": 2, "ended_at": None, "reason": None})
    resume = ResumeProgress(
        mode=ResumeMode.NEW, requested_at=NOW, give_up_at=NOW + timedelta(minutes=2), attempts_before=1
    )
    changed = lease.model_copy(
        update={"state": LeaseState.RESUMING, "attempts": (first, second), "resume": resume, "paused_at": NOW}
    )
    made.ledger.commit(Change(lease_id=LEASE, lease=changed))
    let_in(made.record(), second, made.config(NEW), made.deps)
    return made


def in_vain(world: AgentWorld) -> None:
    """No new machine could be had: the lease is paused as before."""
    lease = world.record().lease
    first, second = lease.attempts
    attempts = (
        first.model_copy(update={"ended_at": None, "reason": None}),
        second.model_copy(update={"ended_at": NOW, "reason": Reason.NO_CAPACITY}),
    )
    paused = lease.model_copy(update={"state": LeaseState.PAUSED, "attempts": attempts, "resume": None})
    world.ledger.commit(Change(lease_id=LEASE, lease=paused))


def given_back(world: AgentWorld) -> None:
    """The new machine runs, so the kept one is on its way out."""
    (kept,) = world.record().resources
    world.ledger.commit(Change(LEASE, resources=(kept.model_copy(update={"state": ResourceState.RELEASING}),)))


def test_while_a_new_one_is_tried_it_is_told_to_go_on_and_proves_nothing(world: AgentWorld) -> None:
    world.becomes_ready()
    before = world.agent()

    answer = world.report(gpus=1, seen_seconds_ago={"gpu": 0.0})

    assert (answer["statusCode"], json.loads(answer["body"])["interval_seconds"]) == (200, 60)
    assert world.agent() == before
    assert world.record().lease.state is LeaseState.RESUMING


def test_when_that_was_in_vain_its_reports_are_taken_again(world: AgentWorld) -> None:
    in_vain(world)

    answer = world.report(gpus=1)

    agent = world.agent()
    assert answer["statusCode"] == 200
    assert (agent.attempt, agent.last_report_at, agent.kept_attempt) == (1, world.at, 0)
    assert world.record().lease.state is LeaseState.PAUSED, "a report alone resumes nothing"
    assert world.report(token=NEW)["statusCode"] == 401


def test_while_its_own_start_is_asked_for_its_reports_wait_for_that(world: AgentWorld) -> None:
    in_vain(world)
    lease = world.record().lease
    resume = ResumeProgress(mode=ResumeMode.START, requested_at=NOW, give_up_at=NOW, attempts_before=2)
    ready_before = lease.attempts[0].model_copy(update={"shown_ready_at": world.at})
    resuming = lease.model_copy(
        update={"state": LeaseState.RESUMING, "resume": resume, "attempts": (ready_before, lease.attempts[1])}
    )
    world.ledger.commit(Change(lease_id=LEASE, lease=resuming))

    assert world.report(gpus=1)["statusCode"] == 200

    assert world.record().lease.state is LeaseState.RESUMING
    assert world.agent().attempt == 2


def test_it_gets_no_keys_while_a_new_one_is_tried_and_its_program_always(world: AgentWorld) -> None:
    assert world.ask("GET", KEYS_PATH)["statusCode"] == 404
    assert world.ask("GET", PROGRAM_PATH)["statusCode"] == 200


def test_a_report_that_came_twice_at_once_is_taken_once_more(world: AgentWorld) -> None:
    in_vain(world)
    world.between_load_and_save = lambda: world.report(gpus=1)

    assert world.report(gpus=1)["statusCode"] == 200

    assert world.agent().attempt == 1


def test_its_token_is_dead_when_the_new_machine_has_taken_its_place_or_the_lease_ends(world: AgentWorld) -> None:
    given_back(world)
    assert world.report()["statusCode"] == 401

    shut_out(LEASE, world.deps)

    assert world.report()["statusCode"] == 401
    assert world.report(token=NEW)["statusCode"] == 401
