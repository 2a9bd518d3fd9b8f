"""Lists of the simulated provider: pages, filters, and what they cannot be trusted for."""

import base64
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.vultr_world import VultrWorld, error_of, steady


def pages(world: VultrWorld, path: str, key: str, **query: str) -> Iterator[list[str]]:
    cursor = ""
    while True:
        answer = world.get(path, **query, **({"cursor": cursor} if cursor else {}))
        yield [each["id"] for each in answer[key]]
        cursor = answer["meta"]["links"]["next"]
        if not cursor:
            return


def test_every_machine_is_on_exactly_one_page() -> None:
    world = VultrWorld()
    ids = [world.create_vm()["id"] for _ in range(230)]

    listed = list(pages(world, "/instances", "instances"))

    assert [len(page) for page in listed] == [100, 100, 30]
    assert [each for page in listed for each in page] == ids
    assert world.get("/instances")["meta"] == {
        "total": 230,
        "links": {"next": world.get("/instances")["meta"]["links"]["next"], "prev": ""},
    }


def test_the_next_cursor_is_opaque_base64_of_the_next_item() -> None:
    world = VultrWorld()
    ids = [world.create_vm()["id"] for _ in range(3)]

    cursor = world.get("/instances", per_page="2")["meta"]["links"]["next"]

    assert base64.b64decode(cursor).decode().startswith(f"next__{ids[2]}")


def test_page_sizes_end_at_500_and_bad_cursors_are_refused() -> None:
    world = VultrWorld()
    for _ in range(501):
        world.create_vm()

    assert len(world.get("/instances", per_page="900")["instances"]) == 500
    assert world.call("GET", "/instances", cursor="!!").status == 400
    assert world.call("GET", "/instances", per_page="many").status == 400


def test_a_deleted_machine_between_two_pages_makes_nothing_skipped() -> None:
    world = VultrWorld()
    ids = [world.create_vm()["id"] for _ in range(30)]
    world.wait(100)
    walk = pages(world, "/instances", "instances", per_page="10")

    first = next(walk)
    for gone in (ids[0], ids[10]):
        world.cloud.remove_by_hand(gone)
    late = world.create_vm()["id"]
    rest = [each for page in walk for each in page]

    assert first == ids[:10]
    assert rest == [*ids[11:], late]


@pytest.mark.parametrize(("change", "lost"), [("delete", True), ("none", False)])
def test_cursors_that_are_positions_skip_an_item_when_one_before_it_goes(change: str, lost: bool) -> None:
    world = VultrWorld(steady(paging="offset"))
    ids = [world.create_vm()["id"] for _ in range(30)]
    world.wait(100)
    walk = pages(world, "/instances", "instances", per_page="10")

    first = next(walk)
    if change == "delete":
        world.cloud.remove_by_hand(ids[0])
    seen = first + [each for page in walk for each in page]

    assert (ids[10] not in seen) is lost


def test_instances_are_filtered_exactly_and_tags_without_regard_to_case() -> None:
    world = VultrWorld()
    mine = world.create_vm(label="a", tags=["Owner=Me", "x"], hostname="h1")
    world.create_vm(label="ab", tags=["owner=me2"], region="fra")
    world.wait(30)

    def found(**query: str) -> list[str]:
        return [each["id"] for each in world.get("/instances", **query)["instances"]]

    assert found(label="a") == [mine["id"]]
    assert found(tag="owner=me") == [mine["id"]]
    assert found(tag="owner") == []
    assert found(region="ord") == [mine["id"]]
    assert found(hostname="h1") == [mine["id"]]
    assert found(main_ip=world.vm(mine["id"])["main_ip"]) == [mine["id"]]
    assert found(firewall_group_id="none") == []
    assert world.call("GET", "/instances", region="xxx").status == 422


def test_bare_metal_lists_know_no_filters() -> None:
    world = VultrWorld()
    ids = [world.create_metal(tags=[str(number)], label=str(number))["id"] for number in range(3)]

    assert [each["id"] for each in world.get("/bare-metals", tag="1", label="1")["bare_metals"]] == ids


def test_pending_charges_are_shown_on_request() -> None:
    world = VultrWorld()
    world.create_vm()
    world.wait(3601)

    plain = world.get("/instances")["instances"][0]
    priced = world.get("/instances", show_pending_charges="true")["instances"][0]

    assert "pending_charges" not in plain
    assert priced["pending_charges"] == pytest.approx(2 * 1.671)


def test_a_new_network_may_be_missing_in_lists_for_a_while() -> None:
    world = VultrWorld(steady(vpc_list_lag_seconds=(20, 20)))
    vpc = world.create_vpc()

    assert world.get("/vpcs")["vpcs"] == []
    assert world.get(f"/vpcs/{vpc}")["vpc"]["id"] == vpc
    world.wait(20)
    assert [each["id"] for each in world.get("/vpcs")["vpcs"]] == [vpc]


def test_a_page_beyond_the_end_is_empty() -> None:
    world = VultrWorld()
    ids = [world.create_vm()["id"] for _ in range(3)]
    world.wait(100)
    cursor = world.get("/instances", per_page="2")["meta"]["links"]["next"]
    world.cloud.remove_by_hand(ids[2])

    answer = world.get("/instances", per_page="2", cursor=cursor)

    assert answer["instances"] == []
    assert answer["meta"]["links"]["next"] == ""


def test_a_short_default_page_can_be_set() -> None:
    world = VultrWorld(replace(steady(), default_per_page=2))
    for _ in range(5):
        world.create_vm()

    assert [len(page) for page in pages(world, "/instances", "instances")] == [2, 2, 1]
    assert error_of(world.call("GET", "/instances", per_page="x"))[0] == 400
