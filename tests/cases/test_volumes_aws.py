"""C24, C34, C36 and C37 on AWS, where volumes are bound to zones and a detach can hang for ever."""

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceKind
from gpulease_local.simulate.virtual import OWNER, VirtualStack
from gpulease_sim.aws import Settings, VolumeBehaviour

from tests.support.cache_world import USES_MODELS, Caches

RUNNING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASED
ZONE = "us-east-1b"
MODELS = {"provider": "aws", "region": "us-east-1", "zone": ZONE}
T4: dict[str, Any] = {"name": "box", "gpu": ["T4"], "plan_kinds": ["vm"], **USES_MODELS}


class AwsWorld:
    """The whole stack with AWS alone, and a cache in one zone."""

    def __init__(self, **settings: Any) -> None:
        self.stack = VirtualStack(providers=("aws",), aws_settings=Settings(**settings)).load()
        self.caches = Caches(self.stack)
        self.cache = self.caches.make(OWNER, **MODELS)

    def until(self, lease: str, state: LeaseState, within: float = 3600) -> None:
        """Let time pass until the lease is in that state."""
        reached = self.stack.run_until(
            lambda: self.stack.lease(lease).state is state, limit_seconds=within, step_seconds=2
        )
        assert reached, self.caches.story(lease)

    def existing(self, kind: str) -> list[Any]:
        """What EC2 bills now."""
        return [each for each in self.stack.aws.book.objects() if each.destroyed is None and each.kind == kind]

    def calls(self, operation: str) -> list[Any]:
        """Calls of that operation so far."""
        return [call for call in self.stack.aws.calls if call.action == operation]

    def end(self) -> None:
        """Everything is given back, and nothing is left."""
        for lease in self.stack.leases():
            if lease.id != self.cache and lease.state is not RELEASED:
                self.stack.down(lease.id)
                self.until(lease.id, RELEASED)
        self.caches.remove()
        self.until(self.cache, RELEASED)
        assert self.existing("instance") == self.existing("volume") == []
        assert self.stack.log.errors == []


@pytest.fixture
def worlds() -> Iterator[list[AwsWorld]]:
    made: list[AwsWorld] = []
    yield made
    for each in made:
        each.stack.close()


def test_c24_the_cache_volume_survives_its_machine_and_the_root_disk_does_not(worlds: list[AwsWorld]) -> None:
    worlds.append(world := AwsWorld())
    lease = world.stack.up(**T4)
    world.until(lease, RUNNING)
    world.stack.down(lease)
    world.until(lease, RELEASED)

    shown = world.caches.shown()

    (kept,) = world.existing("volume")
    assert [volume["provider_id"] for volume in shown["volumes"]] == [kept.id]
    assert (shown["state"], shown["price_per_month_usd"]) == ("available", "4.00")
    world.end()


def test_speed_that_was_bought_is_billed_as_it_was_told_and_on_the_book(worlds: list[AwsWorld]) -> None:
    worlds.append(world := AwsWorld())
    fast = {**MODELS, "name": "fast", "size_gb": 60, "throughput_mibps": 400}
    told = world.stack.api("POST", "/v1/caches", fast, query={"dry_run": "true"})["price_per_month_usd"]
    world.stack.api("POST", "/v1/caches", fast)
    world.stack.run_until(
        lambda: world.stack.api("GET", "/v1/caches/fast")["state"] == "available", limit_seconds=300, step_seconds=2
    )

    shown = world.stack.api("GET", "/v1/caches/fast")

    (volume,) = [each for each in world.existing("volume") if each.size_gb == 60]
    assert told == shown["price_per_month_usd"] == "15.80"
    assert shown["throughput_mibps"] == 400
    assert volume.hourly_usd * 730 == pytest.approx(Decimal(told))
    (call,) = [each for each in world.calls("CreateVolume") if "Throughput" in each.params]
    assert call.params["Throughput"] == "400"
    world.stack.api("DELETE", "/v1/caches/fast")
    world.until(shown["id"], RELEASED)
    world.end()


def test_c34_attach_waits_until_the_instance_runs(worlds: list[AwsWorld]) -> None:
    worlds.append(world := AwsWorld())

    lease = world.stack.up(**T4)
    world.until(lease, RUNNING)

    assert len(world.calls("AttachVolume")) == 1, "none was refused"
    (machine,) = world.stack.record(lease).of_kind(ResourceKind.INSTANCE)
    assert world.caches.volume(world.cache).attached_to == machine.id
    assert len(world.stack.lease(lease).attempts) == 1
    world.end()


def test_c36_a_detach_that_would_hang_is_not_asked_for_and_the_next_job_waits(worlds: list[AwsWorld]) -> None:
    """The machine goes first, and its end frees the volume."""
    hangs = replace(VolumeBehaviour(), detached_seconds=(math.inf, math.inf))
    worlds.append(world := AwsWorld(volume=hangs))
    first = world.stack.up(**T4)
    world.until(first, RUNNING)
    world.stack.down(first)

    second = world.stack.up(**{**T4, "name": "next"})
    world.stack.run_for(5)
    shown = world.caches.shown()
    world.until(second, RUNNING)

    assert shown["state"] == "in_use" and shown["used_by"]["lease_id"] == first
    assert world.calls("DetachVolume") == [] and world.stack.lease(first).state is RELEASED
    assert world.stack.lease(world.cache).members == (f"{second}.instance.1",)
    world.end()


def test_c37_only_offers_of_the_volumes_zone_are_tried(worlds: list[AwsWorld]) -> None:
    worlds.append(world := AwsWorld())

    lease = world.stack.up(**T4)
    world.until(lease, RUNNING)

    assert {attempt.offer.zone for attempt in world.stack.lease(lease).attempts} == {ZONE}
    (machine,) = world.stack.record(lease).of_kind(ResourceKind.INSTANCE)
    assert machine.zone == ZONE
    world.end()


def test_c37_without_capacity_in_that_zone_nothing_is_created_anywhere(worlds: list[AwsWorld]) -> None:
    worlds.append(world := AwsWorld(capacity={f"{ZONE}/*": 0}))

    lease = world.stack.up(**T4)
    world.until(lease, RELEASED)

    row = world.stack.lease(lease)
    assert row.reason is Reason.NO_CAPACITY and f"us-east-1/{ZONE}" in row.reason_detail
    assert [each for each in world.stack.aws.book.objects() if each.kind == "instance"] == []
    assert world.caches.shown()["state"] == "available"
    world.end()


def test_c34_an_attach_that_hangs_is_looked_at_more_rarely_after_a_minute(worlds: list[AwsWorld]) -> None:
    worlds.append(world := AwsWorld(volume=replace(VolumeBehaviour(), attached_seconds=(math.inf, math.inf))))
    lease = world.stack.up(**T4)
    assert world.stack.run_until(lambda: bool(world.calls("AttachVolume")), limit_seconds=900, step_seconds=1)
    asked = world.stack.clock.time()

    world.until(lease, RELEASED)

    looks = [call.at - asked for call in world.calls("DescribeVolumes") if call.at > asked]
    assert len([at for at in looks if at < 60]) in range(15, 30)
    assert len([at for at in looks if 60 <= at < 540]) in range(40, 80)
    assert world.stack.lease(lease).reason is Reason.CACHE_FAILED
    world.end()
