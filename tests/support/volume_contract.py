"""The part of the provider contract that is about volumes. Subclass `VolumeContract` beside `ProviderContract`.

The suite works with a VM offer of the world that can have volumes, and with the place (region, zone) of that offer.
"""

import contextlib
from collections.abc import Callable

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind, marker_for
from gpulease.errors import (
    InputInvalid,
    ProviderAuthFailed,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    QuotaRefused,
)
from gpulease.ports import Ref, VolumeRequest

from tests.support.provider_contract import LONGEST_DESTRUCTION_SECONDS, ready_machine
from tests.support.provider_world import DEPLOYMENT, World, ref_of, request

VOLUME_MARKER = marker_for(DEPLOYMENT, "c-aaaaaaaaaaaa.volume.1")
MACHINE_MARKER = marker_for(DEPLOYMENT, "l-aaaaaaaaaaaa.instance.1")
OTHER_MACHINE_MARKER = marker_for(DEPLOYMENT, "l-bbbbbbbbbbbb.instance.1")
SIZE_GB = 100
TRIES = 20
PAUSE_SECONDS = 15.0


def volume_request(
    world: World, marker: str = VOLUME_MARKER, size_gb: int = SIZE_GB, idempotency: str = ""
) -> VolumeRequest:
    """A volume at the place of the world's VM offer; each marker has an idempotency token of its own."""
    offer = world.offer(PlanKind.VM)
    return VolumeRequest(offer.region, size_gb, marker, "my-cache", offer.zone, idempotency or f"token-of-{marker}")


def ready_volume(world: World, marker: str = VOLUME_MARKER) -> Observation:
    """A volume that can be attached."""
    made = world.provider.create_volume(volume_request(world, marker))
    return wait_until(world, made, lambda seen: seen.condition is Condition.READY)


def wait_until(world: World, volume: Observation, true: Callable[[Observation], bool]) -> Observation:
    """Look at the volume until it is so."""
    for _ in range(TRIES):
        seen = world.provider.observe(ref_of(volume))
        assert isinstance(seen, Observation)
        if true(seen):
            return seen
        world.advance(PAUSE_SECONDS)
    raise AssertionError(f"never so: {seen}")


def attached(world: World, volume: Observation, machine: Observation) -> Observation:
    """Ask until the volume is attached to the machine."""
    for _ in range(TRIES):
        with contextlib.suppress(ProviderBusy):
            world.provider.attach_volume(ref_of(volume), ref_of(machine))
        world.advance(PAUSE_SECONDS)
        seen = world.provider.observe(ref_of(volume))
        assert isinstance(seen, Observation)
        if seen.attached:
            assert seen.attached_to == machine.provider_id
            return seen
    raise AssertionError(f"never attached: {seen}")


def is_free(seen: Observation) -> bool:
    return not seen.attached_to and not seen.attached


class VolumeContract:
    """The rules."""

    def test_prices_and_places_of_volumes_need_no_call(self, world: World) -> None:
        offer = world.offer(PlanKind.VM)
        elsewhere = world.elsewhere(offer)
        world.refuse_key()

        price = world.provider.volume_price_per_month(offer.region, SIZE_GB)
        assert 0 < price < world.provider.volume_price_per_month(offer.region, 2 * SIZE_GB)
        assert world.provider.can_attach_volume(offer, offer.region, offer.zone)
        assert not world.provider.can_attach_volume(offer, *elsewhere)

    @pytest.mark.parametrize(("place", "size_gb", "field"), [("", 0, "size_gb"), ("nowhere", SIZE_GB, "region")])
    def test_a_volume_that_nobody_sells_has_no_price(self, world: World, place: str, size_gb: int, field: str) -> None:
        region = place or world.offer(PlanKind.VM).region

        with pytest.raises(InputInvalid) as caught:
            world.provider.volume_price_per_month(region, size_gb)

        assert caught.value.field == field

    def test_volumes_are_not_free(self, world: World) -> None:
        assert world.provider.billing_rule(ResourceKind.VOLUME) is not BillingRule.FREE

    def test_a_volume_goes_from_pending_to_ready_and_is_free(self, world: World) -> None:
        wanted = volume_request(world)

        made = world.provider.create_volume(wanted)
        seen = wait_until(world, made, lambda seen: seen.condition is Condition.READY)

        for each in (made, seen):
            assert each.kind is ResourceKind.VOLUME and each.provider_id
            assert (each.region, each.zone, each.marker) == (wanted.region, wanted.zone, wanted.marker)
            assert each.size_gb == SIZE_GB
            assert is_free(each)

    def test_a_volume_is_found_by_exactly_its_marker(self, world: World) -> None:
        wanted = world.provider.create_volume(volume_request(world))
        world.provider.create_volume(volume_request(world, VOLUME_MARKER.upper()))
        world.provider.create_volume(volume_request(world, VOLUME_MARKER + "0"))
        world.advance(120)

        found = world.provider.find(ref_of(wanted, by_marker=True))

        assert [each.provider_id for each in found] == [wanted.provider_id]
        assert isinstance(world.provider.observe(ref_of(wanted, by_marker=True)), Observation)

    def test_both_of_two_volumes_with_one_marker_are_found(self, world: World) -> None:
        first = world.provider.create_volume(volume_request(world, idempotency="first"))
        world.advance(120)
        second = world.provider.create_volume(volume_request(world, idempotency="second"))
        world.advance(120)

        found = world.provider.find(ref_of(first, by_marker=True))

        assert [each.provider_id for each in found] == [first.provider_id, second.provider_id]

    def test_a_volume_whose_create_answer_is_lost_is_made_once_and_found(self, world: World) -> None:
        wanted = volume_request(world)
        world.lose_next_create_answer()

        with pytest.raises(ProviderUnavailable):
            world.provider.create_volume(wanted)

        assert world.volumes_made() == 1
        world.advance(120)
        ref = Ref(ResourceKind.VOLUME, wanted.region, wanted.marker, zone=wanted.zone)
        assert len(world.provider.find(ref)) == 1

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_limit_for_volumes_is_told_as_quota_and_makes_nothing(self, world: World, reworded: bool) -> None:
        if reworded:
            world.reword()
        world.reach_volume_limit()

        with pytest.raises(QuotaRefused):
            world.provider.create_volume(volume_request(world))

        assert world.volumes_made() == 0

    def test_a_volume_without_a_marker_or_of_a_wrong_size_is_not_asked_for(self, world: World) -> None:
        with pytest.raises(ProviderRejected):
            world.provider.create_volume(volume_request(world, ""))
        with pytest.raises(InputInvalid):
            world.provider.create_volume(volume_request(world, size_gb=0))

        assert world.volumes_made() == 0

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_is_attached_and_detached(self, world: World, reworded: bool) -> None:
        machine, volume = ready_machine(world, PlanKind.VM, MACHINE_MARKER), ready_volume(world)
        if reworded:
            world.reword()

        attached(world, volume, machine)
        with contextlib.suppress(ProviderBusy):
            world.provider.attach_volume(ref_of(volume), ref_of(machine))
        assert wait_until(world, volume, lambda seen: seen.attached).attached_to == machine.provider_id

        world.provider.detach_volume(ref_of(volume), ref_of(machine))
        wait_until(world, volume, is_free)
        world.provider.detach_volume(ref_of(volume), ref_of(machine))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_machine_that_is_starting_takes_no_volume_yet(self, world: World, reworded: bool) -> None:
        volume = ready_volume(world)
        starting = world.provider.create_instance(request(world.offer(PlanKind.VM), MACHINE_MARKER))
        if reworded:
            world.reword()
        world.advance(3)

        with pytest.raises(ProviderBusy):
            world.provider.attach_volume(ref_of(volume), ref_of(starting))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_serves_one_machine_at_a_time(self, world: World, reworded: bool) -> None:
        volume = ready_volume(world)
        first, second = (ready_machine(world, PlanKind.VM, marker) for marker in (MACHINE_MARKER, OTHER_MACHINE_MARKER))
        attached(world, volume, first)
        if reworded:
            world.reword()

        with pytest.raises(ProviderBusy):
            world.provider.attach_volume(ref_of(volume), ref_of(second))
        world.provider.detach_volume(ref_of(volume), ref_of(second))
        world.advance(PAUSE_SECONDS)

        assert wait_until(world, volume, lambda seen: seen.attached).attached_to == first.provider_id

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_of_another_place_can_never_be_attached(self, world: World, reworded: bool) -> None:
        machine = ready_machine(world, PlanKind.VM, MACHINE_MARKER)
        region, zone = world.elsewhere(world.offer(PlanKind.VM))
        made = world.provider.create_volume(VolumeRequest(region, SIZE_GB, VOLUME_MARKER, "x", zone, "elsewhere"))
        volume = wait_until(world, made, lambda seen: seen.condition is Condition.READY)
        if reworded:
            world.reword()

        with pytest.raises(ProviderRejected):
            world.provider.attach_volume(ref_of(volume), ref_of(machine))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_outlives_its_machine_and_becomes_free(self, world: World, reworded: bool) -> None:
        machine, volume = ready_machine(world, PlanKind.VM, MACHINE_MARKER), ready_volume(world)
        attached(world, volume, machine)
        if reworded:
            world.reword()

        world.provider.destroy(ref_of(machine))
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(machine)), Absent)
        wait_until(world, volume, is_free)
        world.provider.detach_volume(ref_of(volume), ref_of(machine))
        with pytest.raises(ProviderRejected):
            world.provider.attach_volume(ref_of(volume), ref_of(machine))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_volume_in_use_is_not_destroyed_and_a_free_one_is(self, world: World, reworded: bool) -> None:
        machine, volume = ready_machine(world, PlanKind.VM, MACHINE_MARKER), ready_volume(world)
        attached(world, volume, machine)
        if reworded:
            world.reword()

        with pytest.raises(ProviderBusy):
            world.provider.destroy(ref_of(volume))
        world.provider.detach_volume(ref_of(volume), ref_of(machine))
        wait_until(world, volume, is_free)
        world.provider.destroy(ref_of(volume))
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(volume)), Absent)
        assert isinstance(world.provider.observe(ref_of(volume, by_marker=True)), Absent)
        world.provider.destroy(ref_of(volume))
        world.provider.detach_volume(ref_of(volume), ref_of(machine))

    def test_a_volume_removed_by_hand_is_absent(self, world: World) -> None:
        volume = ready_volume(world)

        world.remove_by_hand(volume.provider_id)
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(volume)), Absent)
        assert world.provider.find(ref_of(volume, by_marker=True)) == []

    def test_the_inventory_shows_volumes_of_this_deployment_in_this_region_only(self, world: World) -> None:
        mine = ready_volume(world)
        world.provider.create_volume(volume_request(world, marker_for("dep12", "c-bbbbbbbbbbbb.volume.1")))
        world.provider.create_volume(volume_request(world, "somebody-else"))
        world.advance(120)

        [seen] = world.provider.list_owned(mine.region, DEPLOYMENT)

        assert (seen.provider_id, seen.kind, seen.size_gb) == (mine.provider_id, ResourceKind.VOLUME, SIZE_GB)
        elsewhere = next(region for region in world.provider.regions() if region != mine.region)
        assert list(world.provider.list_owned(elsewhere, DEPLOYMENT)) == []

    @pytest.mark.parametrize(("status", "html"), [(502, True), (500, False), (429, False), (403, False)])
    def test_a_read_that_failed_never_means_that_a_volume_is_gone_or_free(
        self, world: World, status: int, html: bool
    ) -> None:
        volume = ready_volume(world)
        world.break_reads("Something nobody has ever read", status, html=html)

        for ref in (ref_of(volume), ref_of(volume, by_marker=True)):
            with pytest.raises(ProviderError):
                world.provider.observe(ref)
            with pytest.raises(ProviderError):
                world.provider.find(ref)

    def test_a_refused_key_never_means_that_a_volume_is_gone(self, world: World) -> None:
        volume = ready_volume(world)
        world.refuse_key()

        for call in (world.provider.observe, world.provider.find, world.provider.destroy):
            with pytest.raises(ProviderAuthFailed):
                call(ref_of(volume))
