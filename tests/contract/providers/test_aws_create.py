"""Launches on AWS: tokens, marks, images and places, and what becomes of them (cases C02, C05, C06, C07, C08, C57)."""

from dataclasses import replace

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind, marker_for
from gpulease.errors import (
    CapacityRefused,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
    QuotaRefused,
)
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ports import Ref
from gpulease.providers.aws.views import disk_marker
from gpulease_sim.aws import Fault, error_after, no_capacity

from tests.support.aws_world import (
    OTHER_PLAN,
    OTHER_ZONE,
    PLAN,
    REGION,
    STEADY,
    TOKEN,
    ZONE,
    AwsWorld,
    console,
    launch,
    owned,
    steady,
)
from tests.support.provider_contract import MARKER
from tests.support.provider_world import DEPLOYMENT, ref_of, request
from tests.support.stop_contract import look

SPOT_MARKER = marker_for(DEPLOYMENT, "l-bbbbbbbbbbbb.instance.1")


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


# --- create -----------------------------------------------------------------------------------------------------------


def test_c02_a_create_repeated_by_another_worker_is_the_same_machine(world: AwsWorld) -> None:
    made = launch(world)
    another = world.build(world.cloud)

    again = another.create_instance(request(world.offer(PlanKind.VM), MARKER, idempotency_token=TOKEN))

    assert again.provider_id == made.provider_id
    assert world.machines_made() == 1


def test_c05_everything_of_a_launch_is_marked_by_the_launch_itself(world: AwsWorld) -> None:
    world.set(instance=replace(STEADY, get_lag_seconds=(20, 20)))
    made = launch(world, offer=world.offer(PlanKind.VM, spot=True))

    assert world.calls("CreateTags") == 0
    objects = world.cloud.book.objects()
    assert {each.kind for each in objects} == {"instance", "volume", "spot_request"}
    expected = {"instance": MARKER, "volume": disk_marker(MARKER), "spot_request": MARKER}
    assert {each.kind: each.tags.get("gpulease-marker") for each in objects} == expected
    assert {each.tags.get("gpulease-deployment") for each in objects} == {DEPLOYMENT}
    assert [seen.provider_id for seen in world.provider.find(ref_of(made))] == [made.provider_id]


def test_a_fresh_id_that_is_not_found_is_looked_for_in_a_list(world: AwsWorld) -> None:
    world.set(instance=replace(STEADY, get_lag_seconds=(20, 20)))

    seen = world.provider.observe(ref_of(launch(world)))

    assert isinstance(seen, Observation) and seen.condition is Condition.PENDING


def test_c06_a_machine_that_is_pending_can_be_destroyed(world: AwsWorld) -> None:
    made = launch(world)
    world.advance(5)

    world.provider.destroy(ref_of(made))

    assert look(world, made).condition is Condition.DELETING
    world.advance(60)
    assert isinstance(world.provider.observe(ref_of(made)), Absent)
    assert not world.billed()


def test_c07_a_launch_that_was_made_with_other_parameters_is_that_machine(world: AwsWorld) -> None:
    made = launch(world)

    again = launch(world, user_data=b"#cloud-config\n{'other': 1}\n")

    assert again.provider_id == made.provider_id
    assert world.machines_made() == 1


def test_c07_a_launch_that_is_not_shown_yet_is_unclear_and_found_later(world: AwsWorld) -> None:
    world.hide_from_lists(30)
    made = launch(world)

    with pytest.raises(ProviderUnexpected):
        launch(world, user_data=b"#cloud-config\n{'other': 1}\n")

    world.advance(31)
    assert [seen.provider_id for seen in world.provider.find(ref_of(made))] == [made.provider_id]


def test_c08_each_offer_has_a_token_of_its_own(world: AwsWorld) -> None:
    world.sell_out(world.offer(PlanKind.VM))
    with pytest.raises(CapacityRefused):
        launch(world)

    other = launch(world, offer=world.offer(PlanKind.VM, plan=OTHER_PLAN))
    elsewhere = launch(world, offer=world.offer(PlanKind.VM, zone=OTHER_ZONE))

    assert (other.plan, elsewhere.zone) == (OTHER_PLAN, OTHER_ZONE)
    assert world.machines_made() == 2


@pytest.mark.parametrize("status", [400, 500, 503])
def test_c57_a_refusal_for_lack_of_capacity_is_one_call(world: AwsWorld, status: int) -> None:
    world.cloud.faults.add(no_capacity(status=status))

    with pytest.raises(CapacityRefused) as caught:
        launch(world)

    assert caught.value.facts.code == "InsufficientInstanceCapacity"
    assert world.creates_seen() == 1 and world.machines_made() == 0


def test_c57_a_throttled_launch_is_one_call_and_told_as_throttled(world: AwsWorld) -> None:
    world.cloud.faults.add(Fault(action="RunInstances", code="RequestLimitExceeded"))

    with pytest.raises(ProviderThrottled) as caught:
        launch(world)

    assert (caught.value.facts.status, world.creates_seen()) == (429, 1)


def test_an_error_of_the_server_leaves_a_launch_open_and_is_not_repeated(world: AwsWorld) -> None:
    world.cloud.faults.add(error_after("RunInstances"))

    with pytest.raises(ProviderUnavailable):
        launch(world)

    assert world.creates_seen() == 1
    assert len(world.provider.find(Ref(ResourceKind.INSTANCE, REGION, MARKER))) == 1


@pytest.mark.parametrize("executed", [False, True])
def test_a_code_that_nobody_knows_is_judged_by_what_is_shown(world: AwsWorld, executed: bool) -> None:
    world.cloud.faults.add(Fault(action="RunInstances", code="SomethingNew", status=400, execute=executed))

    if executed:
        assert launch(world).marker == MARKER
    else:
        with pytest.raises(ProviderUnexpected):
            launch(world)
    assert world.machines_made() == executed


def test_a_type_that_the_zone_does_not_have_is_no_capacity(world: AwsWorld) -> None:
    world.set(not_offered=frozenset({f"{ZONE}/{PLAN}"}))

    with pytest.raises(CapacityRefused):
        launch(world)


def test_a_spot_limit_is_a_quota(world: AwsWorld) -> None:
    world.set(spot_vcpu_limit=0)

    with pytest.raises(QuotaRefused):
        launch(world, offer=world.offer(PlanKind.VM, spot=True))


def test_a_machine_has_the_disk_of_its_offer_and_asks_for_tokens_of_its_metadata(world: AwsWorld) -> None:
    launch(world, offer=world.offer(PlanKind.VM).with_disk(500))

    (disk,) = [each for each in world.cloud.book.objects() if each.kind == "volume"]
    assert disk.size_gb == 500
    asked = next(call.params for call in world.cloud.calls if call.action == "RunInstances")
    assert asked["MetadataOptions.HttpTokens"] == "required"


def test_user_data_arrives_as_it_was_given_and_has_a_limit(world: AwsWorld) -> None:
    given = bytes(range(256)) * 64
    assert len(given) == world.provider.capabilities.max_user_data_bytes
    launch(world, user_data=given)

    (machine,) = [each for each in world.cloud.book.objects() if each.kind == "instance"]
    assert machine.user_data_bytes == given
    with pytest.raises(ProviderRejected):
        launch(world, SPOT_MARKER, user_data=given + b"x")
    assert world.machines_made() == 1


# --- images and places ------------------------------------------------------------------------------------------------


def test_the_second_image_is_taken_where_the_first_is_not_there(world: AwsWorld) -> None:
    (path,) = world.cloud.settings.image_parameters
    newer = path.replace("22.04", "24.04")
    world = AwsWorld(steady(image_parameters={newer: "dlami-24"}))

    launch(world)

    asked = next(call.params for call in world.cloud.calls if call.action == "RunInstances")
    assert asked["ImageId"] == world.cloud.image_id(REGION, newer)


@pytest.mark.parametrize("image", ["ami-0123456789abcdef0", "ssm:/no/such/parameter"])
def test_an_image_that_is_not_there_is_refused_before_anything_is_asked_for(world: AwsWorld, image: str) -> None:
    with pytest.raises(ProviderRejected):
        launch(world, image=image)

    assert world.creates_seen() == 0


def test_what_a_launch_needs_to_know_is_read_once_for_all_workers(world: AwsWorld) -> None:
    world = AwsWorld(shared=SqliteSharedReads())
    launch(world)
    another = world.build(world.cloud)

    another.create_instance(request(world.offer(PlanKind.VM), SPOT_MARKER, idempotency_token="another"))  # noqa: S106

    assert (world.calls("GetParameter"), world.calls("DescribeImages")) == (1, 1)


def test_one_group_lets_ssh_into_all_machines_and_is_no_leftover(world: AwsWorld) -> None:
    launch(world)
    another = world.build(world.cloud)
    another.create_instance(request(world.offer(PlanKind.VM), SPOT_MARKER, idempotency_token="another"))  # noqa: S106

    groups = console(world).describe_security_groups(Filters=[{"Name": "group-name", "Values": ["gpulease-dep1"]}])
    (group,) = groups["SecurityGroups"]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in group["IpPermissions"]] == [(22, 22)]
    assert world.calls("CreateSecurityGroup") == 1
    assert group["GroupId"] not in owned(world)


def test_a_group_whose_maker_was_cut_off_is_opened_by_the_next(world: AwsWorld) -> None:
    world.cloud.faults.add(Fault(action="AuthorizeSecurityGroupIngress", times=1, execute=False, cut=True))
    with pytest.raises(ProviderUnavailable):
        launch(world)

    launch(world)

    assert world.calls("CreateSecurityGroup") == 1
    asked = console(world).describe_security_groups(Filters=[{"Name": "group-name", "Values": ["gpulease-dep1"]}])
    assert asked["SecurityGroups"][0]["IpPermissions"]


def test_a_zone_without_a_subnet_of_ours_is_not_offered(world: AwsWorld) -> None:
    subnets = console(world).describe_subnets(Filters=[{"Name": "availability-zone", "Values": [OTHER_ZONE]}])
    chosen = subnets["Subnets"][0]["SubnetId"]
    narrow = AwsWorld(subnets={OTHER_ZONE: chosen})

    assert {offer.zone for offer in narrow.provider.offers()} == {OTHER_ZONE}
    assert narrow.provider.live(world.offer(PlanKind.VM)).in_stock is False


# --- becoming ready ---------------------------------------------------------------------------------------------------


def test_a_machine_is_ready_when_its_status_checks_are(world: AwsWorld) -> None:
    made = launch(world)
    world.advance(30)
    running = look(world, made)
    assert running.condition is Condition.PENDING and running.address and "initializing" in running.words
    (listed,) = world.provider.list_machines(world.provider.list_of(ref_of(made)))
    assert (listed.provider_id, listed.condition, listed.words) == (made.provider_id, running.condition, running.words)

    world.advance(100)

    assert look(world, made).condition is Condition.READY
    # A list need not show what nobody waits for any more.
    assert all(seen.condition is Condition.READY for seen in world.provider.list_machines(REGION))


def test_the_list_for_all_pollers_grows_with_what_is_in_motion_and_not_with_what_exists(world: AwsWorld) -> None:
    names = [marker_for(DEPLOYMENT, f"l-{n:012d}.instance.1") for n in range(12)]
    resting = [launch(world, name, idempotency_token=name) for name in names]
    world.advance(300)
    stopping, ending, *_ = resting
    starting = launch(world)
    world.provider.stop(ref_of(stopping))
    world.provider.destroy(ref_of(ending))
    before = len(world.cloud.calls)

    listed = world.provider.list_machines(REGION)

    conditions = {seen.provider_id: seen.condition for seen in listed}
    assert conditions == {
        starting.provider_id: Condition.PENDING,
        stopping.provider_id: Condition.STOPPING,
        ending.provider_id: Condition.DELETING,
    }
    assert len(world.cloud.calls) - before <= 2


def test_a_machine_whose_checks_fail_does_not_become_ready(world: AwsWorld) -> None:
    made = launch(world)
    world.advance(200)
    world.cloud.impair(made.provider_id)

    seen = look(world, made)

    assert seen.condition is Condition.PENDING and "impaired" in seen.words


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("Server.InsufficientInstanceCapacity", "no_capacity"),
        ("Client.VolumeLimitExceeded", "quota_exceeded"),
        ("Server.InternalError", "boot_failed"),
        ("Client.InternalError", "rejected"),
        ("Something.New", ""),
    ],
)
def test_a_launch_that_ends_by_itself_tells_why(world: AwsWorld, code: str, reason: str) -> None:
    world.set(instance=replace(STEADY, launch_failure=code))
    made = launch(world)
    world.advance(60)

    seen = world.provider.observe(ref_of(made))

    assert isinstance(seen, Absent)
    assert (seen.ended, seen.reason) == (True, reason)
    assert world.provider.find(ref_of(made)) == []


def test_a_spot_machine_that_is_taken_back_was_interrupted(world: AwsWorld) -> None:
    made = launch(world, offer=world.offer(PlanKind.VM, spot=True))
    world.advance(200)
    world.cloud.reclaim(made.provider_id, 120)
    world.advance(300)

    seen = world.provider.observe(ref_of(made))

    assert isinstance(seen, Absent) and seen.ended and seen.reason == "interrupted"
    assert not world.billed() and owned(world) == set()
