"""C30, C32, C33, C72: machines whose agent says that something is wrong, or nothing at all; C60 with agents."""

import base64
import random
from collections.abc import Callable, Iterator

import pytest
from gpulease.domain.lease import Lease, LeaseState, Reason
from gpulease.domain.user_data import START_SCRIPT_PATH, agent_config_in, read_user_data
from gpulease.steps.poll_readiness import WAITS_FOR_AGENT
from gpulease_local.asl import Status
from gpulease_local.simulate.virtual import ApiRefused, VirtualStack
from gpulease_local.simulate.workloads import Silence, Workload
from gpulease_sim.vultr import MachineRule

from tests.support.case_world import ONE_METAL, ONE_VM
from tests.support.ec2_world import steady as steady_aws
from tests.support.pause_world import ONE_AWS
from tests.support.vultr_world import steady

FOREVER = 10.0**9
SILENT = Workload("silent", (), (Silence(0, FOREVER),))


def a_stack(*rules: MachineRule) -> VirtualStack:
    """A stack whose machines have agents; those of leases called `silent-...` never report."""
    return VirtualStack(
        settings=steady(rules=rules), workload_of=lambda name: SILENT if name.startswith("silent") else None
    ).load()


@pytest.fixture
def stacks() -> Iterator[Callable[..., VirtualStack]]:
    """Makes one stack as `a_stack` does."""
    made: list[VirtualStack] = []

    def make(*rules: MachineRule) -> VirtualStack:
        made.append(a_stack(*rules))
        return made[-1]

    yield make
    for stack in made:
        stack.close()


Stacks = Callable[..., VirtualStack]


def ended(stack: VirtualStack, lease: str, within: float = 3600) -> Lease:
    """The lease, released for good."""
    assert stack.run_until(lambda: stack.lease(lease).state is LeaseState.RELEASED, limit_seconds=within)
    return stack.lease(lease)


def billed(stack: VirtualStack) -> int:
    """Machines that cost money now."""
    return sum(each.kind == "instance" and each.destroyed is None for each in stack.cloud.book_objects())


def test_c30_a_machine_without_its_gpus_is_replaced_and_the_second_one_is_used(stacks: Stacks) -> None:
    stack = stacks(MachineRule(nth=(1,), change={"missing_gpus": 1}))

    lease = stack.up(**ONE_VM)
    stack.run_until(lambda: stack.lease(lease).state is LeaseState.RUNNING, limit_seconds=1800)
    stack.run_for(900)

    first, second = stack.lease(lease).attempts
    assert (first.reason, first.detail) == (Reason.GPU_CHECK_FAILED, "0/1 GPUs are there")
    assert second.offer.key == first.offer.key and second.reason is None
    assert stack.lease(lease).state is LeaseState.RUNNING
    assert billed(stack) == 1


def test_c30_a_second_machine_without_its_gpus_ends_the_request(stacks: Stacks) -> None:
    stack = stacks(MachineRule(change={"missing_gpus": 1}))

    lease = ended(stack, stack.up(**ONE_METAL), within=6 * 3600)

    assert lease.reason is Reason.GPU_CHECK_FAILED
    assert "3/4 GPUs are there" in lease.reason_detail
    assert len(lease.attempts) == 2
    assert lease.running_at is None
    assert billed(stack) == 0


def test_c32_machines_whose_agent_never_reports_are_ended_at_their_deadline(stacks: Stacks) -> None:
    stack = stacks()
    names = [f"{'silent' if number in (3, 7) else 'ready'}-{number}" for number in range(10)]
    leases = {name: stack.up(**ONE_VM, name=name) for name in names}

    stack.run_for(1500)

    for name, lease_id in leases.items():
        lease = stack.lease(lease_id)
        if name.startswith("ready"):
            assert lease.state is LeaseState.RUNNING
        else:
            assert (lease.state, lease.reason) == (LeaseState.RELEASED, Reason.NOT_READY_IN_TIME)
            assert "its agent never reported" in lease.reason_detail
    assert billed(stack) == 8


def test_c32_where_asked_for_such_a_machine_is_replaced(stacks: Stacks) -> None:
    stack = stacks()

    lease = stack.up(gpu=["L40S"], plan_kinds=["vm"], name="silent-1", retry_not_ready=True, max_attempts=2)

    first, second = ended(stack, lease, within=7200).attempts
    assert (first.reason, second.reason) == (Reason.NOT_READY_IN_TIME, Reason.NOT_READY_IN_TIME)
    assert first.offer.key != second.offer.key
    assert billed(stack) == 0


def test_c72_no_workflow_waits_for_an_agent_beyond_the_deadline(stacks: Stacks) -> None:
    stack = stacks()
    lease = stack.up(**ONE_VM, name="silent-1")
    stack.run_until(lambda: stack.lease(lease).waiting_for == WAITS_FOR_AGENT, limit_seconds=1800)
    [attempt] = stack.lease(lease).attempts

    stack.run_for(attempt.ready_deadline.timestamp() + 600 - stack.clock.time())

    assert stack.lease(lease).reason is Reason.NOT_READY_IN_TIME
    assert [each.name for each in stack.engine.executions() if each.status is Status.RUNNING] == []
    assert billed(stack) == 0


def test_c33_a_start_script_that_failed_is_a_failed_boot_and_nothing_else(stacks: Stacks) -> None:
    stack = stacks()
    lease = stack.up(**ONE_VM, name="silent-1", start_script="exit 7\n")
    stack.run_until(lambda: stack.lease(lease).waiting_for == WAITS_FOR_AGENT, limit_seconds=1800)
    [machine] = [each for each in stack.cloud.book_objects() if each.user_data]
    config = agent_config_in(machine.user_data_bytes)
    assert config is not None

    stack.report(config["token"], {"gpus": 1, "start_script": "failed", "start_script_exit": 7})

    done = ended(stack, lease)
    assert done.reason is Reason.BOOT_FAILED
    assert "ended with 7" in done.reason_detail
    assert len(done.attempts) == 1


def test_a_first_report_moves_the_lease_at_once(stacks: Stacks) -> None:
    stack = stacks()
    lease = stack.up(**ONE_VM, name="silent-1")
    stack.run_until(lambda: stack.lease(lease).waiting_for == WAITS_FOR_AGENT, limit_seconds=1800)
    [machine] = [each for each in stack.cloud.book_objects() if each.user_data]
    config = agent_config_in(machine.user_data_bytes)
    assert config is not None

    answer = stack.report(config["token"], {"gpus": 1})

    assert stack.lease(lease).state is LeaseState.RUNNING, "in the request that carried the report"
    assert answer is not None and answer["flush"] is False


@pytest.mark.parametrize("agents", [False, True])
def test_c60_what_ec2_does_not_carry_is_refused_before_anything_exists(agents: bool) -> None:
    stack = VirtualStack(
        providers=("aws",), aws_settings=steady_aws(), workload_of=(lambda name: None) if agents else None
    ).load()
    script = base64.b64encode(random.Random(60).randbytes(17_000)).decode()  # noqa: S311 - nothing secret
    try:
        with pytest.raises(ApiRefused, match="16384 are taken") as refused:
            stack.up(**ONE_AWS, start_script_base64=script)

        [field] = refused.value.problem["errors"]
        assert (refused.value.status, field["field"]) == (422, "start_script")
        assert "17000 bytes" in field["message"]
        assert stack.leases() == []
        assert list(stack.aws.book.objects()) == []
    finally:
        stack.close()


def test_c60_eight_kilobytes_that_nothing_makes_smaller_are_delivered_beside_the_agent() -> None:
    stack = VirtualStack(providers=("aws",), aws_settings=steady_aws(), workload_of=lambda name: None).load()
    script = random.Random(8).randbytes(8192)  # noqa: S311 - nothing secret
    try:
        lease = stack.up(**ONE_AWS, start_script_base64=base64.b64encode(script).decode())
        stack.run_until(lambda: stack.lease(lease).state is LeaseState.RUNNING, limit_seconds=3600)

        assert stack.lease(lease).state is LeaseState.RUNNING
        [machine] = [each for each in stack.aws.book.objects() if each.kind == "instance"]
        files = {f["path"]: f["content"] for f in read_user_data(machine.user_data_bytes)["write_files"]}
        assert base64.b64decode(files[START_SCRIPT_PATH]) == script
        assert len(machine.user_data_bytes) <= 16384
    finally:
        stack.close()
