"""Pauses where a stopped machine is billed in full: it is given back, and its cache is kept (C42, C06)."""

from dataclasses import replace

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState

from tests.support.pause_world import ONE_VULTR, PauseWorld

S = LeaseState
HOUR = 3600.0


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    made = PauseWorld()
    yield made
    made.close()


def with_cache(world: PauseWorld, name: str = "box") -> str:
    """A lease on Vultr with a cache of its own, running."""
    made = world.stack.api(
        "POST", "/v1/caches", {"name": "models", "provider": "vultr", "region": "ewr", "size_gb": 50}
    )
    world.wait(lambda: world.lease(made["id"]).state is S.RUNNING, 600, "no cache")
    return world.up(name, **ONE_VULTR, cache={"name": "models", "mounts": ["/root/.cache/huggingface"]})


def machines_at_vultr(world: PauseWorld) -> list[str]:
    return [e.id for e in world.stack.cloud.book.billed() if e.kind == "instance"]


def blocks_at_vultr(world: PauseWorld) -> list[str]:
    return [e.id for e in world.stack.cloud.book.billed() if e.kind == "block"]


def test_c42_a_pause_on_vultr_keeps_the_cache_and_gives_the_machine_back(world: PauseWorld) -> None:
    lease_id = with_cache(world)
    blocks = blocks_at_vultr(world)
    told = world.stack.api("POST", f"/v1/leases/{lease_id}/pause", query={"dry_run": "true"})
    assert (told["possible"], told["mode"]) == (True, "keep_cache")
    assert float(told["paused_price_per_hour_usd"]) < 0.02 < 1 < float(told["running_price_per_hour_usd"])

    world.paused(lease_id)

    shown = world.view(lease_id)
    assert machines_at_vultr(world) == [] and blocks_at_vultr(world) == blocks
    assert shown["price_per_hour_usd"] == "0.00"
    assert [part["what"] for part in shown["pause"]["billed"]] == ["cache models"]
    assert shown["pause"]["price_per_hour_usd"] == told["paused_price_per_hour_usd"]
    world.assert_right()


def test_a_resume_on_vultr_takes_a_new_machine_with_the_cache(world: PauseWorld) -> None:
    lease_id = with_cache(world)
    blocks = blocks_at_vultr(world)
    first = world.view(lease_id)["address"]
    world.paused(lease_id)
    world.run_for(HOUR)

    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=1200)

    shown = world.view(lease_id)
    attempt = world.lease(lease_id).attempt
    assert attempt is not None and attempt.number == 2 and attempt.volume is not None
    assert attempt.volume.attached_at is not None
    assert blocks_at_vultr(world) == blocks and len(machines_at_vultr(world)) == 1
    assert shown["address"] not in ("", first) and shown["pause"] is None
    world.stack.down(lease_id)
    world.until(lease_id, S.RELEASED, within=900)
    assert blocks_at_vultr(world) == blocks, "the cache survives everything but its owner's word"
    world.assert_right()


def test_a_resume_on_vultr_in_vain_stays_paused_with_its_cache(world: PauseWorld) -> None:
    lease_id = with_cache(world)
    blocks = blocks_at_vultr(world)
    world.paused(lease_id)
    settings = world.stack.cloud.settings
    world.stack.cloud.settings = replace(settings, vanishing=frozenset({"ewr/vcg-l40s-16c-180g-48vram"}))

    world.resume(lease_id)
    world.until(lease_id, S.PAUSED, within=1800)

    lease = world.lease(lease_id)
    assert lease.pause is not None and lease.pause.resume_failed is Reason.NO_CAPACITY
    assert machines_at_vultr(world) == [] and blocks_at_vultr(world) == blocks
    world.stack.cloud.settings = settings
    world.resume(lease_id)
    world.until(lease_id, S.RUNNING, within=1200)
    world.assert_right()


@pytest.mark.parametrize("after_seconds", [0.0, 3.0, 20.0, 60.0])
def test_c06_given_back_while_the_machine_of_a_pause_is_given_back(world: PauseWorld, after_seconds: float) -> None:
    lease_id = with_cache(world)
    blocks = blocks_at_vultr(world)
    world.pause(lease_id)
    world.run_for(after_seconds)

    world.stack.down(lease_id)

    world.until(lease_id, S.RELEASED, within=900)
    assert machines_at_vultr(world) == [] and blocks_at_vultr(world) == blocks
    world.assert_right()


@pytest.mark.parametrize("after_seconds", [0.0, 5.0, 30.0, 60.0])
def test_c06_given_back_while_a_new_machine_is_made_for_a_resume(world: PauseWorld, after_seconds: float) -> None:
    lease_id = with_cache(world)
    blocks = blocks_at_vultr(world)
    world.paused(lease_id)
    world.resume(lease_id)
    world.run_for(after_seconds)

    world.stack.down(lease_id)

    world.until(lease_id, S.RELEASED, within=900)
    assert machines_at_vultr(world) == [] and blocks_at_vultr(world) == blocks
    world.assert_right()


# --- the agent saves first --------------------------------------------------------------------------------------------


def agent_of(world: PauseWorld, lease_id: str, **update: object) -> AgentRecord:
    """The row of an agent that has just reported, put there by hand."""
    now = world.stack.stack.deps.clock.now()
    known = world.stack.stack.deps.agents.load(lease_id)
    attempt = world.lease(lease_id).attempt
    row = known or AgentRecord(lease_id=lease_id, attempt=attempt.number if attempt else 1, token_sha256="0" * 64)
    told = {"first_report_at": row.first_report_at or now, "last_report_at": now, **update}
    return world.stack.stack.deps.agents.save(row.model_copy(update=told))


def test_the_agent_is_asked_to_save_the_cache_before_its_machine_is_given_back(world: PauseWorld) -> None:
    lease_id = with_cache(world)
    agent_of(world, lease_id)
    (machine,) = machines_at_vultr(world)

    world.pause(lease_id)
    world.run_for(40)
    asked = world.stack.stack.deps.agents.load(lease_id)
    assert asked is not None and asked.flush_wanted_at is not None
    assert world.machine(lease_id).state is ResourceState.HELD, "not given back while it saves"

    agent_of(world, lease_id, flushed_at=world.stack.stack.deps.clock.now())
    world.wait(lambda: world.machine(lease_id).state is not ResourceState.HELD, 15, "kept")
    world.until(lease_id, S.PAUSED, within=600)
    assert machine not in machines_at_vultr(world)
    world.assert_right()


def test_an_agent_that_does_not_save_is_waited_for_ninety_seconds(world: PauseWorld) -> None:
    lease_id = with_cache(world)
    agent_of(world, lease_id)

    world.pause(lease_id)
    world.run_for(80)
    assert world.machine(lease_id).state is ResourceState.HELD
    world.wait(lambda: world.machine(lease_id).state is not ResourceState.HELD, 20, "kept")


def test_a_silent_agent_is_not_waited_for(world: PauseWorld) -> None:
    lease_id = with_cache(world)
    agent_of(world, lease_id)
    world.run_for(600)

    world.pause(lease_id)
    world.wait(lambda: world.machine(lease_id).state is not ResourceState.HELD, 10, "waited for")
    row = world.stack.stack.deps.agents.load(lease_id)
    assert row is not None and row.flush_wanted_at is None
