"""Idle, unreachable, windows and limits as pure decisions (law 10; cases C43 to C46)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from gpulease.domain.agent import AgentRecord, reported
from gpulease.domain.idle import Action, Verdict, decide, expires_at, idle_since, is_over_warning
from gpulease.domain.lease import Lease, LeaseState, PauseMode, PauseProgress, Reason
from gpulease.domain.policy import IdlePolicy, Keep, LeasePolicy, Signal, Then, UnreachablePolicy, Window
from gpulease.domain.spec import LeaseSpec
from hypothesis import given
from hypothesis import strategies as st

T0 = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def free(_: datetime) -> Decimal:
    return Decimal(0)


def hourly(dollars: int, since: datetime = T0) -> Callable[[datetime], Decimal]:
    """Cost of a machine billed by the started hour."""

    def cost(when: datetime) -> Decimal:
        hours = int((when - since) / timedelta(hours=1)) + 1
        return Decimal(dollars * hours)

    return cost


def running(policy: LeasePolicy | None = None, **fields: object) -> Lease:
    values = {
        "id": "l-idle",
        "owner": "ann",
        "name": "box",
        "spec": LeaseSpec(policy=policy or LeasePolicy(idle=IdlePolicy(after_seconds=300))),
        "state": LeaseState.RUNNING,
        "epoch": 1,
        "created_at": T0,
        "updated_at": T0,
        "running_at": T0,
        "ready_at": T0,
    }
    return Lease.model_validate({**values, **fields})


class Agent:
    """An agent that reports every minute, quiet or with a signal."""

    def __init__(self, since: datetime = T0) -> None:
        self.row = reported(AgentRecord(lease_id="l-idle", attempt=1, token_sha256=""), since, {})
        self.now = since

    def report(self, minutes: int, *signals: Signal) -> "Agent":
        for _ in range(minutes):
            self.now += MINUTE
            self.row = reported(self.row, self.now, dict.fromkeys(signals, 0.0))
        return self


def first_action(lease: Lease, agent: Agent, minutes: int, *signals: Signal) -> tuple[Verdict, datetime] | None:
    """What is decided first when a check follows every report."""
    for _ in range(minutes):
        agent.report(1, *signals)
        verdict = decide(lease, agent.row, agent.now, free)
        if verdict.action is not Action.NONE:
            return verdict, agent.now
    return None


def test_a_quiet_machine_is_paused_when_its_limit_is_over_and_not_before() -> None:
    agent = Agent()

    found = first_action(running(), agent, 10)

    assert found is not None
    verdict, at = found
    assert (verdict.action, verdict.reason, at) == (Action.PAUSE, Reason.IDLE, T0 + 5 * MINUTE)


def test_c43_the_second_job_resets_the_idle_clock() -> None:
    agent, lease = Agent(), running()
    agent.report(30, Signal.GPU)
    first_job_ended = agent.now
    agent.report(4)

    assert first_action(lease, agent, 60, Signal.GPU) is None
    second_job_ended = agent.now
    found = first_action(lease, agent, 10)

    assert found is not None
    assert found[1] == second_job_ended + 5 * MINUTE
    assert second_job_ended > first_job_ended + timedelta(hours=1)


def test_c44_after_a_resume_idleness_counts_from_becoming_ready() -> None:
    agent = Agent()
    ready = T0 + timedelta(hours=5)
    lease = running(ready_at=ready)
    agent.row = reported(agent.row, ready, {})
    agent.now = ready

    assert idle_since(lease, agent.row, ready) == ready
    found = first_action(lease, agent, 10)
    assert found is not None and found[1] == ready + 5 * MINUTE


def test_c46_silence_is_not_idleness_and_has_its_own_limit() -> None:
    agent, lease = Agent(), running()
    agent.report(2, Signal.SSH)
    silent_since = agent.now

    before = decide(lease, agent.row, silent_since + 19 * MINUTE, free)
    after = decide(lease, agent.row, silent_since + 20 * MINUTE, free)

    assert before.action is Action.NONE
    assert (after.action, after.reason) == (Action.PAUSE, Reason.UNREACHABLE)


def test_silence_is_a_plan_only_of_an_agent_that_is_silent() -> None:
    """Whoever keeps a machine for two hours is not told that it is paused in twenty minutes."""
    agent = Agent()
    lease = running(LeasePolicy(idle=IdlePolicy(after_seconds=300)), keep_until=T0 + 120 * MINUTE)

    healthy = decide(lease, agent.row, T0 + MINUTE, free)
    silent = decide(lease, agent.row, T0 + 3 * MINUTE, free)

    assert (healthy.plan_at, healthy.at) == (T0 + 125 * MINUTE, T0 + 20 * MINUTE)
    assert "idle" in healthy.plan
    assert (silent.plan_at, "unreachable" in silent.plan) == (T0 + 20 * MINUTE, True)


def test_without_an_agent_nothing_is_idle() -> None:
    verdict = decide(running(), None, T0 + timedelta(days=3), free)

    assert (verdict.action, verdict.at) == (Action.NONE, None)


def test_one_quiet_report_after_a_silence_proves_nothing() -> None:
    agent, lease = Agent(), running()
    agent.report(1, Signal.GPU)
    agent.now += 15 * MINUTE
    agent.row = reported(agent.row, agent.now, {})

    assert decide(lease, agent.row, agent.now, free).action is Action.NONE
    found = first_action(lease, agent, 5)
    assert found is not None and found[1] == agent.now


def test_only_the_signals_of_the_policy_count() -> None:
    gpu_only = running(LeasePolicy(idle=IdlePolicy(after_seconds=300, signals=(Signal.GPU,))))

    agent = Agent()
    agent.report(20, Signal.SSH).report(3)
    verdict = decide(gpu_only, agent.row, agent.now, free)
    assert verdict.reason is Reason.IDLE


def test_the_owners_word_counts_as_use() -> None:
    agent = Agent().report(10)

    assert decide(running(), agent.row, agent.now, free).action is Action.PAUSE
    assert decide(running(touched_at=agent.now - MINUTE), agent.row, agent.now, free).action is Action.NONE
    assert decide(running(keep_until=agent.now + MINUTE), agent.row, agent.now, free).action is Action.NONE


def test_a_warm_window_keeps_an_idle_machine_and_its_end_starts_the_count() -> None:
    warm = Window(keep=Keep.WARM, start="0 9 * * *", end="0 12 * * *")
    lease = running(LeasePolicy(idle=IdlePolicy(after_seconds=300), windows=(warm,)))

    found = first_action(lease, Agent(), 200)

    assert found is not None and found[1] == T0.replace(hour=12, minute=5)


def test_an_off_window_pauses_what_is_in_use() -> None:
    off = Window(keep=Keep.OFF, start="30 10 * * *", end="0 12 * * *")
    lease = running(LeasePolicy(windows=(off,)))

    found = first_action(lease, Agent(), 60, Signal.GPU)

    assert found is not None
    assert (found[0].action, found[0].reason, found[1]) == (Action.PAUSE, Reason.WINDOW, T0 + 30 * MINUTE)


def test_the_next_pause_by_a_window_is_told_although_another_change_comes_first() -> None:
    off = Window(keep=Keep.OFF, start="0 22 * * *", end="0 23 * * *")
    warm = Window(keep=Keep.WARM, start="0 9 * * *", end="0 12 * * *")
    lease = running(LeasePolicy(windows=(off, warm)))

    verdict = decide(lease, None, T0, free)

    assert (verdict.plan_at, "window" in verdict.plan) == (T0.replace(hour=22), True)
    assert verdict.at == T0.replace(hour=12), "looked at when anything changes"


def test_the_owners_word_that_it_is_kept_holds_off_a_window_that_keeps_off() -> None:
    off = Window(keep=Keep.OFF, start="30 10 * * *", end="0 12 * * *")
    policy = LeasePolicy(windows=(off,))
    for kept, paused_at in ((60, 60), (20, 30), (150, None)):
        lease = running(policy, keep_until=T0 + kept * MINUTE)

        found = first_action(lease, Agent(), 200, Signal.GPU)

        assert (found and found[1]) == (paused_at and T0 + paused_at * MINUTE)


def test_what_a_window_keeps_although_it_is_off_is_paused_when_the_owners_word_is_over() -> None:
    off = Window(keep=Keep.OFF, start="30 10 * * *", end="0 12 * * *")
    lease = running(LeasePolicy(windows=(off,)), keep_until=T0 + 60 * MINUTE)

    verdict = decide(lease, None, T0 + 40 * MINUTE, free)

    assert (verdict.action, verdict.plan_at) == (Action.NONE, T0 + 60 * MINUTE)


def test_when_a_window_will_resume_a_paused_lease_is_told() -> None:
    policy = LeasePolicy(windows=(Window(keep=Keep.OFF, start="30 9 * * *", end="0 12 * * *"),))

    verdict = decide(paused(Reason.WINDOW, policy), None, T0, free)

    assert verdict.plan.startswith("resumed (window)") and verdict.plan_at == T0.replace(hour=12)


def test_the_budget_ends_a_lease_before_the_next_hour_is_begun() -> None:
    lease = running(LeasePolicy(budget_usd=Decimal(10)))
    cost = hourly(3)

    assert decide(lease, None, T0 + timedelta(hours=2, minutes=50), cost).action is Action.NONE
    verdict = decide(lease, None, T0 + timedelta(hours=2, minutes=56), cost)
    assert (verdict.action, verdict.reason) == (Action.RELEASE, Reason.BUDGET)


def test_the_budget_is_warned_about_once_at_80_per_cent() -> None:
    lease = running(LeasePolicy(budget_usd=Decimal(10)))

    assert not is_over_warning(lease, Decimal("7.99"))
    assert is_over_warning(lease, Decimal(8))
    assert not is_over_warning(running(lease.spec.policy, budget_warned_at=T0), Decimal(9))
    # The look that will warn comes when the money is spent, not later.
    verdict = decide(lease, None, T0, hourly(3))
    assert verdict.at is not None
    assert abs(verdict.at - (T0 + timedelta(hours=2))) < MINUTE


def test_the_maximum_duration_counts_pauses_and_beats_a_pause() -> None:
    policy = LeasePolicy(idle=IdlePolicy(after_seconds=300), max_duration_seconds=3600)
    agent = Agent().report(60)

    verdict = decide(running(policy), agent.row, agent.now, free)

    assert (verdict.action, verdict.reason) == (Action.RELEASE, Reason.EXPIRED)


def test_a_duration_that_was_asked_for_beside_the_policy_can_be_taken_off() -> None:
    lease = running(spec=LeaseSpec(max_duration_seconds=3600))
    assert expires_at(lease) == T0 + timedelta(hours=1)

    without = lease.model_copy(update={"policy": lease.rules.model_copy(update={"max_duration_seconds": None})})

    assert expires_at(without) is None


def paused(reason: Reason = Reason.IDLE, policy: LeasePolicy | None = None) -> Lease:
    progress = PauseProgress(mode=PauseMode.STOP, reason=reason, requested_at=T0)
    return running(policy, state=LeaseState.PAUSED, pause=progress, paused_at=T0)


def test_a_lease_paused_for_too_long_is_released() -> None:
    week = timedelta(days=7)

    assert decide(paused(), None, T0 + week - MINUTE, free).at == T0 + week
    verdict = decide(paused(), None, T0 + week, free)
    assert (verdict.action, verdict.reason, verdict.detail) == (
        Action.RELEASE,
        Reason.EXPIRED,
        "it has been paused for 7 days",
    )


def test_a_window_resumes_what_it_paused_and_leaves_what_the_user_paused() -> None:
    policy = LeasePolicy(windows=(Window(keep=Keep.OFF, start="30 9 * * *", end="0 12 * * *"),))

    assert decide(paused(Reason.WINDOW, policy), None, T0 + timedelta(hours=1), free).action is Action.NONE
    assert decide(paused(Reason.WINDOW, policy), None, T0 + timedelta(hours=2), free).action is Action.RESUME
    assert decide(paused(Reason.USER, policy), None, T0 + timedelta(hours=2), free).action is Action.NONE


@pytest.mark.parametrize("then", list(Then))
def test_what_follows_is_the_policys_word(then: Then) -> None:
    policy = LeasePolicy(
        idle=IdlePolicy(after_seconds=300, then=then), unreachable=UnreachablePolicy(after_seconds=600, then=then)
    )
    quiet, silent = Agent().report(10), Agent()

    assert decide(running(policy), quiet.row, quiet.now, free).action.value == then.value
    assert decide(running(policy), silent.row, T0 + 10 * MINUTE, free).action.value == then.value


@given(st.lists(st.sampled_from(["quiet", "busy", "silent"]), min_size=1, max_size=60))
def test_a_machine_in_use_within_its_limit_is_never_idle_and_a_quiet_one_always_is(minutes: list[str]) -> None:
    """Whatever the pattern of reports: no pause for idleness within the limit of a use, and one soon after it."""
    agent, lease, last_use = Agent(), running(), T0
    quiet_in_a_row = 0
    for minute in minutes:
        agent.now += MINUTE
        if minute == "silent":
            quiet_in_a_row = 0
            continue
        if minute == "busy":
            last_use, quiet_in_a_row = agent.now, 0
        else:
            quiet_in_a_row += 1
        signals = {Signal.BUSY: 0.0} if minute == "busy" else {}
        agent.row = reported(agent.row, agent.now, signals)

        verdict = decide(lease, agent.row, agent.now, free)

        if verdict.reason is Reason.IDLE:
            assert agent.now - last_use >= 5 * MINUTE
        if quiet_in_a_row >= 8:
            assert verdict.action is Action.PAUSE


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_whoever_waits_until_the_told_time_misses_nothing(first: int, step: int) -> None:
    """Between a verdict of none and its `at` no other verdict is hidden: reading only what is due loses nothing."""
    off = Window(keep=Keep.OFF, start="0 20 * * *", end="0 6 * * *")
    policy = LeasePolicy(idle=IdlePolicy(after_seconds=7200), windows=(off,), max_duration_seconds=50 * 3600)
    lease, agent = running(policy), Agent()
    now = T0 + timedelta(minutes=first)
    agent.row = reported(agent.row, now, {Signal.GPU: 0.0})

    verdict = decide(lease, agent.row, now, free)

    if verdict.action is Action.NONE:
        assert verdict.at is not None and verdict.at > now
        between = now + min(timedelta(seconds=step), verdict.at - now - timedelta(seconds=1))
        assert decide(lease, agent.row, between, free).action is Action.NONE


def test_a_session_left_open_keeps_nothing_where_it_does_not_count() -> None:
    lease = running(LeasePolicy(idle=IdlePolicy(after_seconds=300, signals=(Signal.GPU,))))

    found = first_action(lease, Agent(), 60, Signal.SSH)

    assert found is not None
    verdict, at = found
    assert (verdict.reason, at) == (Reason.IDLE, T0 + 5 * MINUTE)


def test_one_report_without_the_signals_that_count_proves_nothing() -> None:
    lease = running(LeasePolicy(idle=IdlePolicy(after_seconds=60, signals=(Signal.GPU,))))
    agent = Agent().report(10, Signal.GPU, Signal.SSH)

    found = first_action(lease, agent, 60, Signal.SSH)

    assert found is not None
    assert found[1] == T0 + 13 * MINUTE
