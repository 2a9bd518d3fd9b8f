"""C09, C12, C50, C52: what exists at the provider and is in nobody's hands."""

from typing import Any

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.resource import ResourceState
from gpulease.errors import LedgerUnavailable
from gpulease.providers.vultr import client
from gpulease.steps.taking_up import UNOWNED_OWNER
from gpulease_sim.vultr import outage

from tests.support.case_world import R_SECONDS, CaseWorld
from tests.support.sweep_world import NOBODYS, SweepWorld, forget_planting, marker, plant, plant_network, strangers

RUNNING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASED
DESTROY_SECONDS = 60.0


@pytest.fixture
def world(reworded: bool) -> Any:
    made = SweepWorld(reworded=reworded)
    yield made
    made.close()


def _running(world: CaseWorld, **request: Any) -> str:
    lease_id = world.up(**request)
    world.until(lease_id, RUNNING, within=200)
    return lease_id


def test_a_machine_of_a_lease_nobody_knows_is_given_back_at_the_second_sighting(world: SweepWorld) -> None:
    _running(world)
    world.at(320)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])

    world.at(620)
    assert [each.looks for each in world.state_of().unowned] == [1]
    assert not world.calls("DELETE")
    world.at(320 + 2 * R_SECONDS + DESTROY_SECONDS)

    assert world.gone_at(orphan) <= 320 + 2 * R_SECONDS + DESTROY_SECONDS
    foundling = world.lease(NOBODYS)
    assert (foundling.owner, foundling.state, foundling.reason) == (UNOWNED_OWNER, RELEASED, Reason.LOST)
    [alarm] = world.alarms("UnownedResourceFound")
    assert (alarm["provider_id"], alarm["lease_id"]) == (orphan, NOBODYS)
    assert world.record(NOBODYS).resources[0].rates, "it cost something, and that is shown"
    assert world.record(NOBODYS).resources[0].account_identity, "another account's absence is no proof for it either"
    world.assert_right_at_the_end()


def test_a_network_in_nobodys_hands_goes_too(world: SweepWorld) -> None:
    _running(world)
    world.at(320)
    network = plant_network(world, marker(f"{NOBODYS}.network.1.2"))

    world.at(320 + 2 * R_SECONDS + DESTROY_SECONDS)

    world.gone_at(network)
    world.assert_right_at_the_end()


def test_c09_the_twin_that_is_not_in_the_record_is_destroyed_and_the_lease_goes_on(world: SweepWorld) -> None:
    lease_id = _running(world)
    world.at(320)
    twin = plant(world, [world.machine_of(lease_id).marker])

    world.at(320 + 2 * R_SECONDS + DESTROY_SECONDS)

    world.gone_at(twin)
    assert world.lease(lease_id).state is RUNNING
    assert [each.provider_id for each in world.record(lease_id).resources][1:] == [twin]
    world.assert_right_at_the_end(twins_made_by_the_provider=1)


def test_a_second_twin_of_a_lease_that_is_closed_opens_it_again(world: SweepWorld) -> None:
    lease_id = _running(world)
    world.down(lease_id)
    world.until(lease_id, RELEASED, within=200)
    for _ in range(2):
        twin = plant(world, [world.machine_of(lease_id).marker])
        planted = world.now
        world.run_for(2 * R_SECONDS + DESTROY_SECONDS)
        assert world.gone_at(twin) <= planted + 2 * R_SECONDS + DESTROY_SECONDS
        assert world.lease(lease_id).state is RELEASED

    assert len(world.events(lease_id, "duplicate_found")) == 2
    world.assert_right_at_the_end(twins_made_by_the_provider=2)


def test_c12_a_destroy_that_does_nothing_is_not_believed_by_the_sweep_either(world: SweepWorld) -> None:
    world.machine(deletes_ignored=2, destruction_seconds=40)
    lease_id = _running(world)
    asked = world.now
    world.down(lease_id)

    world.until(lease_id, RELEASED, within=3 * R_SECONDS)

    assert world.gone_at(world.machine_of(lease_id).provider_id) <= asked + 3 * R_SECONDS
    assert not world.alarms("UnownedResourceFound"), "what is on its way out is in somebody's hands"
    world.assert_right_at_the_end()


@pytest.mark.parametrize("paging", ["id", "offset"])
def test_c50_the_orphan_on_the_third_page_is_found_in_the_first_sweep(
    world: SweepWorld, paging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE_SIZE", 100)
    world.set(paging=paging)
    _running(world)
    world.at(320)
    strangers(world, 211)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    strangers(world, 15)
    forget_planting(world)

    world.at(620)
    assert [each.provider_id for each in world.state_of().unowned] == [orphan]
    world.at(320 + 2 * R_SECONDS + DESTROY_SECONDS)

    world.gone_at(orphan)
    assert len(world.calls("DELETE")) == 1
    world.assert_right_at_the_end()


@pytest.mark.parametrize("paging", ["id", "offset"])
@pytest.mark.parametrize("change", ["created", "deleted"])
def test_c50_also_while_the_list_changes_between_two_pages(
    world: SweepWorld, paging: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE_SIZE", 100)
    world.set(paging=paging)
    _running(world)
    world.at(320)
    ours_to_change = strangers(world, 211)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    strangers(world, 15)
    forget_planting(world)
    handle = world.cloud.handle

    def changing(method: str, path: str, query: Any = None, headers: Any = None, body: bytes = b"", *more: Any) -> Any:
        answer = handle(method, path, query, headers, body, *more)
        if method == "GET" and path.endswith("/instances") and "region" in (query or {}) and len(ours_to_change) > 190:
            gone = ours_to_change.pop()
            world.foreign = tuple(each for each in world.foreign if each.id != gone)
            world.cloud.remove_by_hand(gone)
            if change == "created":
                strangers(world, 1)
        return answer

    monkeypatch.setattr(world.cloud, "handle", changing)
    world.at(320 + 3 * R_SECONDS + DESTROY_SECONDS)

    world.gone_at(orphan)
    assert len(world.calls("DELETE")) == 1, "nothing is handled twice"
    assert len(ours_to_change) < 211
    assert world.lease(NOBODYS).state is RELEASED


def test_c52_one_orphan_that_cannot_be_looked_up_does_not_stop_the_others(
    world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _running(world)
    world.at(320)
    leases = ["l-bbbbbbbbbbbb", "l-cccccccccccc", "l-dddddddddddd"]
    orphans = [plant(world, [marker(f"{lease}.instance.1")]) for lease in leases]
    world.at(620)
    marked = world.now
    assert world.ledger is not None
    load = world.ledger.load
    failures = [1]

    def failing(lease_id: str) -> Any:
        if lease_id == leases[0] and failures:
            failures.pop()
            raise LedgerUnavailable("once")
        return load(lease_id)

    monkeypatch.setattr(world.ledger, "load", failing)
    world.at(marked + R_SECONDS + DESTROY_SECONDS)
    assert [each for each in orphans if world.cloud.book.get(each).destroyed is None] == orphans[:1]
    world.at(marked + 2 * R_SECONDS + DESTROY_SECONDS)

    for orphan in orphans:
        assert world.gone_at(orphan) <= marked + 2 * R_SECONDS + DESTROY_SECONDS
    monkeypatch.setattr(world.ledger, "load", load)
    world.assert_right_at_the_end()


def test_nothing_of_others_and_nothing_exempt_is_touched(world: SweepWorld) -> None:
    _running(world)
    world.at(320)
    kept = plant(world, [marker(f"{NOBODYS}.instance.1"), "gpulease:keep"])
    unreadable = plant(world, [marker("l-bbbbbbbbbbbb-instance-1")])
    strangers(world, 1, [marker(f"{NOBODYS}.instance.1", "simulated01")])
    strangers(world, 1, [marker(f"{NOBODYS}.instance.1").upper()])
    forget_planting(world)

    world.at(320 + 5 * R_SECONDS)

    assert not world.calls("DELETE|POST|PATCH|PUT")
    assert {each.provider_id for each in world.state_of().unowned} == {kept, unreadable}
    [alarm] = world.alarms("UnownedResourceFound")
    assert alarm["provider_id"] == unreadable, "what cannot be read is told once, and not touched"


def test_what_is_on_its_way_out_is_somebodys(world: SweepWorld) -> None:
    lease_id = _running(world)
    row = world.machine_of(lease_id)
    assert row.state is ResourceState.HELD
    world.down(lease_id)
    begins = world.stack.clock.time()
    world.cloud.faults.add(outage(begins, begins + 4 * R_SECONDS))

    world.until(lease_id, RELEASED, within=4 * R_SECONDS + 600)

    assert not world.alarms("UnownedResourceFound")
    world.assert_right_at_the_end()
