"""C29, C31, C57 and C64 on AWS: machines that end while they boot, a limit of launches per second, and credentials that
expire in the middle of a wait."""

from dataclasses import replace

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState
from gpulease_local.deps import Account
from gpulease_local.simulate.virtual import VirtualStack
from gpulease_sim.aws.settings import BUCKETS

from tests.cases.conftest import NewCloud
from tests.support.cloud_world import ONE_AWS, ONE_SPOT, PLAN, R_SECONDS, ZONE, CloudWorld

S = LeaseState
MINUTE = 60.0
ROLE = "arn:aws:iam::111122223333:role/gpulease"


@pytest.mark.parametrize("agents", [False, True])
def test_c29_a_spot_machine_taken_back_while_it_boots_is_noticed_within_a_poll(
    new_cloud: NewCloud, agents: bool
) -> None:
    cloud = new_cloud(workload_of=(lambda name: None) if agents else None)
    cloud.machine(1, reclaim_seconds=40, notice_seconds=20, guest_boot_seconds=600)

    lease_id = cloud.up(**ONE_SPOT, policy={"idle": {"enabled": False}})
    cloud.wait(lambda: len(cloud.lease(lease_id).attempts) > 1, 300, "nobody noticed")
    noticed = cloud.event_at(lease_id, "attempt_failed")
    cloud.until(lease_id, S.RUNNING, within=600)

    first, second = cloud.lease(lease_id).attempts
    [taken, kept] = cloud.ours()
    assert noticed <= cloud.gone_at(taken.id) + 60
    assert (first.reason, second.reason) == (Reason.INTERRUPTED, None)
    assert cloud.machine_of(lease_id).provider_id == kept.id
    assert [each.state for each in cloud.aws.account.requests.values()].count("active") == 1, "none of the first"
    cloud.assert_right_at_the_end()


def test_c29_without_another_try_the_request_ends_as_interrupted(cloud: CloudWorld) -> None:
    cloud.machine(1, reclaim_seconds=40, notice_seconds=20, guest_boot_seconds=600)

    lease_id = cloud.up(**ONE_SPOT, max_attempts=1)
    cloud.until(lease_id, S.RELEASED, within=600)

    assert cloud.lease(lease_id).reason is Reason.INTERRUPTED
    assert cloud.existing() == []
    cloud.assert_right_at_the_end()


def test_c31_a_launch_that_is_accepted_and_ends_for_lack_of_capacity_is_no_capacity(cloud: CloudWorld) -> None:
    cloud.machine(1, launch_failure="Server.InsufficientInstanceCapacity", running_seconds=8)

    lease_id = cloud.up()
    cloud.wait(lambda: len(cloud.ours()) == 2, 120, "no other zone was tried")
    tried = cloud.now
    cloud.until(lease_id, S.RUNNING, within=300)

    first, second = cloud.lease(lease_id).attempts
    assert (first.reason, second.reason) == (Reason.NO_CAPACITY, None)
    assert first.offer.zone != second.offer.zone
    [failed, kept] = cloud.ours()
    assert tried <= cloud.gone_at(failed.id) + 30
    assert cloud.machine_of(lease_id).provider_id == kept.id
    cloud.assert_right_at_the_end()


def test_c57_sixty_launches_at_two_per_second(new_cloud: NewCloud) -> None:
    launches = {"RunInstances": BUCKETS["RunInstances"]}
    cloud = new_cloud(buckets=launches, capacity={f"{ZONE}/{PLAN}": 20})
    leases = [cloud.up(**ONE_AWS, name=f"box-{number}") for number in range(60)]

    cloud.wait(lambda: all(_settled(cloud, each) for each in leases), 3 * MINUTE, "not all were launched or failed")

    asked = cloud.calls("RunInstances")
    assert len(asked) < 2 * 60
    refused = [call for call in asked if call.code == "InsufficientInstanceCapacity"]
    tokens = [call.params["ClientToken"] for call in refused]
    assert refused and len(tokens) == len(set(tokens)), "a lack of capacity is not asked about twice"
    assert len(cloud.existing()) <= 60
    cloud.wait(lambda: {cloud.lease(each).state for each in leases} <= {S.RUNNING, S.RELEASED}, 600, "under way")
    ended = [cloud.lease(each) for each in leases if cloud.lease(each).state is S.RELEASED]
    assert all(lease.reason in (Reason.NO_CAPACITY, Reason.THROTTLED) for lease in ended)
    assert len(cloud.existing()) == 60 - len(ended)
    cloud.assert_right_at_the_end()


def _settled(cloud: CloudWorld, lease_id: str) -> bool:
    """Launched, or listed as failed with its reason."""
    record = cloud.record(lease_id)
    if record.lease.state is S.RELEASED:
        return record.lease.reason is not None
    return any(r.provider_id and r.state is ResourceState.HELD for r in record.resources)


class AsRole(VirtualStack):
    """A stack that works under a role, whose credentials are temporary."""

    def _account(self, name: str) -> Account:
        account = super()._account(name)
        return replace(account, options=replace(account.options, role_arn=ROLE))  # type: ignore[type-var]


class AllBut(frozenset[str]):
    """Every access key but these: credentials that came to their end."""

    def __contains__(self, key: object) -> bool:
        return not super().__contains__(key)


def _slow(new_cloud: NewCloud) -> CloudWorld:
    """A machine whose checks take 13 minutes, and credentials that are in use from the first call on."""
    cloud = new_cloud(stack=AsRole)
    cloud.machine(ok_seconds=13 * MINUTE)
    return cloud


def _keys(cloud: CloudWorld) -> set[str]:
    """Access keys that EC2 has seen."""
    return cloud.keys_seen - {"simulated"}


def test_c64_on_aws_run_1_credentials_are_renewed_once_and_the_wait_goes_on(new_cloud: NewCloud) -> None:
    cloud = _slow(new_cloud)
    lease_id = cloud.up()
    cloud.at(5 * MINUTE)
    [old] = _keys(cloud)
    cloud.set(access_keys=AllBut({old}), refused_code="ExpiredToken")
    expired = cloud.now

    cloud.until(lease_id, S.RUNNING, within=20 * MINUTE)

    assert len([call for call in cloud.sent if call.code == "ExpiredToken"]) == 1
    assert len(cloud.calls("AssumeRole", since=expired)) == 1
    assert len(_keys(cloud)) == 2
    assert [a.reason for a in cloud.lease(lease_id).attempts] == [None]
    assert "ProviderAuthFailed" not in {name for name, _ in cloud.stack.log.alarms}
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("code", ["ExpiredToken", "AuthFailure", "UnauthorizedOperation"])
@pytest.mark.parametrize("until", [10 * MINUTE, 40 * MINUTE], ids=["back-before-the-deadline", "after-the-deadline"])
def test_c64_on_aws_run_2_nothing_is_concluded_until_credentials_are_back(
    new_cloud: NewCloud, until: float, code: str
) -> None:
    cloud = new_cloud()
    cloud.machine(ok_seconds=13 * MINUTE)
    lease_id = cloud.up()
    cloud.at(2 * MINUTE)
    lost = cloud.now
    cloud.fault(code=code, until_seconds=until)

    cloud.at(lost + MINUTE)
    assert "accept the key" in cloud.lease(lease_id).waiting_for
    assert [name for name, _ in cloud.stack.log.alarms] == ["ProviderAuthFailed"]
    while cloud.now < until - 10:
        machine = cloud.machine_of(lease_id)
        assert (cloud.lease(lease_id).state, machine.state) == (S.PROVISIONING, ResourceState.HELD)
        assert len(cloud.costing()) == 1, "on the books as billed, and billed"
        cloud.run_for(60)
    running = cloud.until(lease_id, S.RUNNING, within=20 * MINUTE)

    assert running <= max(until, 14 * MINUTE) + R_SECONDS
    assert [a.reason for a in cloud.lease(lease_id).attempts] == [None]
    cloud.no_faults()
    cloud.assert_right_at_the_end()


def test_c64_on_aws_what_is_being_given_back_waits_for_the_credentials(cloud: CloudWorld) -> None:
    lease_id = cloud.running()
    begins = cloud.now
    cloud.fault(code="ExpiredToken", until_seconds=begins + 40 * MINUTE)

    cloud.stack.down(lease_id)
    while cloud.now < begins + 40 * MINUTE - 60:
        machine = cloud.machine_of(lease_id)
        assert (cloud.lease(lease_id).state, machine.state) == (S.RELEASING, ResourceState.RELEASING)
        cloud.run_for(120)
    done = cloud.until(lease_id, S.RELEASED, within=20 * MINUTE)

    assert done <= begins + 40 * MINUTE + R_SECONDS + 60
    cloud.assert_right_at_the_end()
