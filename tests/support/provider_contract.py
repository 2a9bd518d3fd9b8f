"""The contract of `ports.Provider`, as tests that run against any simulated provider.

Subclass `ProviderContract` in a test module and give it a fixture `world`. Rules that hold for machines run for every
plan kind that the provider has.
"""

import contextlib

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind, marker_for
from gpulease.errors import (
    CapacityRefused,
    InputInvalid,
    ProviderAuthFailed,
    ProviderBusy,
    ProviderError,
    ProviderUnavailable,
    QuotaRefused,
)
from gpulease.ports import NetworkRequest, Ref

from tests.support.provider_world import DEPLOYMENT, KEY, World, ref_of, request

MARKER = marker_for(DEPLOYMENT, "l-aaaaaaaaaaaa.instance.1")
NETWORK_MARKER = marker_for(DEPLOYMENT, "l-aaaaaaaaaaaa.network.1")
LONGEST_BOOT_SECONDS = 3300.0
LONGEST_DESTRUCTION_SECONDS = 300.0


@pytest.fixture(params=list(PlanKind))
def kind(request: pytest.FixtureRequest, world: World) -> PlanKind:
    """Each plan kind of the provider."""
    assert isinstance(request.param, PlanKind)
    if request.param not in world.provider.capabilities.plan_kinds:
        pytest.skip(f"the provider has no {request.param} plans")
    return request.param


def ready_machine(world: World, kind: PlanKind, marker: str = MARKER, **changes: object) -> Observation:
    made = world.provider.create_instance(request(world.offer(kind), marker, **changes))
    world.advance(LONGEST_BOOT_SECONDS)
    seen = world.provider.observe(ref_of(made))
    assert isinstance(seen, Observation)
    assert seen.condition is Condition.READY
    return seen


class ProviderContract:
    """The rules."""

    def test_every_offer_names_a_gpu_a_price_and_a_region(self, world: World) -> None:
        offers = world.provider.offers()

        assert offers
        assert len({offer.key for offer in offers}) == len(offers)
        for offer in offers:
            assert offer.provider == world.provider.name
            assert offer.gpu_count > 0 and offer.gpu_memory_gib > 0 and offer.gpu_model
            assert offer.price_per_hour_usd > 0
            assert offer.region in world.provider.regions()
            assert world.provider.ready_deadline_seconds(offer) > 0

    def test_live_tells_stock_and_price(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        assert world.provider.live(offer).in_stock is not False
        if not world.tells_stock:
            assert world.provider.live(offer).price_per_hour_usd == offer.price_per_hour_usd
            pytest.skip("the provider does not say what is sold out")

        world.sell_out(offer)

        live = world.provider.live(offer)
        assert live.in_stock is False
        assert live.price_per_hour_usd == offer.price_per_hour_usd

    def test_networks_are_free_and_machines_are_not(self, world: World) -> None:
        assert world.provider.billing_rule(ResourceKind.INSTANCE) is not BillingRule.FREE
        assert world.provider.billing_rule(ResourceKind.NETWORK) is BillingRule.FREE

    def test_an_image_of_no_known_form_is_refused_without_a_call(self, world: World, kind: PlanKind) -> None:
        world.refuse_key()

        world.provider.check_image(None, kind)
        with pytest.raises(InputInvalid) as caught:
            world.provider.check_image("no such: image!", kind)

        assert caught.value.field == "image"

    def test_a_machine_goes_from_pending_to_ready_with_an_address(self, world: World, kind: PlanKind) -> None:
        made = world.provider.create_instance(request(world.offer(kind), MARKER))
        assert made.condition is Condition.PENDING
        assert made.marker == MARKER and made.provider_id and made.subkind == kind.value
        assert not made.address

        world.advance(LONGEST_BOOT_SECONDS)

        seen = world.provider.observe(ref_of(made))
        assert isinstance(seen, Observation)
        assert seen.condition is Condition.READY and seen.address
        assert seen.marker == MARKER

    def test_a_machine_is_found_by_exactly_its_marker(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        wanted = world.provider.create_instance(request(offer, MARKER))
        world.provider.create_instance(request(offer, MARKER.upper()))
        world.provider.create_instance(request(offer, MARKER + "0"))
        world.advance(120)

        found = world.provider.find(ref_of(wanted, by_marker=True))

        assert [each.provider_id for each in found] == [wanted.provider_id]
        assert found[0].marker == MARKER

    def test_both_of_two_machines_with_one_marker_are_found(self, world: World, kind: PlanKind) -> None:
        first = world.provider.create_instance(request(world.offer(kind), MARKER))
        world.advance(120)
        second = world.provider.create_instance(request(world.offer(kind), MARKER))
        world.advance(120)

        found = world.provider.find(ref_of(first, by_marker=True))

        assert [each.provider_id for each in found] == [first.provider_id, second.provider_id]

    def test_a_machine_missing_from_lists_is_still_there_by_id(self, world: World, kind: PlanKind) -> None:
        world.hide_from_lists(60)
        made = world.provider.create_instance(request(world.offer(kind), MARKER))
        world.advance(30)

        assert world.provider.find(ref_of(made, by_marker=True)) == []
        assert isinstance(world.provider.observe(ref_of(made)), Observation)

        world.advance(world.provider.visibility_window_seconds)
        assert world.provider.find(ref_of(made, by_marker=True))

    def test_a_create_whose_answer_is_lost_is_not_sent_again(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        world.lose_next_create_answer()

        with pytest.raises(ProviderUnavailable):
            world.provider.create_instance(request(offer, MARKER))

        assert world.creates_seen() == 1
        world.advance(120)
        ref = Ref(ResourceKind.INSTANCE, offer.region, MARKER, subkind=kind.value)
        assert len(world.provider.find(ref)) == 1

    def test_no_stock_is_told_as_no_capacity_and_makes_nothing(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        world.sell_out(offer)

        with pytest.raises(CapacityRefused):
            world.provider.create_instance(request(offer, MARKER))

        assert world.machines_made() == 0

    def test_no_stock_in_words_nobody_knows_is_still_no_capacity(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        world.reword()
        world.sell_out(offer)

        with pytest.raises(CapacityRefused):
            world.provider.create_instance(request(offer, MARKER))

    def test_a_limit_of_the_account_is_told_as_quota(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        world.reach_limit()

        with pytest.raises(QuotaRefused):
            world.provider.create_instance(request(offer, MARKER))

        assert world.machines_made() == 0

    def test_a_limit_in_words_nobody_knows_is_still_quota(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        world.reword()
        world.reach_limit()

        with pytest.raises(QuotaRefused, match="." if world.names_refusals else "inferred"):
            world.provider.create_instance(request(offer, MARKER))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_destroyed_machine_is_there_until_it_reads_as_absent(
        self, world: World, kind: PlanKind, reworded: bool
    ) -> None:
        seen = ready_machine(world, kind)
        if reworded:
            world.reword()

        world.provider.destroy(ref_of(seen))
        assert isinstance(world.provider.observe(ref_of(seen)), Observation)
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(seen)), Absent)
        assert isinstance(world.provider.observe(ref_of(seen, by_marker=True)), Absent)
        world.provider.destroy(ref_of(seen))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_machine_that_just_started_cannot_be_destroyed_yet(
        self, world: World, kind: PlanKind, reworded: bool
    ) -> None:
        if not world.refuses_early_destroy:
            pytest.skip("the provider takes a destroy at any time")
        made = world.provider.create_instance(request(world.offer(kind), MARKER))
        if reworded:
            world.reword()
        world.advance(3)

        with pytest.raises(ProviderBusy):
            world.provider.destroy(ref_of(made))

        assert isinstance(world.provider.observe(ref_of(made)), Observation)

    def test_a_machine_removed_by_hand_is_absent(self, world: World, kind: PlanKind) -> None:
        seen = ready_machine(world, kind)

        world.remove_by_hand(seen.provider_id)
        world.advance(LONGEST_DESTRUCTION_SECONDS)

        assert isinstance(world.provider.observe(ref_of(seen)), Absent)
        assert world.provider.find(ref_of(seen, by_marker=True)) == []

    @pytest.mark.parametrize(
        ("status", "body", "html"),
        [
            (502, "Bad Gateway", True),
            (504, "Gateway Time-out", True),
            (500, "Something nobody has ever read", False),
            (429, "slow down", False),
            (403, "no", False),
            (200, "", False),
            (200, "{}", False),
            (200, "[]", False),
            (200, "null", False),
            (200, '{"instances": []}', False),
            (200, "<html>maintenance</html>", False),
        ],
    )
    def test_a_read_that_failed_never_means_absent(
        self, world: World, kind: PlanKind, status: int, body: str, html: bool
    ) -> None:
        seen = ready_machine(world, kind)
        world.break_reads(body, status, html=html)

        for ref in (ref_of(seen), ref_of(seen, by_marker=True)):
            with pytest.raises(ProviderError):
                world.provider.observe(ref)
            with pytest.raises(ProviderError):
                world.provider.find(ref)
        with pytest.raises(ProviderError):
            list(world.provider.list_owned(seen.region, DEPLOYMENT))

    def test_a_refused_key_never_means_absent_and_is_shown_nowhere(self, world: World, kind: PlanKind) -> None:
        seen = ready_machine(world, kind)
        world.refuse_key()

        for call in (world.provider.observe, world.provider.find, world.provider.destroy):
            with pytest.raises(ProviderAuthFailed) as caught:
                call(ref_of(seen))
            chain: BaseException | None = caught.value
            while chain is not None:
                assert KEY not in f"{chain} {chain!r} {vars(chain)}"
                chain = chain.__cause__ or chain.__context__
        assert KEY not in repr(world.provider)

    def test_a_network_is_made_found_and_deleted(self, world: World) -> None:
        if not world.provider.capabilities.private_networks:
            pytest.skip("no private networks")
        region = world.offer(PlanKind.VM).region

        made = world.provider.create_network(NetworkRequest(region, NETWORK_MARKER))
        assert made.marker == NETWORK_MARKER and made.region == region
        world.provider.create_network(NetworkRequest(region, NETWORK_MARKER + "0"))
        world.provider.create_network(NetworkRequest(region, NETWORK_MARKER.upper()))
        found = world.provider.find(ref_of(made, by_marker=True))
        assert [each.provider_id for each in found] == [made.provider_id]

        world.provider.destroy(ref_of(made))
        world.advance(60)
        assert isinstance(world.provider.observe(ref_of(made)), Absent)
        assert isinstance(world.provider.observe(ref_of(made, by_marker=True)), Absent)
        world.provider.destroy(ref_of(made))

    @pytest.mark.parametrize("reworded", [False, True])
    def test_a_network_shows_on_its_machine_and_outlives_it(self, world: World, kind: PlanKind, reworded: bool) -> None:
        machine = ready_machine(world, kind)
        network = world.provider.create_network(NetworkRequest(machine.region, NETWORK_MARKER))
        if reworded:
            world.reword()

        joined = False
        for _ in range(30):
            with contextlib.suppress(ProviderBusy):
                world.provider.attach_network(ref_of(machine), ref_of(network))
            world.advance(15)
            seen = world.provider.observe(ref_of(machine))
            assert isinstance(seen, Observation)
            if joined := network.provider_id in seen.network_ids:
                break
        assert joined

        with pytest.raises(ProviderBusy):
            world.provider.destroy(ref_of(network))
        assert isinstance(world.provider.observe(ref_of(network)), Observation)
        world.advance(LONGEST_DESTRUCTION_SECONDS)
        world.provider.destroy(ref_of(machine))
        world.advance(LONGEST_DESTRUCTION_SECONDS)
        world.provider.destroy(ref_of(network))
        world.advance(60)
        assert isinstance(world.provider.observe(ref_of(network)), Absent)

    def test_the_inventory_shows_this_deployment_in_this_region_only(self, world: World, kind: PlanKind) -> None:
        offer = world.offer(kind)
        mine = world.provider.create_instance(request(offer, MARKER))
        network = world.provider.create_network(NetworkRequest(offer.region, NETWORK_MARKER))
        world.provider.create_instance(request(offer, marker_for("dep12", "l-bbbbbbbbbbbb.instance.1")))
        world.provider.create_instance(request(offer, "somebody-else"))
        world.advance(120)

        owned = {each.provider_id for each in world.provider.list_owned(offer.region, DEPLOYMENT)}

        assert owned == {mine.provider_id, network.provider_id}
        elsewhere = next(region for region in world.provider.regions() if region != offer.region)
        assert list(world.provider.list_owned(elsewhere, DEPLOYMENT)) == []
