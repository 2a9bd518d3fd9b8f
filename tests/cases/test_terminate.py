"""C10, C11, C12, C14, C16: machines that do not go away when told to, or that have gone already."""

import itertools
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState
from gpulease_local.deps import LocalProviders
from gpulease_local.simulate.virtual import ApiRefused
from gpulease_sim.vultr import outage

from tests.cases.conftest import NewWorld
from tests.support.case_world import ONE_METAL, ONE_VM, R_SECONDS, SCOPES, CaseWorld

RELEASING, RELEASED, RUNNING = LeaseState.RELEASING, LeaseState.RELEASED, LeaseState.RUNNING
WITH_NETWORK: dict[str, Any] = {**ONE_VM, "private_network": "required"}


def _deletes(world: CaseWorld, provider_id: str) -> list[float]:
    return [call.at for call in world.calls("DELETE", f"/(instances|bare-metals|vpcs)/{provider_id}")]


def test_c10_destroy_refused_as_not_active_then_as_locked(world: CaseWorld) -> None:
    world.machine(not_active_until_seconds=120, locked_until_seconds=200, destruction_seconds=40)
    lease_id = world.up()
    world.at(10)
    written = len(world.states)

    world.down(lease_id)
    for seconds in (15, 60, 119, 150, 199):
        world.at(seconds)
        assert world.lease(lease_id).state is RELEASING
        assert world.machine_of(lease_id).state is ResourceState.RELEASING, "still counted as billed"
    world.until(lease_id, RELEASED, within=300)

    [machine] = world.ours("instance")
    assert world.gone_at(machine.id) <= 260
    tries = [at for at in _deletes(world, machine.id) if at <= 120]
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]
    assert {state for _, _, state in world.states[written:]} == {RELEASING, RELEASED}
    world.assert_right_at_the_end()


@SCOPES
def test_c10_its_private_network_goes_after_the_machine(world: CaseWorld, scope: str) -> None:
    world.machine(not_active_until_seconds=300, locked_until_seconds=380, destruction_seconds=40)
    lease_id = world.up(**WITH_NETWORK, network_scope=scope)
    stopped = world.until(lease_id, RUNNING, within=180) + 10
    world.at(stopped)

    world.down(lease_id)
    world.until(lease_id, RELEASED, within=500)
    world.until_nothing_is_billed(within=2 * R_SECONDS)

    [machine], [network] = world.ours("instance"), world.ours("vpc")
    # As in the case: 60 s from the first moment at which a destroy is accepted.
    assert world.gone_at(machine.id) <= 380 + 60
    assert _deletes(world, network.id)[0] >= world.gone_at(machine.id)
    world.assert_right_at_the_end()


@pytest.mark.parametrize("outage_seconds", [*range(1200, 1500, 60), *range(9000, 9300, 60)])
def test_c11_no_network_to_the_provider_during_terminate(world: CaseWorld, outage_seconds: int) -> None:
    lease_id = world.up()
    world.until(lease_id, RUNNING, within=180)
    world.at(200)
    begins = world.stack.clock.time()
    world.cloud.faults.add(outage(begins, begins + outage_seconds))

    world.down(lease_id)
    for seconds in range(300, 200 + outage_seconds, 100):
        world.at(seconds)
        machine = world.machine_of(lease_id)
        assert (world.lease(lease_id).state, machine.state) == (RELEASING, ResourceState.RELEASING)
        assert machine.release is not None
        assert "unavailable" in machine.release.last_error
    world.until(lease_id, RELEASED, within=600)

    assert world.gone_at(world.machine_of(lease_id).provider_id) <= 200 + outage_seconds + R_SECONDS
    [stuck] = world.events(lease_id, "release_stuck")
    assert 600 <= stuck.at.timestamp() - begins <= 600 + 120
    assert [facts["reason"] for name, facts in world.stack.log.alarms if name == "ReleaseStuck"] == ["unavailable"]
    world.assert_right_at_the_end()


@pytest.mark.parametrize("request_", [ONE_VM, ONE_METAL], ids=["vm", "bare-metal"])
def test_c12_destroy_says_ok_twice_and_nothing_happens(world: CaseWorld, request_: dict[str, Any]) -> None:
    world.machine(deletes_ignored=2, destruction_seconds=40)
    lease_id = world.up(**request_)
    asked = world.until(lease_id, RUNNING, within=3000)

    world.down(lease_id)
    world.until(lease_id, RELEASED, within=1200)

    machine = world.machine_of(lease_id)
    assert world.gone_at(machine.provider_id) - asked < 3 * R_SECONDS
    assert len(_deletes(world, machine.provider_id)) == 3
    assert machine.released_at is not None
    assert machine.released_at.timestamp() - world.t0 >= world.gone_at(machine.provider_id)
    world.assert_right_at_the_end()


def test_c15_account_taken_out_while_machines_run(world: CaseWorld) -> None:
    leases = [
        world.up(**ONE_VM, max_duration_seconds=1800, name=f"box-{n}", private_network="preferred") for n in range(2)
    ]
    for lease_id in leases:
        world.until(lease_id, RUNNING, within=900)

    providers = world.stack.stack.deps.providers
    assert isinstance(providers, LocalProviders)
    providers.drain("vultr")

    with pytest.raises(ApiRefused, match="no provider is configured"):
        world.up()
    world.at(1500)
    assert [world.lease(lease_id).state for lease_id in leases] == [RUNNING, RUNNING]
    for lease_id in leases:
        world.until(lease_id, RELEASED, within=4000)
        assert world.lease(lease_id).reason is Reason.EXPIRED
    assert len(world.ours("instance")) == 2
    world.assert_right_at_the_end()


@pytest.mark.parametrize("reads_fail", [0.0, 1.0], ids=["reads-work", "reads-answer-500"])
@pytest.mark.parametrize("request_", [ONE_VM, ONE_METAL], ids=["vm", "bare-metal"])
def test_c14_destruction_takes_eight_minutes_and_repeated_deletes_suspend_the_key(
    new_world: NewWorld, request_: dict[str, Any], reads_fail: float
) -> None:
    world = new_world(suspend_key_after_refused_deletes=5)
    world.machine(destruction_seconds=480, destruction_get_error_probability=reads_fail)
    lease_id = world.up(**request_)
    asked = world.until(lease_id, RUNNING, within=3000)

    world.down(lease_id)
    world.at(asked + 470)
    assert world.lease(lease_id).state is RELEASING
    world.until(lease_id, RELEASED, within=600)

    machine = world.machine_of(lease_id)
    assert len([at for at in _deletes(world, machine.provider_id) if at < asked + 480]) <= 3
    reads = world.calls("GET", f"/(instances|bare-metals)(/{machine.provider_id})?", since=asked + 5)
    assert len(reads) >= 10, "followed by reads"
    assert not [call for call in world.calls() if call.status == 401]
    world.assert_right_at_the_end()


@SCOPES
@pytest.mark.parametrize("missing", [(400, "Invalid instance ID"), (404, "instance not found"), (400, "Gone fishing")])
def test_c16_deleted_by_hand_while_running_and_given_back_later(
    new_world: NewWorld, missing: tuple[int, str], scope: str
) -> None:
    world = new_world(not_found={"instance": missing})
    lease_id = world.up(**WITH_NETWORK, network_scope=scope)
    asked = world.until(lease_id, RUNNING, within=180) + 60
    world.at(asked)
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)

    world.run_for(30)
    world.down(lease_id)
    released = world.until(lease_id, RELEASED, within=600)

    assert released <= asked + 30 + 2 * R_SECONDS
    assert world.until_nothing_is_billed(within=R_SECONDS) <= asked + 30 + 2 * R_SECONDS
    assert len([at for at, *_ in world.sent if at >= asked]) < 30
    world.assert_right_at_the_end()


@SCOPES
@pytest.mark.parametrize("missing", [(400, "Invalid instance ID"), (404, "instance not found")])
def test_c16_deleted_by_hand_is_noticed_by_the_sweep(new_world: NewWorld, missing: tuple[int, str], scope: str) -> None:
    world = new_world(not_found={"instance": missing})
    lease_id = world.up(**WITH_NETWORK, network_scope=scope)
    deleted = world.until(lease_id, RUNNING, within=180) + 60
    world.at(deleted)
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)

    world.until(lease_id, RELEASING, within=2 * R_SECONDS)
    world.until_nothing_is_billed(within=R_SECONDS)

    assert world.lease(lease_id).reason is Reason.LOST
    world.assert_right_at_the_end()


@SCOPES
@pytest.mark.parametrize("missing", [(400, "Invalid instance ID"), (404, "instance not found")])
def test_c16_deleted_by_hand_before_it_is_ready(new_world: NewWorld, missing: tuple[int, str], scope: str) -> None:
    world = new_world(not_found={"instance": missing})
    world.machine(attach_failures=100)
    lease_id = world.up(**WITH_NETWORK, network_scope=scope)
    world.at(150)
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)

    released = world.until(lease_id, RELEASED, within=900)

    assert released <= 150 + 2 * R_SECONDS
    assert world.lease(lease_id).reason is Reason.LOST
    world.until_nothing_is_billed(within=R_SECONDS)
    world.assert_right_at_the_end()
