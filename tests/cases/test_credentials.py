"""C64: credentials that expire in the middle of a long wait, with and without fresh ones at hand."""

from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import ResourceState
from gpulease_sim.vultr import Fault

from tests.support.case_world import ONE_METAL, ONE_VM, R_SECONDS, CaseWorld

RUNNING, RELEASED, PROVISIONING = LeaseState.RUNNING, LeaseState.RELEASED, LeaseState.PROVISIONING
EXPIRES = 900.0


class _Renewed:
    """A secret store in which a new key lies behind the cached one."""

    def __init__(self) -> None:
        self.key = "simulated"
        self.fresh_reads = 0

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        if fresh:
            self.fresh_reads += 1
            self.key = "renewed"
        return self.key


def _expired(world: CaseWorld, until: float, status: int = 401) -> None:
    world.cloud.faults.add(
        Fault(
            status=status,
            error="ExpiredToken",
            execute=False,
            from_seconds=world.t0 + EXPIRES,
            until_seconds=world.t0 + until,
        )
    )


def test_c64_run_1_the_key_is_renewed_once_and_the_wait_goes_on(world: CaseWorld) -> None:
    secrets: Any = world.stack.stack.world.secrets
    renewed = _Renewed()
    secrets.provider_key = renewed.provider_key
    lease_id = world.up(**ONE_METAL)
    world.at(EXPIRES)
    world.cloud.settings = replace(world.cloud.settings, api_keys=frozenset({"renewed"}))

    world.until(lease_id, RUNNING, within=1800)

    assert renewed.fresh_reads == 1
    assert len([call for call in world.calls() if call.status == 401]) == 1
    assert len(world.lease(lease_id).attempts) == 1
    assert world.stack.log.alarms == []


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("until", [3300, 4200], ids=["back-before-the-deadline", "back-after-the-deadline"])
def test_c64_run_2_nothing_is_concluded_until_the_key_is_back(world: CaseWorld, until: float, status: int) -> None:
    lease_id = world.up(**ONE_METAL)
    world.at(EXPIRES - 1)
    _expired(world, until, status)
    before = len(world.states)

    world.at(EXPIRES + 60)
    assert "accept the key" in world.lease(lease_id).waiting_for
    [told] = world.events(lease_id, "auth_failed")
    assert told.facts["reason"] == "auth_failed"
    names = [name for name, _ in world.stack.log.alarms]
    assert names == ["ProviderAuthFailed"]

    for seconds in range(int(EXPIRES) + 60, int(until), 240):
        world.at(seconds)
        machine = world.machine_of(lease_id)
        assert (world.lease(lease_id).state, machine.state) == (PROVISIONING, ResourceState.HELD)
        assert world.billed("bare_metal")
    assert {state for _, _, state in world.states[before:]} <= {PROVISIONING}
    running = world.until(lease_id, RUNNING, within=until - EXPIRES + R_SECONDS)

    assert running <= until + R_SECONDS
    assert len(world.lease(lease_id).attempts) == 1
    assert "accept the key" not in world.lease(lease_id).waiting_for
    world.assert_right_at_the_end()


def test_c64_what_is_being_given_back_stays_on_the_books_until_the_key_is_back(world: CaseWorld) -> None:
    lease_id = world.up(**ONE_VM)
    world.until(lease_id, RUNNING, within=300)
    world.at(EXPIRES - 1)
    _expired(world, 3300)

    world.at(EXPIRES + 10)
    world.down(lease_id)
    for seconds in range(int(EXPIRES) + 60, 3300, 240):
        world.at(seconds)
        machine = world.machine_of(lease_id)
        assert (world.lease(lease_id).state, machine.state) == (LeaseState.RELEASING, ResourceState.RELEASING)
    released = world.until(lease_id, RELEASED, within=2400)

    assert released <= 3300 + R_SECONDS + 60
    world.assert_right_at_the_end()
