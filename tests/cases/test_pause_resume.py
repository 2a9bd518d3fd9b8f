"""Pausing and resuming: C06 (on AWS), C38 to C42, C44, C54. On AWS a machine is stopped; where a stopped one is billed
in full see `test_pause_keeps_cache.py`, and for what goes amiss `test_pause_amiss.py`."""

import itertools

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState
from gpulease.ports import Provider
from gpulease.steps.base import ref_of
from gpulease_local.simulate.virtual import ApiRefused

from tests.support.pause_world import ONE_VULTR, R_SECONDS, PauseWorld

S = LeaseState
MINUTE, HOUR = 60.0, 3600.0
NO_CAPACITY = "InsufficientInstanceCapacity"


def by_hand(world: PauseWorld) -> Provider:
    """Calls that somebody makes past gpulease, as in the provider's console."""
    return world.stack.stack.deps.providers.get("aws")


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    made = PauseWorld()
    yield made
    made.close()


# --- cancelled under way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_seconds", [0.0, 2.0, 20.0, 39.0, 41.0])
def test_c06_given_back_while_pausing(world: PauseWorld, after_seconds: float) -> None:
    lease_id = world.up()
    world.pause(lease_id)
    world.run_for(after_seconds)

    world.stack.down(lease_id)

    asked = world.now
    released = world.until(lease_id, S.RELEASED, within=600)
    assert released - asked < 120
    states = world.states_of(lease_id)
    assert S.RUNNING not in states[states.index(S.RELEASING) :]
    assert world.lease(lease_id).reason is Reason.USER
    world.assert_right()


@pytest.mark.parametrize("after_seconds", [0.0, 2.0, 15.0, 60.0, 119.0])
def test_c06_given_back_while_resuming(world: PauseWorld, after_seconds: float) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    world.resume(lease_id)
    world.run_for(after_seconds)
    assert world.lease(lease_id).state is S.RESUMING

    world.stack.down(lease_id)

    asked = world.now
    released = world.until(lease_id, S.RELEASED, within=600)
    assert released - asked < 120, "the start on its way is terminated too"
    states = world.states_of(lease_id)
    assert states[states.index(S.RELEASING) :] == [S.RELEASING, S.RELEASED]
    world.assert_right()


def test_c06_given_back_while_paused(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)

    world.stack.down(lease_id)

    world.until(lease_id, S.RELEASED, within=600)
    assert world.booked(lease_id).destroyed is not None
    world.assert_right()


# --- no capacity ------------------------------------------------------------------------------------------------------


def test_c38_resume_without_capacity_goes_back_to_paused_and_the_others_start(world: PauseWorld) -> None:
    first, second, third = (world.up(name) for name in ("one", "two", "three"))
    for lease_id in (first, second, third):
        world.pause(lease_id)
    for lease_id in (first, second, third):
        world.until(lease_id, S.PAUSED, within=1200)
    tags = dict(world.booked(first).tags)
    refused = world.machine(first).provider_id
    world.fault(action="StartInstances", params=f"InstanceId.*={refused}", code=NO_CAPACITY)

    began = world.now
    for lease_id in (first, second, third):
        world.resume(lease_id)
    for lease_id in (second, third):
        world.until(lease_id, S.RUNNING, within=600)
    back = world.until(first, S.PAUSED, within=300)

    assert 100 <= back - began <= 125, "the patience is two minutes"
    lease = world.lease(first)
    assert lease.pause is not None and lease.pause.resume_failed is Reason.NO_CAPACITY
    assert any("no_capacity" in notice for notice in lease.notices)
    assert world.machine(first).provider_id == refused and dict(world.booked(first).tags) == tags
    assert world.booked(first).hourly_usd == 0
    starts = [
        call.at - world.t0
        for call in world.aws.calls
        if call.action == "StartInstances" and refused in call.params.values()
    ]
    assert len(starts) <= 5
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(starts)), starts
    assert len(world.machines_booked()) == 3, "nothing was made elsewhere"
    assert world.view(first)["pause"]["resume_failed"] == "no_capacity"
    world.assert_right()

    world.no_faults()
    world.resume(first)
    world.until(first, S.RUNNING, within=600)
    assert world.lease(first).pause is None and not any("resume" in n for n in world.lease(first).notices)
    world.assert_right()


def test_c38_a_longer_wait_may_be_asked_for(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    world.fault(action="StartInstances", code=NO_CAPACITY, until_seconds=world.stack.clock.time() + 20 * MINUTE)

    world.resume(lease_id, wait_seconds="3600")

    world.until(lease_id, S.RUNNING, within=30 * MINUTE)
    world.assert_right()


@pytest.mark.parametrize(
    ("code", "reason"), [("VcpuLimitExceeded", Reason.QUOTA_EXCEEDED), (NO_CAPACITY, Reason.NO_CAPACITY)]
)
def test_c39_resume_makes_no_new_machine_anywhere(world: PauseWorld, code: str, reason: Reason) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    world.fault(action="StartInstances", code=code)

    began = world.now
    world.resume(lease_id)
    back = world.until(lease_id, S.PAUSED, within=400)

    lease = world.lease(lease_id)
    assert lease.pause is not None and lease.pause.resume_failed is reason
    if reason is Reason.QUOTA_EXCEEDED:
        assert back - began < 30, "a limit of the account does not pass by waiting"
        assert len(world.calls("StartInstances")) == 1
    assert len(world.machines_booked()) == 1
    assert world.view(lease_id)["pause"]["billed"], "the paused one is listed with its storage price"
    world.assert_right()


def test_c39_a_fresh_machine_elsewhere_only_on_the_users_word(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    old = world.machine(lease_id)
    world.fault(action="StartInstances", code=NO_CAPACITY)

    world.resume(lease_id, on_no_capacity="replace")
    world.wait(lambda: len(world.machines_booked()) == 2, 600, "no new machine")
    while_tried = next(r for r in world.record(lease_id).resources if r.id == old.id)
    assert while_tried.state is ResourceState.HELD, "kept until the new one runs"
    world.until(lease_id, S.RUNNING, within=900)

    world.wait(lambda: world.aws.book.get(old.provider_id).destroyed is not None, 600, "the old one is not gone")
    assert world.machine(lease_id).provider_id != old.provider_id
    assert world.view(lease_id)["address"] == world.machine(lease_id).address != ""
    world.run_for(2 * R_SECONDS)
    world.assert_right()


def test_c39_when_the_fresh_one_cannot_be_had_either_the_old_one_stays_paused(world: PauseWorld) -> None:
    lease_id = world.up()
    world.paused(lease_id)
    old = world.machine(lease_id)
    world.fault(action="(Start|Run)Instances", code=NO_CAPACITY)

    world.resume(lease_id, on_no_capacity="replace")
    world.until(lease_id, S.PAUSED, within=3600)

    assert world.record(lease_id).resource(old.id).state is ResourceState.HELD  # type: ignore[union-attr]
    assert [each.id for each in world.machines_booked() if each.destroyed is None] == [old.provider_id]
    world.no_faults()
    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=600)
    assert world.machine(lease_id).id == old.id or world.view(lease_id)["address"]
    attempt = world.lease(lease_id).attempt
    assert attempt is not None and attempt.number == old.attempt
    world.assert_right()


# --- addresses --------------------------------------------------------------------------------------------------------


def test_c40_the_old_address_is_neither_shown_nor_contacted(world: PauseWorld) -> None:
    lease_id = world.up()
    old = world.view(lease_id)["address"]
    asked: list[str] = []
    probe = world.stack.stack.deps.probe.tcp_open

    def spy(address: str, port: int) -> bool:
        asked.append(address)
        return probe(address, port)

    object.__setattr__(world.stack.stack.deps.probe, "tcp_open", spy)
    shown = [world.pause(lease_id)["address"]]
    world.until(lease_id, S.PAUSED, within=600)
    shown.append(world.view(lease_id)["address"])
    shown.append(world.resume(lease_id)["address"])
    while world.lease(lease_id).state is S.RESUMING:
        shown.append(world.view(lease_id)["address"])
        world.run_for(3)

    new = world.view(lease_id)
    assert old not in shown and old not in asked
    assert set(shown) <= {"", new["address"]}
    assert new["address"] not in ("", old) and new["address"] in new["ssh"]
    world.assert_right()


# --- stopped is not unbilled ------------------------------------------------------------------------------------------


def test_c41_a_machine_that_somebody_stopped_becomes_paused(world: PauseWorld) -> None:
    lease_id = world.up()

    by_hand(world).stop(ref_of(world.machine(lease_id)))
    shut = world.now
    paused = world.until(lease_id, S.PAUSED, within=3 * R_SECONDS)

    assert paused - shut <= 2 * R_SECONDS + 60
    lease = world.lease(lease_id)
    assert lease.pause is not None and lease.pause.reason is Reason.STOPPED
    assert world.booked(lease_id).hourly_usd == 0
    world.assert_right()

    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=600)
    world.assert_right()


def test_c42_a_halted_vultr_machine_is_never_shown_as_paused(world: PauseWorld) -> None:
    lease_id = world.up(**ONE_VULTR)
    machine = world.machine(lease_id)

    world.stack.cloud.account.machines[machine.provider_id].halt(world.stack.clock.time())
    world.run_for(2 * R_SECONDS + 30)

    shown = world.view(lease_id)
    assert shown["state"] == "running"
    assert any("stopped and still billed in full" in warning for warning in shown["warnings"])
    assert shown["resources"][0]["billed"] is True and float(shown["price_per_hour_usd"]) > 1
    alarms = [facts for name, facts in world.stack.log.alarms if name == "PauseStuck"]
    assert [each["reason"] for each in alarms] == ["stopped_still_billed"], "told once"

    world.stack.cloud.account.machines[machine.provider_id].start(world.stack.clock.time())
    world.run_for(2 * R_SECONDS + 30)
    assert not world.view(lease_id)["warnings"]
    world.assert_right()


def test_c42_a_pause_on_vultr_without_a_cache_is_refused_before_anything_happens(world: PauseWorld) -> None:
    lease_id = world.up(**ONE_VULTR)
    before = world.record(lease_id)
    calls = len(world.stack.cloud.calls)

    with pytest.raises(ApiRefused) as refused:
        world.pause(lease_id)

    assert refused.value.status == 409 and refused.value.problem["code"] == "nothing_to_keep"
    assert world.record(lease_id) == before and len(world.stack.cloud.calls) == calls
    assert any("bills a stopped machine in full" in notice for notice in world.lease(lease_id).notices)


# --- idle -------------------------------------------------------------------------------------------------------------


def test_c44_idleness_counts_from_becoming_ready_again(world: PauseWorld) -> None:
    lease_id = world.up()
    ready = world.lease(lease_id).ready_at
    world.paused(lease_id)
    world.run_for(HOUR)

    world.resume(lease_id)
    running = world.until(lease_id, S.RUNNING, within=600)

    again = world.lease(lease_id)
    assert again.ready_at is not None and ready is not None and again.ready_at > ready
    assert abs((again.ready_at.timestamp() - world.t0) - running) < 5
    assert again.running_at is not None and again.running_at < again.ready_at
    world.run_for(2 * R_SECONDS)
    assert world.lease(lease_id).state is S.RUNNING


def test_c44_what_the_agent_told_before_the_pause_proves_nothing_after_it(world: PauseWorld) -> None:
    lease_id, agents = world.up(), world.stack.stack.deps.agents
    now = world.stack.stack.deps.clock.now()
    row = AgentRecord(lease_id=lease_id, attempt=1, token_sha256="0" * 64, first_report_at=now, last_report_at=now)
    agents.save(row.model_copy(update={"quiet_reports": 9, "flush_wanted_at": now}))
    world.paused(lease_id)

    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=600)

    kept = agents.load(lease_id)
    assert kept is not None and kept.token_sha256 == "0" * 64, "the same machine reports with the same token"
    assert (kept.first_report_at, kept.last_report_at) == (None, None)
    assert (kept.quiet_reports, kept.flush_wanted_at) == (0, None)


def test_c54_a_terminated_instance_that_stays_listed_is_left_alone(world: PauseWorld) -> None:
    gone, stays = world.up("gone"), world.up("stays")
    ended = world.machine(gone).provider_id

    world.stack.down(gone)
    world.until(gone, S.RELEASED, within=900)
    released = world.now
    world.paused(stays)
    world.run_for(50 * MINUTE)

    assert world.aws.machine(ended).id == ended, "still listed"
    later = [c for c in world.aws.calls if c.at - world.t0 > released + 1 and ended in c.params.values()]
    assert [c.action for c in later if not c.action.startswith("Describe")] == []
    assert world.view(gone)["resources"][0]["billed"] is False
    assert world.lease(stays).state is S.PAUSED
    world.assert_right()
