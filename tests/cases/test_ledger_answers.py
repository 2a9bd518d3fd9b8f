"""C74, C75: what the ledger's store does. How one lost answer is told from a conflict is pinned by the ledgers' own
contract suite (tests/contract/ledger); here its consequences are played through."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change
from gpulease.domain.resource import ResourceState
from gpulease.domain.transitions import new_lease
from gpulease.errors import LeaseConflict, LedgerUnavailable
from gpulease_local.simulate.virtual import OWNER, ApiRefused

from tests.support.case_world import ONE_VM, R_SECONDS, CaseWorld

RELEASED, RUNNING = LeaseState.RELEASED, LeaseState.RUNNING


def _is_claim(change: Change) -> bool:
    return any(r.state is ResourceState.INTENDED for r in change.resources)


def _stores_id(change: Change) -> bool:
    return any(r.provider_id and r.status == "created" for r in change.resources)


def _moves_lease(change: Change) -> bool:
    return change.lease is not None


def _gives_back(change: Change) -> bool:
    return any(r.state is ResourceState.RELEASING for r in change.resources)


def _any(change: Change) -> bool:
    return True


WRITES: dict[str, Callable[[Change], bool]] = {
    "claim": _is_claim,
    "id": _stores_id,
    "lease": _moves_lease,
    "release": _gives_back,
    "all": _any,
}
ERRORS: dict[str, Callable[[], BaseException]] = {
    "no-answer": lambda: LedgerUnavailable("500 from the store"),
    "conflict-with-itself": lambda: LeaseConflict("the condition failed"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("carried_out", [True, False], ids=["applied", "not-applied"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_c74_a_write_is_answered_with_an_error(
    world: CaseWorld, write: Callable[[Change], bool], carried_out: bool, error: Callable[[], BaseException]
) -> None:
    fault = world.fail_commits(write, error, carried_out=carried_out, times=3)

    lease_id = world.up(**ONE_VM, private_network="required")
    world.until(lease_id, RUNNING, within=6 * R_SECONDS)
    while world.lease(lease_id).state is RUNNING:
        try:
            world.down(lease_id)
        except ApiRefused as refused:
            # While the ledger does not answer the API says so, and the user asks again.
            assert refused.status == 503
            world.run_for(5)
    world.until(lease_id, RELEASED, within=4 * R_SECONDS)

    assert fault.times == 0
    assert len(world.ours("instance")) == 1, "launched exactly once"
    assert world.lease(lease_id).reason is Reason.USER
    world.assert_right_at_the_end(may_log=("check_failed",))


def _closed_leases(world: CaseWorld, count: int) -> None:
    """Old leases that ended long ago, each with a long note in its record."""
    began = datetime.fromtimestamp(world.stack.clock.time(), UTC)
    spec = world.lease(world.stack.leases()[0].id).spec
    for number in range(count):
        when = began + timedelta(seconds=number)
        lease, told = new_lease(lease_id=f"l-{_name(number)}", owner=OWNER, name="old", spec=spec, now=when)
        closed = lease.model_copy(
            update={
                "state": RELEASED,
                "reason": Reason.USER,
                "released_at": when,
                "next_check_at": None,
                "reason_detail": "n" * 4096,
            }
        )
        world.stack.ledger.create_lease(closed, [told])


def _name(number: int) -> str:
    digits = "abcdefghijklmnopqrstuvwxyz234567"
    return "".join(digits[number // 32**place % 32] for place in range(12))


def test_c75_three_live_leases_behind_pages_of_closed_ones(world: CaseWorld) -> None:
    live = [world.up(**{**ONE_VM, "name": f"live-{n}"}) for n in range(3)]
    _closed_leases(world, 1300)
    assert world.ledger is not None
    world.ledger.filters_after_reading = True

    found: list[str] = []
    pages, cursor = 0, None
    while True:
        query = {"state": "requested,provisioning,running", **({"cursor": cursor} if cursor else {})}
        page = world.stack.api("GET", "/v1/leases", query=query)
        found += [lease["id"] for lease in page["leases"]]
        pages, cursor = pages + 1, page["cursor"]
        if cursor is None:
            break

    assert sorted(found) == sorted(live)
    assert pages > 20, "some pages were empty and had a cursor"
    for lease_id in live:
        world.until(lease_id, RUNNING, within=300)
    world.assert_right_at_the_end()


def test_c75_what_is_due_is_found_among_closed_leases(world: CaseWorld) -> None:
    live = [world.up(**{**ONE_VM, "name": f"live-{n}"}) for n in range(3)]
    _closed_leases(world, 1300)
    for name in [each.name for each in world.stack.engine.executions("provision")]:
        world.stack.engine.stop("provision", name)

    world.run_for(2 * R_SECONDS)

    assert [world.lease(lease_id).state for lease_id in live] == [RUNNING] * 3
    assert {r.lease_id for r in world.stack.ledger.open_resources()} == set(live)
    world.assert_right_at_the_end()
