"""C43, C45, C46, C47, C51: idleness as the agents on the machines measure it, silence, and the owner's word. The other
clocks of a policy are in `test_policy_clocks.py`, windows in `test_schedules.py`."""

from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.policy import Signal
from gpulease.ports import Change
from gpulease_local.simulate.workloads import Session, Silence, Workload

from tests.cases.conftest import NewCloud
from tests.support.cache_world import STEADY_BLOCK, USES_MODELS, Caches
from tests.support.cloud_world import ONE_AWS, R_SECONDS, CloudWorld

S = LeaseState
MINUTE, HOUR = 60.0, 3600.0
LIMIT = 5 * MINUTE
IDLE: dict[str, Any] = {"policy": {"idle": {"after_seconds": int(LIMIT)}}}
VULTR = {"providers": ["vultr"], "regions": ["ewr"], "plans": ["vcg-l40s-16c-180g-48vram"], "plan_kinds": ["vm"]}
FOREVER = 10.0**9


@pytest.fixture
def reworded() -> bool:
    """Nothing here depends on what a provider says: once is enough."""
    return False


def works(*sessions: tuple[float, float], signal: Signal = Signal.GPU, silent_from: float = FOREVER) -> Workload:
    """Its user works from T+ to T+, and so on."""
    silences = (Silence(silent_from, FOREVER),)
    return Workload("by hand", tuple(Session(a, b, signal) for a, b in sessions), silences)


def used_like(new_cloud: NewCloud, workload: Workload, *providers: str) -> CloudWorld:
    """A world in which all machines are used like this."""
    return new_cloud(*providers, workload_of=lambda name: workload, vultr={"block": STEADY_BLOCK})


def running_at(cloud: CloudWorld, provider: str = "aws") -> str:
    """A machine with an idle limit that can be paused there: at Vultr with a cache."""
    if provider == "aws":
        return cloud.running(**ONE_AWS, **IDLE)
    Caches(cloud.stack).make()
    return cloud.running(**VULTR, **USES_MODELS, **IDLE)


def decided_at(cloud: CloudWorld, lease_id: str, state: LeaseState = S.PAUSING) -> float:
    """T+ of the first write that says so."""
    return next(at for at, whose, what in cloud.states if whose == lease_id and what is state)


def why(cloud: CloudWorld, lease_id: str) -> Reason | None:
    """For which reason it is paused."""
    pause = cloud.lease(lease_id).pause
    return pause.reason if pause is not None else None


@pytest.mark.parametrize("signal", [Signal.GPU, Signal.CONNECTIONS])
@pytest.mark.parametrize("provider", ["aws", "vultr"])
def test_c43_the_second_job_resets_the_idle_clock(new_cloud: NewCloud, provider: str, signal: Signal) -> None:
    first_ends, second_ends = HOUR, 2 * HOUR + 4 * MINUTE
    jobs = works((0, first_ends), (first_ends + 4 * MINUTE, second_ends), signal=signal)
    cloud = used_like(new_cloud, jobs, provider)
    lease_id = running_at(cloud, provider)

    cloud.at(second_ends)
    assert cloud.lease(lease_id).state is S.RUNNING, "no stop 5 minutes after the first job, nor during the second"
    cloud.until(lease_id, S.PAUSED, within=LIMIT + 2 * R_SECONDS)

    assert S.PAUSING in cloud.states_of(lease_id)
    assert second_ends + LIMIT <= decided_at(cloud, lease_id) <= second_ends + LIMIT + R_SECONDS
    assert why(cloud, lease_id) is Reason.IDLE
    assert cloud.costing() == []
    cloud.assert_right_at_the_end()


def test_c45_a_busy_wrapper_that_died_keeps_nothing(new_cloud: NewCloud) -> None:
    """`gpulease-busy` says so as long as it lives; from its end on the machine is idle, and nothing else does."""
    died = HOUR
    cloud = used_like(new_cloud, works((0, died), signal=Signal.BUSY))
    lease_id = running_at(cloud)

    cloud.at(died)
    assert cloud.lease(lease_id).state is S.RUNNING
    cloud.until(lease_id, S.PAUSED, within=LIMIT + 2 * R_SECONDS)

    assert died + LIMIT <= decided_at(cloud, lease_id) <= died + LIMIT + R_SECONDS
    shown = cloud.view(lease_id)["pause"]
    assert shown["reason"] == "idle" and "nothing has used it for 5 minutes" in str(shown)
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize("then", ["pause", "release"])
@pytest.mark.parametrize("in_use", [True, False])
def test_c46_a_silent_agent_is_shown_and_its_machine_ends_at_a_limit_of_its_own(
    new_cloud: NewCloud, in_use: bool, then: str
) -> None:
    silent_from = HOUR
    sessions = [(0.0, FOREVER)] if in_use else [(0.0, silent_from - MINUTE)]
    cloud = used_like(new_cloud, works(*sessions, silent_from=silent_from))
    policy = {"idle": {"after_seconds": 300}, "unreachable": {"after_seconds": 1200, "then": then}}
    lease_id = cloud.running(**ONE_AWS, policy=policy)
    cloud.at(silent_from)
    assert cloud.view(lease_id)["agent"]["silent"] is False

    cloud.at(silent_from + 3 * MINUTE)
    assert cloud.view(lease_id)["agent"]["silent"] is True
    cloud.at(silent_from + 18 * MINUTE)
    assert cloud.lease(lease_id).state is S.RUNNING, "silence is not idleness"
    cloud.until(lease_id, S.PAUSED if then == "pause" else S.RELEASED, within=20 * MINUTE)

    state = S.PAUSING if then == "pause" else S.RELEASING
    decided = decided_at(cloud, lease_id, state)
    # The last report came up to a minute before.
    assert silent_from + 19 * MINUTE <= decided <= silent_from + 20 * MINUTE + R_SECONDS
    reason = why(cloud, lease_id) if then == "pause" else cloud.lease(lease_id).reason
    assert reason is Reason.UNREACHABLE
    assert cloud.costing() == []
    cloud.assert_right_at_the_end()


def test_c47_twenty_launches_at_once_keep_their_own_idle_limits(new_cloud: NewCloud) -> None:
    ends = 20 * MINUTE
    cloud = used_like(new_cloud, works((0, ends)))
    limits = {f"box-{number}": 300 + 10 * number for number in range(20)}
    written: dict[str, set[int]] = {}

    def watch(change: Change) -> None:
        if change.lease is not None:
            written.setdefault(change.lease.name, set()).add(change.lease.rules.idle.after_seconds)

    cloud.watchers.append(watch)
    leases = {
        name: cloud.up(**ONE_AWS, name=name, policy={"idle": {"after_seconds": limit}})
        for name, limit in limits.items()
    }
    for lease_id in leases.values():
        cloud.until(lease_id, S.RUNNING, within=900)
    cloud.at(ends)
    assert {cloud.lease(lease_id).state for lease_id in leases.values()} == {S.RUNNING}
    for lease_id in leases.values():
        cloud.until(lease_id, S.PAUSED, within=900)

    assert written == {name: {limit} for name, limit in limits.items()}, "no write of a status has lost one"
    for name, lease_id in leases.items():
        assert ends + limits[name] <= decided_at(cloud, lease_id) <= ends + limits[name] + R_SECONDS
    assert len(cloud.ours()) == 20 and cloud.costing() == []
    cloud.assert_right_at_the_end()


def test_c51_a_machine_whose_agent_registers_late_is_nobodys_orphan(new_cloud: NewCloud) -> None:
    registers = 8 * MINUTE
    late = Workload("late", (Session(0, HOUR, Signal.GPU),), (Silence(0, registers),))
    cloud = new_cloud(workload_of=lambda name: late)
    lease_id = cloud.up(**ONE_AWS)

    for minute in range(1, 8):
        cloud.at(minute * MINUTE)
        cloud.stack.stack.functions.invoke("SweepFunction", {})
    running = cloud.until(lease_id, S.RUNNING, within=HOUR)

    assert registers <= running <= registers + MINUTE
    cloud.at(HOUR)
    assert cloud.lease(lease_id).state is S.RUNNING, "the job finishes"
    assert cloud.calls("TerminateInstances") == []
    assert [each for each in cloud.events(lease_id) if each.level != "info"] == []
    assert len(cloud.ours()) == len(cloud.costing()) == 1


@pytest.mark.parametrize("idle_for", [2 * MINUTE, 4 * MINUTE])
def test_c43_the_owners_word_counts_as_use(new_cloud: NewCloud, idle_for: float) -> None:
    ends = 30 * MINUTE
    cloud = used_like(new_cloud, works((0, ends)))
    lease_id = running_at(cloud)
    cloud.at(ends + idle_for)

    cloud.post(f"/v1/leases/{lease_id}/touch")
    touched = cloud.now
    cloud.until(lease_id, S.PAUSED, within=LIMIT + 2 * R_SECONDS)

    assert touched + LIMIT <= decided_at(cloud, lease_id) <= touched + LIMIT + R_SECONDS
    cloud.assert_right_at_the_end()


def test_c43_a_machine_that_is_kept_is_not_idle_until_then(new_cloud: NewCloud) -> None:
    ends = 30 * MINUTE
    cloud = used_like(new_cloud, works((0, ends)))
    lease_id = running_at(cloud)
    cloud.at(ends + MINUTE)

    cloud.post(f"/v1/leases/{lease_id}/keep", {"seconds": 3600})
    kept_until = cloud.now + HOUR
    cloud.at(kept_until - MINUTE)
    assert cloud.lease(lease_id).state is S.RUNNING
    cloud.until(lease_id, S.PAUSED, within=HOUR)

    assert kept_until <= decided_at(cloud, lease_id) <= kept_until + LIMIT + R_SECONDS
    assert why(cloud, lease_id) is Reason.IDLE
    cloud.assert_right_at_the_end()


@pytest.mark.parametrize(("limit", "due"), [(1800, 60 * MINUTE), (60, 34 * MINUTE)], ids=["longer", "shorter"])
def test_c43_a_limit_that_is_changed_while_it_runs_holds_from_then_on(
    new_cloud: NewCloud, limit: int, due: float
) -> None:
    cloud = used_like(new_cloud, works((0, 30 * MINUTE)))
    lease_id = running_at(cloud)
    cloud.at(34 * MINUTE)

    cloud.stack.api("PATCH", f"/v1/leases/{lease_id}", {"policy": {"idle": {"after_seconds": limit}}})
    cloud.until(lease_id, S.PAUSED, within=HOUR)

    assert due <= decided_at(cloud, lease_id) <= due + 2 * MINUTE
    assert cloud.lease(lease_id).rules.unreachable.after_seconds == 1200, "what was not named stays"
    cloud.assert_right_at_the_end()


def test_c43_with_idleness_switched_off_while_it_runs_nothing_stops_it(new_cloud: NewCloud) -> None:
    cloud = used_like(new_cloud, works((0, 30 * MINUTE)))
    lease_id = running_at(cloud)
    cloud.at(34 * MINUTE)

    cloud.stack.api("PATCH", f"/v1/leases/{lease_id}", {"policy": {"idle": {"enabled": False}}})
    cloud.at(6 * HOUR)

    assert cloud.states_of(lease_id)[-1] is S.RUNNING
    cloud.assert_right_at_the_end()
