"""How machines, disks, spot requests and networks end on AWS (cases C13, C22, C24, C25, C54)."""

from dataclasses import replace

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind, marker_for
from gpulease.errors import (
    ProviderBusy,
    ProviderRejected,
)
from gpulease.ports import NetworkRequest, Ref
from gpulease.providers.aws.views import disk_marker
from gpulease_sim.aws.faults import Fault

from tests.support.aws_world import (
    PLAN,
    REGION,
    STEADY,
    AwsWorld,
    console,
    launch,
    owned,
)
from tests.support.provider_contract import MARKER, NETWORK_MARKER, ready_machine
from tests.support.provider_world import DEPLOYMENT, ref_of
from tests.support.stop_contract import look
from tests.support.volume_contract import attached, ready_volume

SPOT_MARKER = marker_for(DEPLOYMENT, "l-bbbbbbbbbbbb.instance.1")


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


def test_c13_an_unknown_machine_keeps_no_other_from_its_end(world: AwsWorld) -> None:
    made = launch(world)
    unknown = replace(ref_of(made), provider_id="i-0123456789abcdef0")

    world.provider.destroy(unknown)
    world.provider.destroy(ref_of(made))

    ends = [call.params for call in world.cloud.calls if call.action == "TerminateInstances"]
    assert ends and not [params for params in ends if "InstanceId.2" in params]
    world.advance(60)
    assert isinstance(world.provider.observe(unknown), Absent)
    assert not world.billed()


def test_c54_a_machine_that_is_shown_as_terminated_is_left_alone(world: AwsWorld) -> None:
    seen = ready_machine(world, PlanKind.VM)
    world.provider.destroy(ref_of(seen))
    world.advance(60)
    ended = world.calls("TerminateInstances")

    world.provider.destroy(ref_of(seen))

    assert world.calls("TerminateInstances") == ended
    assert owned(world) == set()
    assert world.provider.list_machines(REGION) == []
    for act in (world.provider.stop, world.provider.start):
        with pytest.raises(ProviderRejected):
            act(ref_of(seen))
    world.advance(3600)
    assert isinstance(world.provider.observe(ref_of(seen)), Absent)


def test_a_protected_machine_stays_and_is_told_as_busy(world: AwsWorld) -> None:
    seen = ready_machine(world, PlanKind.VM)
    console(world).modify_instance_attribute(InstanceId=seen.provider_id, DisableApiTermination={"Value": True})

    with pytest.raises(ProviderBusy):
        world.provider.destroy(ref_of(seen))

    assert look(world, seen).condition is Condition.READY


def test_c24_disks_of_a_machine_go_with_it_and_its_cache_stays(world: AwsWorld) -> None:
    machine, cache = ready_machine(world, PlanKind.VM), ready_volume(world)
    attached(world, cache, machine)
    device = {"DeviceName": "/dev/sda1", "Ebs": {"DeleteOnTermination": False}}
    console(world).modify_instance_attribute(InstanceId=machine.provider_id, BlockDeviceMappings=[device])

    world.provider.destroy(ref_of(machine))
    world.advance(120)

    assert world.billed() == {cache.provider_id}
    assert owned(world) == {cache.provider_id}


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidParameterValue", "SomethingNew"])
def test_a_disk_that_cannot_be_taken_along_does_not_keep_its_machine(world: AwsWorld, code: str) -> None:
    machine = ready_machine(world, PlanKind.VM)
    device = {"DeviceName": "/dev/sda1", "Ebs": {"DeleteOnTermination": False}}
    console(world).modify_instance_attribute(InstanceId=machine.provider_id, BlockDeviceMappings=[device])
    world.cloud.faults.add(Fault(action="ModifyInstanceAttribute", code=code))

    world.provider.destroy(ref_of(machine))
    world.advance(120)

    (left,) = world.provider.list_owned(REGION, DEPLOYMENT)
    assert left.kind is ResourceKind.VOLUME, "the sweep finds it; the machine is gone"
    world.provider.destroy(ref_of(left))
    world.advance(60)
    assert not world.billed()


def test_c24_a_disk_that_survived_its_machine_is_shown_and_can_be_given_back(world: AwsWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    (disk,) = [each.id for each in world.cloud.book.objects() if each.kind == "volume"]
    assert disk not in owned(world)
    device = {"DeviceName": "/dev/sda1", "Ebs": {"DeleteOnTermination": False}}
    console(world).modify_instance_attribute(InstanceId=machine.provider_id, BlockDeviceMappings=[device])
    world.remove_by_hand(machine.provider_id)
    world.advance(120)

    (left,) = world.provider.list_owned(REGION, DEPLOYMENT)

    assert (left.kind, left.provider_id, left.marker) == (ResourceKind.VOLUME, disk, disk_marker(MARKER))
    world.provider.destroy(ref_of(left))
    world.advance(60)
    assert not world.billed()


def _persistent(world: AwsWorld) -> Observation:
    """A machine with our marks under a persistent spot request, as somebody else may have made it."""
    tags = [{"Key": "gpulease-marker", "Value": SPOT_MARKER}, {"Key": "gpulease-deployment", "Value": DEPLOYMENT}]
    console(world).run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId=world.cloud.image_id(REGION),
        InstanceType=PLAN,
        InstanceMarketOptions={
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"},
        },
        TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("instance", "spot-instances-request")],
    )
    world.advance(200)
    (seen,) = world.provider.find(Ref(ResourceKind.INSTANCE, REGION, SPOT_MARKER))
    return seen


def test_c25_a_persistent_request_is_cancelled_before_its_machine_ends(world: AwsWorld) -> None:
    machine = _persistent(world)

    world.provider.destroy(ref_of(machine))
    world.advance(600)

    assert world.provider.find(ref_of(machine)) == [] and owned(world) == set()
    assert not world.billed()


def test_c25_a_machine_that_only_its_request_tells_of_is_found_and_ended(world: AwsWorld) -> None:
    machine = _persistent(world)
    world.remove_by_hand(machine.provider_id)
    world.advance(600)

    (again,) = world.provider.find(ref_of(machine))

    assert again.provider_id.startswith("i-") and again.provider_id != machine.provider_id
    assert again.marker == SPOT_MARKER and owned(world) == {again.provider_id}
    world.provider.destroy(ref_of(again))
    world.advance(600)
    assert world.provider.find(ref_of(again)) == [] and owned(world) == set()
    assert not world.billed()


def test_c25_an_open_request_is_a_machine_to_come(world: AwsWorld) -> None:
    machine = _persistent(world)
    world.set(capacity={f"*/{PLAN}": 0})
    world.remove_by_hand(machine.provider_id)
    world.advance(600)

    (request_,) = world.provider.find(ref_of(machine))

    assert request_.provider_id.startswith("sir-") and owned(world) == {request_.provider_id}
    assert look(world, request_).condition is Condition.PENDING
    world.provider.destroy(ref_of(request_))
    world.set(capacity={})
    world.advance(600)
    assert isinstance(world.provider.observe(ref_of(request_)), Absent)
    assert owned(world) == set() and not world.billed()


def test_c22_a_network_goes_when_the_last_interface_has_let_go_of_it(world: AwsWorld) -> None:
    world.set(instance=replace(STEADY, interface_linger_seconds=(360, 360)))
    network = world.provider.create_network(NetworkRequest(REGION, NETWORK_MARKER))
    machine = launch(world, network_provider_id=network.provider_id)
    world.advance(200)
    assert network.provider_id in look(world, machine).network_ids
    world.provider.destroy(ref_of(machine))
    world.advance(60)
    assert isinstance(world.provider.observe(ref_of(machine)), Absent)

    for _ in range(2):
        with pytest.raises(ProviderBusy):
            world.provider.destroy(ref_of(network))
        world.advance(100)
    world.advance(300)
    world.provider.destroy(ref_of(network))

    assert isinstance(world.provider.observe(ref_of(network)), Absent)
    again = world.provider.create_network(NetworkRequest(REGION, NETWORK_MARKER))
    assert again.provider_id != network.provider_id


def test_a_network_asked_for_twice_is_one(world: AwsWorld) -> None:
    made = world.provider.create_network(NetworkRequest(REGION, NETWORK_MARKER))

    again = world.provider.create_network(NetworkRequest(REGION, NETWORK_MARKER))

    assert again.provider_id == made.provider_id


def test_members_of_a_network_reach_each_other_on_every_port(world: AwsWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    network = world.provider.create_network(NetworkRequest(REGION, NETWORK_MARKER))

    world.provider.attach_network(ref_of(machine), ref_of(network))
    world.provider.attach_network(ref_of(machine), ref_of(network))

    (group,) = console(world).describe_security_groups(GroupIds=[network.provider_id])["SecurityGroups"]
    (rule,) = group["IpPermissions"]
    assert rule["IpProtocol"] == "-1"
    assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == [network.provider_id]
    assert look(world, machine).network_ids == (network.provider_id,)
    assert look(world, machine).condition is Condition.READY
