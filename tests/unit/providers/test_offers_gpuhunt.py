"""Offers through gpuhunt's catalogue: nothing is lost on the way, and a provider's failure leaves the old offers."""

import threading
from decimal import Decimal

import pytest
from gpulease.domain.offer import Offer, PlanKind
from gpulease.ports import Provider
from gpulease.providers.offers_gpuhunt import Collected, collect, item_of_offer, offer_of_item
from gpulease.providers.vultr.catalog import KNOWN_GPUS
from gpulease_sim.vultr.faults import Fault

from tests.support.provider_world import Lines, ManualClock, VultrWorld


@pytest.fixture
def world() -> VultrWorld:
    return VultrWorld()


def run(*adapters: Provider, deadline_seconds: float = 60) -> Collected:
    return collect(adapters, clock=ManualClock(), log=Lines(), deadline_seconds=deadline_seconds)


def test_all_offers_come_out_as_they_went_in_and_in_a_fixed_order(world: VultrWorld) -> None:
    given = world.provider.offers()

    first, second = run(world.provider), run(world.provider)

    (snapshot,) = first.snapshots
    assert {offer.key: offer for offer in snapshot.offers} == {offer.key: offer for offer in given}
    assert list(snapshot.offers) == sorted(given, key=lambda o: (o.price_per_hour_usd, o.key))
    assert first == second and not first.failures
    assert snapshot.as_of == ManualClock().now()


def test_every_gpu_we_know_is_one_that_the_catalogue_knows() -> None:
    for plan, gpu in KNOWN_GPUS.items():
        offer = Offer(
            provider="vultr",
            region="ewr",
            plan=plan,
            kind=PlanKind.VM,
            gpu_model=gpu.model,
            gpu_count=gpu.count,
            gpu_memory_gib=gpu.memory_gib,
            vcpus=1,
            memory_gib=0.5,
            disk_gb=1,
            price_per_hour_usd=Decimal("0.1000000000000000000001"),
            cpu_arch=gpu.cpu_arch,
            private_network=False,
        )

        item = item_of_offer(offer)

        assert item is not None and offer_of_item(item) == offer


def test_a_provider_that_fails_gives_no_snapshot(world: VultrWorld) -> None:
    world.cloud.faults.add(Fault(method="GET", path="/plans-metal", execute=False, status=502))

    collected = run(world.provider)

    assert collected.snapshots == () and "unavailable" in collected.failures["vultr"]


def test_a_provider_without_any_offer_gives_no_snapshot(world: VultrWorld) -> None:
    empty = '{"plans": [], "plans_metal": [], "meta": {"total": 0, "links": {"next": "", "prev": ""}}}'
    world.cloud.faults.add(Fault(method="GET", path="/plans.*", execute=False, body=empty))

    collected = run(world.provider)

    assert collected.snapshots == () and "no offers" in collected.failures["vultr"]


def test_a_provider_that_is_late_is_not_waited_for(world: VultrWorld) -> None:
    let_go = threading.Event()

    class Late:
        name = "vultr"

        def offers(self) -> list[Offer]:
            let_go.wait(30)
            return []

    collected = run(Late(), deadline_seconds=0.05)  # type: ignore[arg-type]
    let_go.set()

    assert collected.snapshots == () and "no answer" in collected.failures["vultr"]


def test_another_account_of_the_same_provider_stands_in(world: VultrWorld) -> None:
    broken = VultrWorld()
    broken.refuse_key()

    collected = run(broken.provider, world.provider)

    assert [snapshot.provider for snapshot in collected.snapshots] == ["vultr"] and not collected.failures


def test_a_defect_of_ours_is_not_taken_for_a_failure_of_the_provider() -> None:
    class Defective:
        name = "vultr"

        def offers(self) -> list[Offer]:
            raise KeyError("a bug")

    with pytest.raises(KeyError):
        run(Defective())  # type: ignore[arg-type]
