"""C17 to C21: private networks that are made, joined and given back around machines that do not play along."""

import itertools
import math
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState

from tests.cases.conftest import NewWorld
from tests.support.case_world import METAL_PLAN, ONE_METAL, ONE_VM, R_SECONDS, SCOPES, CaseWorld

RELEASING, RELEASED, RUNNING = LeaseState.RELEASING, LeaseState.RELEASED, LeaseState.RUNNING
FIVE_OFFERS: dict[str, Any] = {
    "plans": ["vcg-a16-2c-8g-2vram"],
    "regions": ["ams", "blr", "ewr", "fra", "nrt"],
    "private_network": "required",
}
VM: dict[str, Any] = {**ONE_VM, "private_network": "required"}
METAL: dict[str, Any] = {**ONE_METAL, "private_network": "required"}
BOTH = pytest.mark.parametrize("request_", [VM, METAL], ids=["vm", "bare-metal"])


def test_c17_five_offers_sold_out_between_look_and_create(world: CaseWorld) -> None:
    spot = f"*/{FIVE_OFFERS['plans'][0]}"
    world.before("GET", "/regions/.*", lambda: world.set(capacity={spot: 9}), function="SelectOfferFunction")
    world.before("POST", "/instances", lambda: world.set(capacity={spot: 0}))

    lease_id = world.up(**FIVE_OFFERS)
    world.until(lease_id, RELEASED, within=300)

    _five_were_tried(world, lease_id)
    assert world.lease(lease_id).reason is Reason.NO_CAPACITY
    world.assert_right_at_the_end()


def test_c17_five_offers_that_are_shown_as_available_and_refused(new_world: NewWorld, reworded: bool) -> None:
    spots = frozenset(f"{region}/{FIVE_OFFERS['plans'][0]}" for region in FIVE_OFFERS["regions"])
    world = new_world(vanishing=spots)

    lease_id = world.up(**FIVE_OFFERS)
    world.until(lease_id, RELEASED, within=300)

    _five_were_tried(world, lease_id)
    if reworded:
        # Everything that can be read says "in stock": in unknown words this cannot be told from a limit.
        assert world.lease(lease_id).reason in (Reason.NO_CAPACITY, Reason.QUOTA_EXCEEDED)
        assert "inferred" in world.lease(lease_id).reason_detail
    else:
        assert world.lease(lease_id).reason is Reason.NO_CAPACITY
    world.assert_right_at_the_end()


def _five_were_tried(world: CaseWorld, lease_id: str) -> None:
    lease = world.lease(lease_id)
    assert len(world.calls("POST", "/instances")) == 5
    assert world.calls("POST", "/vpcs") == []
    assert world.ours() == []
    for region in FIVE_OFFERS["regions"]:
        assert f"vultr/{region}/{FIVE_OFFERS['plans'][0]}/on-demand" in lease.reason_detail


@SCOPES
@BOTH
def test_c18_network_cannot_be_deleted_for_minutes_after_the_machine(
    world: CaseWorld, request_: dict[str, Any], scope: str
) -> None:
    world.machine(vpc_hold_seconds=240)
    lease_id = world.up(**request_, network_scope=scope)
    world.until(lease_id, RUNNING, within=3000)

    world.down(lease_id)
    world.run_for(120)
    network = world.network()
    assert (world.lease(network.lease_id).state, network.state) == (RELEASING, ResourceState.RELEASING)
    world.until(lease_id, RELEASED, within=900)
    world.until(network.lease_id, RELEASED, within=900)

    [machine] = world.ours("instance") + world.ours("bare_metal")
    allowed_at = world.gone_at(machine.id) + 240
    assert allowed_at <= world.gone_at(network.provider_id) <= allowed_at + 2 * R_SECONDS
    assert max(seconds for _, _, seconds in world.tasks) < 60, "no worker blocks"
    world.assert_right_at_the_end()


@SCOPES
@BOTH
def test_c19_detach_never_takes_effect(world: CaseWorld, request_: dict[str, Any], scope: str) -> None:
    world.machine(detach_seconds=math.inf, vpc_hold_seconds=60)
    lease_id = world.up(**request_, network_scope=scope)
    began = world.until(lease_id, RUNNING, within=3000)

    world.down(lease_id)
    world.until(lease_id, RELEASED, within=900)

    assert world.calls("POST", ".*/detach") == []
    world.until_nothing_is_billed(within=R_SECONDS)
    assert len([at for at, *_ in world.sent if at >= began]) < 30
    world.assert_right_at_the_end()


@SCOPES
def test_c20_attach_fails_six_times_and_then_works(world: CaseWorld, scope: str) -> None:
    world.machine(attach_failures=6)

    lease_id = world.up(**VM, network_scope=scope)
    world.until(lease_id, RUNNING, within=600)

    attaches = [call.at for call in world.calls("POST", ".*/attach")]
    assert len(attaches) == 7
    assert min(later - earlier for earlier, later in itertools.pairwise(attaches)) >= 5
    assert world.network().state is ResourceState.HELD
    assert len(world.events(lease_id, "network_attached")) == 1
    assert max(seconds for _, _, seconds in world.tasks) < 60, "no worker is held"
    world.assert_right_at_the_end()


@SCOPES
@pytest.mark.parametrize("network", ["required", "preferred"])
def test_c20_attach_never_works(world: CaseWorld, network: str, scope: str) -> None:
    world.machine(attach_failures=math.inf)

    lease_id = world.up(**ONE_VM, private_network=network, network_scope=scope)
    world.until(lease_id, RELEASED if network == "required" else RUNNING, within=1500)

    attaches = [call.at for call in world.calls("POST", ".*/attach")]
    began = world.calls("POST", "/vpcs")[0].at
    assert min(later - earlier for earlier, later in itertools.pairwise(attaches)) >= 5
    assert attaches[-1] - began <= 600
    told = world.events(lease_id, "attempt_failed" if network == "required" else "network_dropped")
    assert told[0].at.timestamp() - world.t0 - began <= 600 + 10
    if network == "required":
        assert world.lease(lease_id).reason is Reason.PRIVATE_NETWORK_FAILED
        world.until_nothing_is_billed(within=R_SECONDS)
    else:
        assert world.lease(lease_id).warnings
        world.run_for(2 * R_SECONDS)
        assert [each.kind for each in world.billed()] == ["instance"]
    world.assert_right_at_the_end()


@SCOPES
@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("network", ["required", "preferred"])
def test_c21_plan_does_not_support_private_networking(
    new_world: NewWorld, network: str, status: int, reworded: bool, scope: str
) -> None:
    world = new_world(plans_without_vpc=frozenset({METAL_PLAN}), no_vpc_status=status)

    lease_id = world.up(**ONE_METAL, private_network=network, network_scope=scope)
    world.until(lease_id, RELEASED if network == "required" else RUNNING, within=3600)
    world.run_for(2 * R_SECONDS)

    lease = world.lease(lease_id)
    if network == "required":
        assert lease.reason in (Reason.NETWORK_UNSUPPORTED, Reason.PRIVATE_NETWORK_FAILED)
        assert world.billed() == []
    else:
        [warning] = lease.warnings
        assert warning.startswith("no private network")
        assert reworded or "plan" in warning
        assert [each.kind for each in world.billed()] == ["bare_metal"]
    if not reworded:
        assert len(world.calls("POST", ".*/attach")) == 1
    world.assert_right_at_the_end()
