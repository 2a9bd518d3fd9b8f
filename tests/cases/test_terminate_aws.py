"""C13, C16, C22 and C25 on AWS (C16 also at Vultr, with a cache): ends that are refused, have happened already, or do
not last."""

from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState
from gpulease_local.simulate.clouds import NETWORK, VOLUME
from gpulease_local.simulate.virtual import OWNER

from tests.cases.conftest import NewCloud
from tests.support.cache_world import STEADY_BLOCK, USES_MODELS, Caches
from tests.support.cloud_world import ONE_AWS, ONE_SPOT, R_SECONDS, ZONE, CloudWorld

RELEASING, RELEASED, RUNNING = LeaseState.RELEASING, LeaseState.RELEASED, LeaseState.RUNNING
MINUTE = 60.0
VULTR_VM = {"providers": ["vultr"], "regions": ["ewr"], "plans": ["vcg-l40s-16c-180g-48vram"], "plan_kinds": ["vm"]}


def test_c13_one_unknown_id_does_not_keep_nine_others_alive(cloud: CloudWorld) -> None:
    cloud.machine(4, visible_seconds=0)
    leases = [cloud.up(**ONE_AWS, name=f"box-{number}") for number in range(10)]
    for lease_id in leases:
        cloud.until(lease_id, RUNNING, within=600)
    unknown = next(each for each in cloud.ours() if cloud.aws.machine(each.id).behaviour.visible_seconds == 0)
    cloud.aws.remove_by_hand(unknown.id)
    cloud.run_for(60)
    asked = cloud.now

    for lease_id in leases:
        if cloud.lease(lease_id).state is RUNNING:
            cloud.stack.down(lease_id)
    for lease_id in leases:
        cloud.until(lease_id, RELEASED, within=R_SECONDS)

    for each in cloud.ours():
        assert cloud.gone_at(each.id) <= asked + R_SECONDS
    ends = cloud.calls("TerminateInstances", since=asked)
    assert all(sum(name.startswith("InstanceId") for name in call.params) == 1 for call in ends), "no batches"
    assert len([call for call in ends if unknown.id in call.params.values()]) <= 1, "no repeated failing call"
    assert len(ends) <= 10 + 1
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("provider", ["aws", "vultr"])
def test_c16_a_machine_deleted_by_hand_leaves_its_cache_kept_and_free(new_cloud: NewCloud, provider: str) -> None:
    cloud = new_cloud(provider, vultr={"block": STEADY_BLOCK})
    caches = Caches(cloud.stack)
    place = {"provider": "aws", "region": "us-east-1", "zone": ZONE} if provider == "aws" else {}
    cache = caches.make(OWNER, **place)
    cloud.machine(1, visible_seconds=0)
    request: dict[str, Any] = {**(ONE_AWS if provider == "aws" else VULTR_VM), **USES_MODELS}
    lease_id = cloud.running(**request, private_network="required")
    # A machine younger than the visibility window may be missing from lists, and is given that much longer.
    cloud.run_for(R_SECONDS)
    machine = cloud.machine_of(lease_id).provider_id
    assert cloud.stack.clouds.user_of(caches.volume(cache).provider_id) == machine
    side = cloud.stack.clouds.of(machine)
    assert side is not None

    side.remove_by_hand(machine)
    removed = cloud.now
    noticed = cloud.wait(lambda: cloud.lease(lease_id).state is not RUNNING, 2 * R_SECONDS, "nobody noticed")
    cloud.until(lease_id, RELEASED, within=R_SECONDS)

    assert noticed - removed <= 2 * R_SECONDS
    assert cloud.lease(lease_id).reason is Reason.LOST
    cloud.wait(lambda: not cloud.existing(NETWORK), 2 * R_SECONDS, "its network is still there")
    [volume] = cloud.existing(VOLUME)
    shown = caches.shown()
    assert (shown["state"], shown["used_by"]) == ("available", None)
    assert [each["provider_id"] for each in shown["volumes"]] == [volume.id]
    assert cloud.stack.clouds.user_of(volume.id) == ""
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("scope", ["owner", "lease"])
def test_c22_a_security_group_in_use_is_deleted_when_it_can_be(cloud: CloudWorld, scope: str) -> None:
    cloud.machine(1, interface_linger_seconds=6 * MINUTE)
    request: dict[str, Any] = {**ONE_AWS, "private_network": "required", "network_scope": scope}
    lease_id = cloud.running(**request)
    [network] = cloud.existing(NETWORK)

    cloud.stack.down(lease_id)
    cloud.wait(lambda: not cloud.costing(), 300, "the machine is still billed")
    ended = cloud.now
    if scope == "lease":
        cloud.until(lease_id, RELEASED, within=2 * R_SECONDS + 6 * MINUTE)
    cloud.wait(lambda: not cloud.existing(NETWORK), 2 * R_SECONDS + 6 * MINUTE, "the group is still there")

    assert cloud.gone_at(network.id) <= ended + 6 * MINUTE + 2 * R_SECONDS
    refused = [call for call in cloud.calls("DeleteSecurityGroup", naming=network.id) if call.code]
    assert {call.code for call in refused} <= {"DependencyViolation"}
    assert len(refused) <= 20, "not asked again and again"
    longest = max(each.events for each in cloud.stack.engine.executions())
    assert longest < 1000, "no workflow waits in small steps for it"
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("scope", ["owner", "lease"])
def test_c22_a_later_lease_of_the_same_name_is_not_held_up_by_the_old_group(cloud: CloudWorld, scope: str) -> None:
    cloud.machine(1, interface_linger_seconds=6 * MINUTE)
    request: dict[str, Any] = {**ONE_AWS, "private_network": "required", "network_scope": scope}
    first = cloud.running(**request)
    cloud.stack.down(first)
    cloud.run_for(60)

    second = cloud.up(**request)

    asked = cloud.now
    assert cloud.until(second, RUNNING, within=300) - asked <= 200
    cloud.stack.down(second)
    for lease_id in (first, second):
        cloud.until(lease_id, RELEASED, within=4 * R_SECONDS)
    cloud.wait(lambda: not cloud.existing(NETWORK), 3 * R_SECONDS + 6 * MINUTE, "a group is left")
    cloud.assert_right_at_the_end()


def persistent(body: bytes) -> bytes:
    """The launch as a persistent request: what our own never is."""
    kind = b"InstanceMarketOptions.SpotOptions.SpotInstanceType="
    more = b"&InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior=stop"
    return body.replace(kind + b"one-time", kind + b"persistent" + more)


def open_requests(cloud: CloudWorld) -> list[str]:
    """Spot requests that may launch machines, past all lag."""
    open_ = ("open", "active", "disabled")
    return [each.id for each in cloud.aws.account.requests.values() if each.state in open_]


def test_c25_our_spot_requests_launch_once_and_end_with_their_machine(cloud: CloudWorld) -> None:
    lease_id = cloud.running(**ONE_SPOT)
    [launch] = cloud.calls("RunInstances")
    assert launch.params["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"

    cloud.stack.down(lease_id)
    cloud.until(lease_id, RELEASED, within=300)
    cloud.run_for(600)

    assert (cloud.existing(), open_requests(cloud)) == ([], [])
    assert len(cloud.ours()) == 1
    cloud.assert_right_at_the_end()


def test_c25_a_persistent_request_is_cancelled_before_its_machine_is_terminated(cloud: CloudWorld) -> None:
    cloud.rewrite = persistent
    lease_id = cloud.running(**ONE_SPOT)
    assert len(open_requests(cloud)) == 1

    cloud.stack.down(lease_id)
    cloud.until(lease_id, RELEASED, within=600)
    cloud.run_for(600)

    [cancel], [end] = cloud.calls("CancelSpotInstanceRequests"), cloud.calls("TerminateInstances")
    assert cancel.at <= end.at
    assert (cloud.existing(), open_requests(cloud)) == ([], [])
    assert len(cloud.ours()) == 1, "none was launched in its place"
    cloud.assert_right_at_the_end()


def test_c25_an_untagged_instance_of_our_request_is_found_and_destroyed(cloud: CloudWorld) -> None:
    cloud.rewrite = persistent
    lease_id = cloud.running(**ONE_SPOT)
    [machine] = cloud.ours()

    cloud.aws.remove_by_hand(machine.id)
    cloud.wait(lambda: len(_machines_of_requests(cloud)) == 2, 300, "EC2 did not launch another one")
    second = next(each for each in _machines_of_requests(cloud) if each != machine.id)
    relaunched = cloud.now
    assert cloud.aws.machine(second).tags == {}
    cloud.wait(lambda: not _alive(cloud), 3 * R_SECONDS, "the second one is not gone")

    assert cloud.now - relaunched <= 2 * R_SECONDS + 60
    assert open_requests(cloud) == []
    cloud.until(lease_id, RELEASED, within=2 * R_SECONDS)
    assert [r.state for r in cloud.record(lease_id).resources if r.state is not ResourceState.RELEASED] == []
    cloud.assert_right_at_the_end()


def _machines_of_requests(cloud: CloudWorld) -> list[str]:
    cloud.aws.advance()
    return [each.id for each in cloud.aws.account.machines.values() if each.request is not None]


def _alive(cloud: CloudWorld) -> list[str]:
    return [each for each in _machines_of_requests(cloud) if cloud.aws.machine(each).live]
