"""Looking at leases over HTTP: one, many, and only one's own."""

import pytest
from gpulease.domain.lease import LeaseState

from tests.support.api_events import BOB, Client
from tests.support.api_world import ADMIN, OFFERS, World, running_lease

A100 = {"gpu": ["A100"]}


def test_a_running_lease_shows_its_machine_its_cost_and_how_to_log_in(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)

    view = client.get(f"/v1/leases/{lease_id}").json

    assert view["address"] == "192.0.2.7" and view["ssh"] == "ssh root@192.0.2.7"
    # Two started hours of a machine that is billed by started hours.
    assert view["price_per_hour_usd"] == "2.397" and view["cost_so_far_usd"] == "4.794"
    assert view["attempts"][0]["offer"] == OFFERS[0].key and view["offer"]["plan"] == "vcg-a100-12c"
    (machine,) = view["resources"]
    assert machine["billed"] is True and machine["cost_so_far_usd"] == "4.794" and machine["status"]
    assert view["next"]["text"]


def test_a_list_shows_what_open_leases_cost(world: World, client: Client) -> None:
    running_lease(world, client)

    (row,) = client.get("/v1/leases").json["leases"]

    assert row["cost_so_far_usd"] == "4.794" and row["address"] == "192.0.2.7" and row["state"] == "running"


def test_a_foreign_lease_looks_exactly_like_a_missing_one(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]
    bob = world.client(BOB)

    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        foreign = bob(method, f"/v1/leases/{lease_id}{path}")
        missing = bob(method, f"/v1/leases/l-zzzzzzzzzzzz{path}")
        assert foreign.status == missing.status == 404
        assert foreign.text.replace(lease_id, "…") == missing.text.replace("l-zzzzzzzzzzzz", "…")
    assert world.ledger.load(lease_id).lease.state is LeaseState.REQUESTED
    assert bob.get("/v1/leases").json["leases"] == []


def test_an_admin_sees_and_ends_everybodys_leases(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]
    admin = world.client(ADMIN)

    assert admin.get("/v1/leases").json["leases"] == []
    assert [row["id"] for row in admin.get("/v1/leases", query="all=true").json["leases"]] == [lease_id]
    assert admin.delete(f"/v1/leases/{lease_id}").json["reason_detail"] == f"by {ADMIN}"
    assert client.get("/v1/leases", query="all=true").status == 403


def test_pages_of_leases_hold_each_lease_once_newest_first(world: World, client: Client) -> None:
    made = []
    for _ in range(7):
        world.clock.advance(1)
        made.append(client.post(A100).json["id"])

    seen: list[str] = []
    query = "limit=3"
    while True:
        page = client.get("/v1/leases", query=query).json
        seen += [row["id"] for row in page["leases"]]
        if page["cursor"] is None:
            break
        query = f"limit=3&cursor={page['cursor']}"

    assert seen == made[::-1]


@pytest.mark.parametrize("query", ["state=releasing,released", "state=releasing&state=released"])
def test_leases_are_filtered_by_state_in_both_spellings(client: Client, query: str) -> None:
    gone = client.post(A100).json["id"]
    client.post(A100)
    client.delete(f"/v1/leases/{gone}")

    rows = client.get("/v1/leases", query=query).json["leases"]

    assert [row["id"] for row in rows] == [gone]


def test_a_lease_is_found_by_name_behind_many_others(world: World, client: Client) -> None:
    wanted = client.post({**A100, "name": "needle"}).json["id"]
    for _ in range(5):
        world.clock.advance(1)
        client.post({**A100, "name": "hay"})

    page = client.get("/v1/leases", query="name=needle&limit=1").json

    assert [row["id"] for row in page["leases"]] == [wanted]


def test_a_cursor_of_somebody_else_shows_nothing_of_theirs(world: World, client: Client) -> None:
    for _ in range(3):
        world.clock.advance(1)
        client.post(A100)
    cursor = client.get("/v1/leases", query="limit=1").json["cursor"]

    answer = world.client(BOB).get("/v1/leases", query=f"cursor={cursor}")

    assert answer.status == 422 or answer.json["leases"] == []


@pytest.mark.parametrize("cursor", ["x", "AAAA", "%00", "%F0%9F%92%A9", "..%2F..", "'%20OR%201=1", "a" * 2049])
def test_a_cursor_that_is_none_is_refused(client: Client, cursor: str) -> None:
    lease_id = client.post(A100).json["id"]

    for path in ("/v1/leases", f"/v1/leases/{lease_id}/events"):
        answer = client.get(path, query=f"cursor={cursor}")
        assert answer.status == 422, answer.text
        assert [error["field"] for error in answer.json["errors"]] == ["cursor"]


def test_an_event_cursor_of_another_lease_shows_nothing_of_it(world: World, client: Client) -> None:
    first, second = (client.post(A100).json["id"] for _ in range(2))
    for lease_id in (first, second):
        client.delete(f"/v1/leases/{lease_id}")
    cursor = client.get(f"/v1/leases/{first}/events", query="limit=1").json["cursor"]

    answer = client.get(f"/v1/leases/{second}/events", query=f"cursor={cursor}")

    assert cursor and answer.status == 422


def test_events_tell_the_story_in_order(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]
    client.delete(f"/v1/leases/{lease_id}")

    first = client.get(f"/v1/leases/{lease_id}/events", query="limit=1").json
    rest = client.get(f"/v1/leases/{lease_id}/events", query=f"cursor={first['cursor']}").json

    assert [event["kind"] for event in first["events"] + rest["events"]] == ["lease_requested", "release_requested"]
    assert rest["cursor"] is None
