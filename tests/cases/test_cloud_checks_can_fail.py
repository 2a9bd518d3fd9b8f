"""The checks of `CloudWorld` find what they are there for."""

from collections.abc import Callable, Iterator

import pytest
from gpulease.domain.resource import ResourceState
from gpulease.ports import Change
from gpulease_local.simulate.clouds import MACHINE
from gpulease_local.simulate.virtual import DEPLOYMENT

from tests.support.cloud_checks import problems_of
from tests.support.cloud_world import CloudWorld, Sent


@pytest.fixture
def world() -> Iterator[CloudWorld]:
    made = CloudWorld()
    yield made
    made.close()


def _problems(world: CloudWorld, quiet_from: float | None = None, twins: int = 0) -> str:
    since = world.now if quiet_from is None else quiet_from
    return "\n".join(problems_of(world, quiet_from=since, twins=twins, may_log=()))


def test_a_world_in_which_all_is_well_has_no_problems(world: CloudWorld) -> None:
    world.running()

    assert _problems(world) == ""


def test_a_machine_that_the_ledger_does_not_list_is_found(world: CloudWorld) -> None:
    lease_id = world.running()
    machine = world.machine_of(lease_id)
    gone = machine.model_copy(update={"state": ResourceState.RELEASED, "released_at": machine.held_at})

    world.stack.ledger.commit(Change(lease_id=lease_id, resources=(gone,)))

    assert f"exists and is not listed: instance {machine.provider_id}" in _problems(world)
    assert "written that" in _problems(world), "and the claim was seen when it was made"


def test_a_machine_that_is_listed_and_not_there_is_found(world: CloudWorld) -> None:
    lease_id = world.running()
    world.aws.remove_by_hand(world.machine_of(lease_id).provider_id)
    world.run_for(60)

    assert "listed and not there" in _problems(world)


def test_a_twin_is_found(world: CloudWorld) -> None:
    lease_id = world.running()
    [machine] = world.ours()
    side = world.stack.clouds.named("aws")

    side.plant(machine, f"gpulease:{DEPLOYMENT}:{lease_id}.instance.1")

    assert "more than one creation" in _problems(world)
    assert "more than one creation" not in _problems(world, twins=1)


def test_a_stranger_that_is_destroyed_is_found(world: CloudWorld) -> None:
    stranger = next(t.id for t in world.stack.clouds.things() if t.role == MACHINE and t.id in world.strangers)

    world.aws.remove_by_hand(stranger)
    world.run_for(60)

    assert "a stranger's instance was destroyed" in _problems(world)


def _call(at: float, action: str, **params: str) -> Sent:
    return Sent(at, "SomeFunction", action, params, 200, "")


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        (lambda: [_call(100 + n, "TerminateInstances", InstanceId="i-1") for n in range(3)], "again after 1.0 s"),
        (lambda: [_call(60 + n / 2, "DescribeInstances") for n in range(100)], "calls in minute 1"),
        (lambda: [_call(9000, "RunInstances", ClientToken="a")], "changes after everything had come to rest"),
    ],
    ids=["without-a-pause", "too-many", "without-an-end"],
)
def test_loops_are_found(world: CloudWorld, calls: Callable[[], list[Sent]], found: str) -> None:
    world.running()
    world.sent += calls()

    assert found in _problems(world, quiet_from=8000)


def test_an_execution_that_failed_and_a_logged_error_are_found(world: CloudWorld) -> None:
    world.running()
    world.stack.log.error("something_broke", lease_id="l-x")
    world.stack.log.alarm("ReleaseStuck", "…", {"provider": "aws"})

    found = _problems(world)

    assert "logged as an error: something_broke" in found
    assert "alarm ReleaseStuck does not name region, reason" in found
