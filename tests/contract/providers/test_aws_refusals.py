"""Credentials and codes of AWS: what is renewed, what is judged by what is shown (case C64)."""

from dataclasses import replace

import pytest
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import marker_for
from gpulease.errors import (
    ProviderAuthFailed,
    ProviderBusy,
    ProviderRejected,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import NetworkRequest
from gpulease_sim.aws import Fault, auth_lost

from tests.support.aws_world import REGION, AwsWorld, launch, owned
from tests.support.provider_contract import NETWORK_MARKER, ready_machine
from tests.support.provider_world import DEPLOYMENT, ref_of
from tests.support.stop_contract import LONGEST_STOP_SECONDS, look
from tests.support.volume_contract import ready_volume


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


def test_c64_expired_credentials_are_renewed_once_and_the_call_goes_on(world: AwsWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(replace(auth_lost(), times=1))

    assert look(world, machine).condition is Condition.READY


def test_c64_credentials_that_stay_expired_are_told_and_conclude_nothing(world: AwsWorld) -> None:
    machine = ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(auth_lost())
    before = len(world.cloud.calls)

    for call in (world.provider.observe, world.provider.find, world.provider.destroy):
        with pytest.raises(ProviderAuthFailed):
            call(ref_of(machine))

    assert len(world.cloud.calls) - before == 6
    assert not world.slept
    world.heal()
    assert look(world, machine).condition is Condition.READY


def test_c64_a_role_is_assumed_anew_when_its_time_is_over(world: AwsWorld) -> None:
    role = "arn:aws:iam::123456789012:role/gpulease-research"
    world = AwsWorld(role_arn=role, external_id="shared-secret")
    machine = ready_machine(world, PlanKind.VM)
    assumed = [call.params for call in world.cloud.calls if call.action == "AssumeRole"]
    assert [(call["RoleArn"], call["ExternalId"]) for call in assumed][:1] == [(role, "shared-secret")]

    world.cloud.faults.add(Fault(service="ec2", code="ExpiredToken", times=1))

    assert look(world, machine).condition is Condition.READY
    assert world.calls("AssumeRole") == len(assumed) + 1


def test_who_we_are_is_asked_once_per_credentials(world: AwsWorld) -> None:
    assert world.provider.identity() == world.provider.identity() == world.cloud.settings.account_id
    assert world.calls("GetCallerIdentity") == 1

    world.cloud.faults.add(Fault(action="DescribeVolumes", code="ExpiredToken", times=1))
    list(world.provider.list_owned(REGION, DEPLOYMENT))

    assert world.provider.identity() == world.cloud.settings.account_id
    assert world.calls("GetCallerIdentity") == 2


NEW_CODE = Fault(code="SomethingNew", status=400, execute=False)


@pytest.mark.parametrize("action", ["TerminateInstances", "StopInstances", "DeleteSecurityGroup", "DeleteVolume"])
def test_a_refusal_that_nobody_knows_is_not_now_as_long_as_the_thing_is_there(world: AwsWorld, action: str) -> None:
    machine, volume = ready_machine(world, PlanKind.VM), ready_volume(world)
    network = world.provider.create_network(NetworkRequest(REGION, NETWORK_MARKER))
    world.cloud.faults.add(replace(NEW_CODE, action=action))
    act, on = {
        "TerminateInstances": (world.provider.destroy, machine),
        "StopInstances": (world.provider.stop, machine),
        "DeleteSecurityGroup": (world.provider.destroy, network),
        "DeleteVolume": (world.provider.destroy, volume),
    }[action]

    with pytest.raises(ProviderBusy):
        act(ref_of(on))

    assert isinstance(world.provider.observe(ref_of(on)), Observation)


@pytest.mark.parametrize("executed", [False, True])
def test_an_attach_that_is_refused_with_a_new_code_is_judged_by_the_volume(world: AwsWorld, executed: bool) -> None:
    machine, volume = ready_machine(world, PlanKind.VM), ready_volume(world)
    world.cloud.faults.add(replace(NEW_CODE, action="AttachVolume", execute=executed))

    if executed:
        world.provider.attach_volume(ref_of(volume), ref_of(machine))
    else:
        with pytest.raises(ProviderBusy):
            world.provider.attach_volume(ref_of(volume), ref_of(machine))
    world.advance(30)
    assert look(world, volume).attached is executed


@pytest.mark.parametrize("executed", [False, True])
def test_a_start_that_is_refused_with_a_new_code_is_judged_by_the_machine(world: AwsWorld, executed: bool) -> None:
    machine = ready_machine(world, PlanKind.VM)
    world.provider.stop(ref_of(machine))
    world.advance(LONGEST_STOP_SECONDS)
    world.cloud.faults.add(replace(NEW_CODE, action="StartInstances", execute=executed))

    if executed:
        world.provider.start(ref_of(machine))
    else:
        with pytest.raises(ProviderUnexpected):
            world.provider.start(ref_of(machine))
    assert look(world, machine).condition is (Condition.PENDING if executed else Condition.STOPPED)


def test_a_failed_page_is_a_failed_list(world: AwsWorld) -> None:
    ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(Fault(action="DescribeSpotInstanceRequests", code="InternalError"))

    with pytest.raises(ProviderUnavailable):
        list(world.provider.list_owned(REGION, DEPLOYMENT))

    # Two repeats of the read, none of a change.
    assert len(world.slept) == 2


def test_a_region_that_is_not_open_to_the_account_is_refused_and_not_empty(world: AwsWorld) -> None:
    with pytest.raises(ProviderAuthFailed):
        list(world.provider.list_owned("ap-southeast-3", DEPLOYMENT))
    with pytest.raises(ProviderRejected):
        list(world.provider.list_owned("nowhere", DEPLOYMENT))


def test_c50_all_pages_of_all_lists_are_read_and_a_failed_one_fails_the_list() -> None:
    world = AwsWorld(page_size=5)
    made = {launch(world, marker(n), idempotency_token=marker(n)).provider_id for n in range(1, 13)}
    volumes = {ready_volume(world, marker_for(DEPLOYMENT, f"c-aaaaaaaaaaaa.volume.{n}")).provider_id for n in (1, 2)}
    networks = {
        world.provider.create_network(
            NetworkRequest(REGION, marker_for(DEPLOYMENT, f"n-aaaaaaaaaaaa.network.{n}"))
        ).provider_id
        for n in range(1, 8)
    }

    assert owned(world) == made | volumes | networks
    assert {seen.provider_id for seen in world.provider.list_machines(REGION)} == made

    world.cloud.faults.add(Fault(action="DescribeInstances", code="InternalError", params="NextToken="))
    for listing in (lambda: owned(world), lambda: world.provider.list_machines(REGION)):
        with pytest.raises(ProviderUnavailable):
            listing()


def marker(number: int) -> str:
    return marker_for(DEPLOYMENT, f"l-aaaaaaaaaaaa.instance.{number}")
