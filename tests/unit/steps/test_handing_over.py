"""A stopped machine's cache goes over to the machine that replaces it, and comes back where that came to nothing."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState
from gpulease.ports import Provider
from gpulease.steps.base import ref_of
from gpulease_local.simulate.virtual import OWNER

from tests.support.cache_world import Caches
from tests.support.pause_world import R_SECONDS, PauseWorld

S = LeaseState
MINUTE = 60.0
NO_CAPACITY = "InsufficientInstanceCapacity"
ZONE = "us-east-1a"
ON_AWS = {"provider": "aws", "region": "us-east-1", "zone": ZONE}
STORE = {"bucket": "models", "endpoint": "https://s3.invalid", "credentials": "mine"}
USES: dict[str, Any] = {
    "providers": ["aws"],
    "plans": ["g6.xlarge"],
    "regions": ["us-east-1"],
    "cache": {"name": "models", "mounts": ["/root/.cache/huggingface"]},
}


class Paused:
    """A lease with a cache, paused on a stopped machine that holds the cache's volume."""

    def __init__(self, world: PauseWorld, **cache: Any) -> None:
        self.world = world
        self.caches = Caches(world.stack)
        self.cache = self.caches.make(OWNER, **{**ON_AWS, **cache})
        self.lease = world.up(name="box", **USES)
        world.paused(self.lease)
        self.old = world.machine(self.lease)
        self.volume = self.caches.volume(self.cache).provider_id

    @property
    def aws(self) -> Provider:
        """Calls that somebody makes past gpulease, as in the provider's console."""
        return self.world.stack.stack.deps.providers.get("aws")

    def holder(self) -> str:
        """Which machine has the volume, by the provider; empty = none."""
        return self.world.stack.clouds.user_of(self.volume)

    def detach_by_hand(self) -> None:
        self.aws.detach_volume(ref_of(self.caches.volume(self.cache)), ref_of(self.old))
        self.world.wait(lambda: not self.holder(), 120, "not detached")

    def replace(self) -> None:
        """Resume it without capacity for the stopped machine."""
        self.world.fault(action="StartInstances", code=NO_CAPACITY)
        self.world.resume(self.lease, on_no_capacity="replace", wait_seconds="0")

    def in_vain(self) -> None:
        """The same, and no new machine can be had either; paused again."""
        self.world.fault(action="(Start|Run)Instances", code=NO_CAPACITY)
        self.world.resume(self.lease, on_no_capacity="replace", wait_seconds="0")
        self.world.until(self.lease, S.RESUMING, within=10)
        self.world.until(self.lease, S.PAUSED, within=3600)
        self.world.no_faults()

    def old_is_kept(self) -> bool:
        row = self.world.record(self.lease).resource(self.old.id)
        kept = row is not None and row.state is ResourceState.HELD
        return kept and self.world.aws.book.get(self.old.provider_id).destroyed is None

    def old_is_released(self) -> None:
        """Let time pass until the old machine is given back."""
        self.world.wait(lambda: not self._is_open(), 600, "the old one is kept")

    def _is_open(self) -> bool:
        rows = {row.id: row for row in self.world.record(self.lease).resources}
        return rows[self.old.id].state is not ResourceState.RELEASED

    def resumed(self) -> None:
        """Resume it with its stopped machine, and look that its cache is there when it runs."""
        self.world.resume(self.lease)
        self.world.until(self.lease, S.RUNNING, within=1200)
        assert self.world.lease(self.lease).attempts[self.old.attempt - 1].open
        assert self.holder() == self.old.provider_id
        assert self.world.stack.lease(self.cache).members == (self.old.id,)


@pytest.fixture
def world() -> Iterator[PauseWorld]:
    made = PauseWorld()
    yield made
    made.close()


# --- over to the new machine ------------------------------------------------------------------------------------------


def test_the_new_machine_gets_the_cache_of_the_stopped_one(world: PauseWorld) -> None:
    box = Paused(world)

    box.replace()
    world.until(box.lease, S.RUNNING, within=1200)

    new = world.machine(box.lease)
    assert new.id != box.old.id and new.zone == ZONE
    assert box.holder() == new.provider_id
    assert world.stack.lease(box.cache).members == (new.id,)
    asked, launched = world.calls("DetachVolume"), world.calls("RunInstances")[-1]
    assert len(asked) == 1 and asked[0] < launched, "nothing that costs money before the volume is free"
    box.old_is_released()
    world.run_for(2 * R_SECONDS)
    assert box.holder() == new.provider_id, "the end of the old one has not touched it"
    assert world.calls("DetachVolume") == asked
    world.assert_right()


def test_a_detach_whose_answer_is_lost_is_seen_and_not_sent_twice(world: PauseWorld) -> None:
    box = Paused(world)
    world.fault(action="DetachVolume", cut=True, execute=True, times=1)

    box.replace()
    world.until(box.lease, S.RUNNING, within=1200)

    assert len(world.calls("DetachVolume")) == 1
    assert box.holder() == world.machine(box.lease).provider_id
    world.assert_right()


def test_a_detach_that_is_refused_for_a_while_is_asked_for_again(world: PauseWorld) -> None:
    box = Paused(world)
    world.fault(action="DetachVolume", code="IncorrectState", times=3)

    box.replace()
    world.until(box.lease, S.RUNNING, within=1200)

    asked = world.calls("DetachVolume")
    assert len(asked) == 4
    assert all(later - earlier >= 8 for earlier, later in itertools.pairwise(asked))
    world.assert_right()


def test_a_detach_that_stays_refused_ends_the_resume_and_nothing_is_deleted(world: PauseWorld) -> None:
    box = Paused(world)
    world.fault(action="DetachVolume", code="IncorrectState")

    began = world.now
    box.replace()
    world.until(box.lease, S.RESUMING, within=10)
    back = world.until(box.lease, S.PAUSED, within=1200)

    assert back - began <= 11 * MINUTE
    pause = world.lease(box.lease).pause
    assert pause is not None and pause.resume_failed is Reason.CACHE_BUSY
    assert any("cache_busy" in notice for notice in world.lease(box.lease).notices)
    assert box.old_is_kept() and box.holder() == box.old.provider_id
    assert len(world.machines_booked()) == 1, "nothing was asked for"
    world.assert_right()

    world.no_faults()
    box.resumed()
    assert world.calls("AttachVolume")[1:] == [], "it was there all the time"
    world.assert_right()


def test_a_detach_that_takes_effect_after_the_patience_is_mended_by_the_next_resume(world: PauseWorld) -> None:
    slow = world.aws.settings.volume
    world.aws.settings = replace(world.aws.settings, volume=replace(slow, detached_seconds=(900, 900)))
    box = Paused(world)
    box.replace()
    world.until(box.lease, S.RESUMING, within=10)
    world.until(box.lease, S.PAUSED, within=1200)
    assert box.holder() == box.old.provider_id, "on its way from there"

    world.no_faults()
    box.resumed()

    assert len(world.machines_booked()) == 1
    world.assert_right()


def test_a_machine_that_somebody_has_started_meanwhile_keeps_its_volume(world: PauseWorld) -> None:
    box = Paused(world)
    world.fault(action="DetachVolume", code="IncorrectState")
    box.replace()
    world.wait(lambda: bool(world.calls("DetachVolume")), 300, "not asked to detach")

    world.no_faults()
    box.aws.start(ref_of(box.old))
    asked = world.calls("DetachVolume")
    world.until(box.lease, S.PAUSED, within=1200)

    assert world.calls("DetachVolume") == asked, "never from a machine that may run"
    assert box.holder() == box.old.provider_id and len(world.machines_booked()) == 1
    world.assert_right()


def test_a_volume_that_hangs_at_somebody_elses_machine_is_left_there(world: PauseWorld) -> None:
    box = Paused(world)
    other = world.up(name="other", **{**USES, "cache": None})
    box.detach_by_hand()
    before = len(world.calls("DetachVolume"))
    box.aws.attach_volume(ref_of(box.caches.volume(box.cache)), ref_of(world.machine(other)))
    world.run_for(60)

    box.replace()
    world.until(box.lease, S.RESUMING, within=10)
    world.until(box.lease, S.PAUSED, within=1200)

    pause = world.lease(box.lease).pause
    assert pause is not None and pause.resume_failed in (Reason.CACHE_BUSY, Reason.CACHE_FAILED)
    assert len(world.calls("DetachVolume")) == before
    assert box.holder() == world.machine(other).provider_id and box.old_is_kept()


def test_without_capacity_in_the_zone_a_machine_elsewhere_takes_the_object_store(world: PauseWorld) -> None:
    box = Paused(world, object_store=STORE)
    world.aws.settings = replace(world.aws.settings, capacity={f"{ZONE}/*": 0})

    box.replace()
    world.until(box.lease, S.RUNNING, within=1200)

    new, zones = world.machine(box.lease), [a.offer.zone for a in world.lease(box.lease).attempts]
    assert zones[1] == ZONE, "the volume's zone first"
    assert new.zone != ZONE and world.lease(box.lease).attempts[-1].volume is None
    box.old_is_released()
    assert world.stack.lease(box.cache).members == () and not box.holder()
    assert world.aws.book.get(box.volume).destroyed is None
    world.assert_right()


def test_where_no_offer_is_left_in_the_zone_the_volume_stays_with_the_old_machine_until_its_end(
    world: PauseWorld,
) -> None:
    box = Paused(world, object_store=STORE)
    offers = world.stack.stack.deps.offers
    for known in offers.load():
        offers.save(known.model_copy(update={"offers": tuple(o for o in known.offers if o.zone != ZONE)}))

    box.replace()
    world.until(box.lease, S.RUNNING, within=1200)

    assert world.machine(box.lease).zone != ZONE and world.calls("DetachVolume") == []
    assert box.holder() == box.old.provider_id
    box.old_is_released()
    world.wait(lambda: not world.stack.lease(box.cache).members, 120, "the cache still counts a machine")
    assert world.aws.book.get(box.volume).destroyed is None and not box.holder()
    world.assert_right()


# --- and back ---------------------------------------------------------------------------------------------------------


def test_the_old_machine_gets_its_cache_back_before_it_starts(world: PauseWorld) -> None:
    box = Paused(world)
    box.in_vain()
    assert box.old_is_kept() and not box.holder()
    assert world.stack.lease(box.cache).members == (), "free, as long as nobody starts with it"

    since = world.now
    box.resumed()

    assert world.calls("AttachVolume", since)[0] < world.calls("StartInstances", since)[0]
    world.assert_right()


@pytest.mark.parametrize("code", ["IncorrectState", "UnsupportedOperation"])
def test_a_volume_that_did_not_come_back_is_tried_anew_by_the_next_resume(world: PauseWorld, code: str) -> None:
    box = Paused(world)
    box.in_vain()
    world.fault(action="AttachVolume", code=code)
    since = world.now
    world.resume(box.lease)
    world.until(box.lease, S.RESUMING, within=10)
    world.until(box.lease, S.PAUSED, within=1200)
    pause = world.lease(box.lease).pause
    assert pause is not None and pause.resume_failed is Reason.CACHE_FAILED
    assert world.calls("StartInstances", since) == [] and box.old_is_kept()

    world.no_faults()
    box.resumed()

    world.assert_right()


def test_a_new_machine_that_had_the_cache_and_failed_gives_it_back_to_the_old_one(world: PauseWorld) -> None:
    box = Paused(world)
    world.behave(guest_boot_seconds=(1e9, 1e9))
    box.replace()
    world.until(box.lease, S.RESUMING, within=10)
    world.until(box.lease, S.PAUSED, within=3600)
    new = world.machine(box.lease)
    assert new.id != box.old.id and box.old_is_kept()

    world.no_faults()
    world.resume(box.lease)
    world.until(box.lease, S.RUNNING, within=1200)

    assert box.holder() == box.old.provider_id
    world.run_for(2 * R_SECONDS)
    assert box.holder() == box.old.provider_id
    world.assert_right()


def test_a_cache_that_another_lease_took_meanwhile_costs_no_start(world: PauseWorld) -> None:
    box = Paused(world)
    box.in_vain()
    other = world.up(name="other", **USES)

    since = world.now
    world.resume(box.lease)
    world.until(box.lease, S.RESUMING, within=10)
    world.until(box.lease, S.PAUSED, within=120)

    pause = world.lease(box.lease).pause
    assert pause is not None and pause.resume_failed is Reason.CACHE_BUSY
    assert any("other" in notice for notice in world.lease(box.lease).notices)
    assert world.calls("StartInstances", since) == [] and box.old_is_kept()
    assert box.holder() == world.machine(other).provider_id
    world.assert_right()

    world.stack.down(other)
    box.resumed()
    world.assert_right()


def test_a_volume_detached_by_hand_is_found_and_attached_again_before_the_start(world: PauseWorld) -> None:
    box = Paused(world)
    box.detach_by_hand()

    since = world.now
    box.resumed()

    assert world.calls("AttachVolume", since)[0] < world.calls("StartInstances", since)[0]
    assert [each.kind for each in world.events(box.lease, "cache_not_attached")] == ["cache_not_attached"]
    world.assert_right()


def test_where_it_was_never_detached_nothing_is_asked_of_the_volume(world: PauseWorld) -> None:
    box = Paused(world)

    since = world.now
    box.resumed()

    assert world.calls("AttachVolume", since) == []
    swept = world.calls("DescribeVolumes", since)
    assert all(at % R_SECONDS < 5 for at in swept), "the sweep's reads alone"
    world.assert_right()


def test_a_machine_is_not_kept_from_its_owner_because_its_cache_is_lost(world: PauseWorld) -> None:
    box = Paused(world)
    box.in_vain()
    box.aws.destroy(ref_of(box.caches.volume(box.cache)))
    world.wait(lambda: world.stack.lease(box.cache).state is S.RELEASED, 4 * R_SECONDS, "the cache is not lost")

    world.resume(box.lease)
    world.until(box.lease, S.RUNNING, within=1200)

    assert any("cache is gone" in warning for warning in world.lease(box.lease).warnings)
    world.stack.down(box.lease)
    world.until(box.lease, S.RELEASED, within=900)
    world.assert_right()


def test_a_lease_given_back_in_the_middle_frees_its_cache(world: PauseWorld) -> None:
    box = Paused(world)
    world.fault(action="DetachVolume", code="IncorrectState")
    box.replace()
    world.wait(lambda: bool(world.calls("DetachVolume")), 300, "not asked to detach")

    world.stack.down(box.lease)
    world.until(box.lease, S.RELEASED, within=900)

    assert world.stack.lease(box.cache).members == () and not box.holder()
    assert world.stack.lease(box.cache).state is S.RUNNING
    world.assert_right()
