"""The checks at the end of every case find what they are there for."""

import json
from datetime import UTC, datetime

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import event
from gpulease_local.simulate.virtual import DEPLOYMENT

from tests.support.case_checks import books_differ
from tests.support.case_world import REGION, VM_PLAN, CaseWorld


@pytest.fixture
def running(world: CaseWorld) -> tuple[CaseWorld, str]:
    """A world with one lease that runs, of which the checks think well."""
    lease_id = world.up()
    world.until(lease_id, LeaseState.RUNNING, within=200)
    world.assert_right_at_the_end()
    return world, lease_id


def _call(world: CaseWorld, method: str, path: str, body: object = None) -> None:
    headers = {"Authorization": "Bearer anybody", "Content-Type": "application/json"}
    content = b"" if body is None else json.dumps(body).encode()
    answer = world.cloud.handle(method, path, {}, headers, content)
    assert answer.status < 300, answer


@pytest.mark.parametrize("tags", [["nobody"], [f"gpulease:{DEPLOYMENT}:l-bbbbbbbbbbbb.instance.1"]])
def test_a_billed_machine_that_nobody_owns_is_reported(running: tuple[CaseWorld, str], tags: list[str]) -> None:
    world, _ = running
    _call(world, "POST", "/instances", {"region": REGION, "plan": VM_PLAN, "os_id": 1743, "tags": tags})

    assert any("billed and not listed: instance" in problem for problem in books_differ(world))


def test_a_machine_that_is_listed_and_gone_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, lease_id = running
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)

    assert any("listed as billed and not there" in problem for problem in books_differ(world))


def test_a_claim_of_release_while_billed_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, lease_id = running
    machine = world.machine_of(lease_id)
    now = datetime.fromtimestamp(world.stack.clock.time(), UTC)
    lie = machine.model_copy(update={"state": ResourceState.RELEASED, "released_at": now})
    world.stack.ledger.commit(Change(lease_id=lease_id, resources=(lie,)))

    with pytest.raises(AssertionError, match="was written as released"):
        world.assert_right_at_the_end()


def test_a_destroyed_foreigner_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, _ = running
    _call(world, "DELETE", f"/instances/{world.foreign[0].id}")

    with pytest.raises(AssertionError, match="a foreign instance was destroyed"):
        world.assert_right_at_the_end()


def test_a_call_on_a_foreigner_is_reported_even_without_effect(running: tuple[CaseWorld, str]) -> None:
    world, _ = running
    _call(world, "POST", f"/instances/{world.foreign[1].id}/start")

    with pytest.raises(AssertionError, match="a call on a foreign instance"):
        world.assert_right_at_the_end()


def test_a_second_machine_for_one_intent_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, lease_id = running
    tags = [world.machine_of(lease_id).marker]
    _call(world, "POST", "/instances", {"region": REGION, "plan": VM_PLAN, "os_id": 1743, "tags": tags})

    with pytest.raises(AssertionError, match="more than one creation for one intent"):
        world.assert_right_at_the_end()


def test_a_loop_without_a_pause_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, lease_id = running
    for _ in range(2):
        _call(world, "POST", f"/instances/{world.machine_of(lease_id).provider_id}/start")

    with pytest.raises(AssertionError, match=r"/start again after 0\.0 s"):
        world.assert_right_at_the_end()


def test_a_loop_without_an_end_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, _ = running
    world.stack.engine.call_every(10.0, lambda: _call(world, "GET", "/instances"), first_after=10.0)

    with pytest.raises(AssertionError, match=r"\d{3} provider calls in half an hour after everything had ended"):
        world.assert_right_at_the_end()


def test_an_error_without_a_name_is_reported(running: tuple[CaseWorld, str]) -> None:
    world, lease_id = running
    now = datetime.fromtimestamp(world.stack.clock.time(), UTC)
    nameless = event(lease_id, now, "delete_refused", "it did not work", "warning", provider="vultr")
    world.stack.ledger.commit(Change(lease_id=lease_id, events=(nameless,)))

    with pytest.raises(AssertionError, match="delete_refused does not name region, reason, resource_id"):
        world.assert_right_at_the_end()


def test_a_lease_that_never_ends_is_reported(world: CaseWorld) -> None:
    world.machine(stuck="destruction")
    lease_id = world.up()
    world.until(lease_id, LeaseState.RUNNING, within=200)
    world.down(lease_id)

    with pytest.raises(AssertionError, match=f"{lease_id} is still releasing"):
        world.assert_right_at_the_end()
