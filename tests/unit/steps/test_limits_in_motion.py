"""Limits of time and money hold in every state in which a machine that once ran may be billed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.cost import lease_cost
from gpulease.domain.idle import Verdict
from gpulease.domain.lease import LeaseState, Reason
from gpulease.errors import LedgerUnavailable
from gpulease.steps import limits

from tests.support.pause_world import ONE_AWS, ONE_VULTR, PauseWorld

S = LeaseState
HOUR = 3600.0


@pytest.fixture
def world() -> Iterator[PauseWorld]:
    made = PauseWorld()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("policy", "reason"),
    [({"max_duration_seconds": 2400}, Reason.EXPIRED), ({"budget_usd": "0.5"}, Reason.BUDGET)],
)
def test_a_pause_that_never_ends_does_not_outlive_the_limits(
    world: PauseWorld, policy: dict[str, Any], reason: Reason
) -> None:
    lease_id = world.up(**ONE_AWS, policy=policy)
    world.fault(action="StopInstances", code="UnauthorizedOperation", status=403)
    world.pause(lease_id)

    world.run_for(HOUR / 4)
    assert world.lease(lease_id).state is S.PAUSING, "still billed, and shown so"
    world.until(lease_id, S.RELEASED, within=HOUR)

    assert world.lease(lease_id).reason is reason
    assert world.booked(lease_id).destroyed is not None
    if "budget_usd" in policy:
        deps = world.stack.stack.deps
        assert lease_cost(world.record(lease_id), deps.clock.now()) <= Decimal("0.5")
    assert world.now < HOUR


def test_what_happens_next_to_a_pause_is_not_that_it_is_given_up(world: PauseWorld) -> None:
    lease_id = world.up()
    world.fault(action="StopInstances", code="IncorrectInstanceState")
    world.pause(lease_id)

    world.run_for(60)

    assert "given up" not in world.view(lease_id)["next"]["text"]


def test_a_lease_is_looked_at_again_when_its_agents_row_could_not_be_read(world: PauseWorld) -> None:
    lease_id = world.up()
    deps = world.stack.stack.deps
    now = deps.clock.now()

    class Unread:
        def load(self, lease_id: str) -> None:
            raise LedgerUnavailable("throttled")

        def save(self, agent: AgentRecord) -> AgentRecord:
            raise LedgerUnavailable("throttled")

    blind = replace(deps, agents=Unread(), policy=replace(deps.policy, agent_url="https://agents.invalid"))
    verdict = limits.act(world.record(lease_id), blind, now)

    assert verdict is not None and verdict.at is not None, "else nobody looks at it ever again"
    assert (verdict.at - now).total_seconds() <= 600


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("silent_minutes", "answers", "gone"),
    [(21, True, False), (59, True, False), (61, True, True), (21, False, True), (19, False, False)],
)
def test_a_silent_machine_that_a_pause_would_destroy_is_not_given_back_while_it_answers(
    world: PauseWorld, silent_minutes: int, answers: bool, gone: bool, cached: bool
) -> None:
    """With a cache too everything else on it would be lost, and what runs on it anyway."""
    lease_id = world.up(**ONE_VULTR, **_cache(world) if cached else {})

    _act_on_silence(world, lease_id, silent_minutes, answers=answers)

    assert (world.lease(lease_id).state in (S.RELEASING, S.PAUSING)) is gone


def test_what_is_left_alone_although_it_is_silent_is_still_paused_by_a_window(world: PauseWorld) -> None:
    lease_id = world.up(**ONE_VULTR, **_cache(world))
    world.run_for(600)
    since = world.stack.stack.deps.clock.now() - timedelta(minutes=2)
    window = {"keep": "off", "start": f"{since:%M %H} * * *"}
    world.stack.api("PATCH", f"/v1/leases/{lease_id}", {"policy": {"windows": [window]}})

    _act_on_silence(world, lease_id, 30, answers=True)

    lease = world.lease(lease_id)
    assert lease.state is S.PAUSING and lease.pause is not None and lease.pause.reason is Reason.WINDOW


def test_what_is_left_alone_although_it_is_silent_is_looked_at_when_another_limit_comes(world: PauseWorld) -> None:
    lease_id = world.up(**ONE_VULTR, policy={"max_duration_seconds": 3600})
    end = world.lease(lease_id).running_at
    assert end is not None
    world.run_for(3600 - 100)

    verdict = _act_on_silence(world, lease_id, 21, answers=True)

    assert verdict is not None and verdict.at == end + timedelta(seconds=3600)
    assert verdict.at - world.stack.stack.deps.clock.now() < timedelta(minutes=2)


def _act_on_silence(world: PauseWorld, lease_id: str, silent_minutes: int, *, answers: bool) -> Verdict | None:
    """What the clock does about a lease whose agent has been silent for so long; whether its SSH port answers."""
    deps = world.stack.stack.deps
    now = deps.clock.now()
    silent = AgentRecord(
        lease_id=lease_id,
        attempt=1,
        token_sha256="",
        first_report_at=now - timedelta(hours=2),
        last_report_at=now - timedelta(minutes=silent_minutes),
    )

    class Agents:
        def load(self, lease_id: str) -> AgentRecord:
            return silent

        def save(self, agent: AgentRecord) -> AgentRecord:
            raise AssertionError("nothing is written of it")

    class Port:
        def tcp_open(self, address: str, port: int) -> bool:
            return answers

    seen = replace(deps, agents=Agents(), probe=Port(), policy=replace(deps.policy, agent_url="https://agents.invalid"))
    return limits.act(world.record(lease_id), seen, now)


def _cache(world: PauseWorld) -> dict[str, Any]:
    """One that the machine of `ONE_VULTR` can use, as a request names it."""
    world.stack.api("POST", "/v1/caches", {"name": "models", "provider": "vultr", "region": "ewr", "size_gb": 50})
    world.run_for(60)
    return {"cache": {"name": "models", "mounts": ["/root/.cache"]}}
