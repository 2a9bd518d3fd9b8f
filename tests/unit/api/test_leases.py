"""Leases over HTTP: asking, looking, giving back, and asking twice."""

import base64
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from gpulease.api.app import create_app
from gpulease.api.views import money
from gpulease.domain.event import Event
from gpulease.domain.lease import Attempt, Lease, LeaseState, Reason
from gpulease.domain.record import Change
from gpulease.domain.resource import BillingRule, Rate, Resource, ResourceKind, ResourceState
from gpulease.errors import LeaseConflict, LedgerUnavailable
from gpulease.ledger.sqlite import SqliteLedger

from tests.support.api_events import ALICE, BOB, Client
from tests.support.api_world import ADMIN, OFFERS, START, World

A100 = {"gpu": ["A100"]}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


def running(world: World, client: Client) -> str:
    """A lease whose machine has been up for 90 minutes."""
    lease_id: str = client.post({**A100, "name": "trainer"}).json["id"]
    lease = world.ledger.load(lease_id).lease
    machine = Resource(
        id=f"{lease_id}.instance.1",
        lease_id=lease_id,
        attempt=1,
        kind=ResourceKind.INSTANCE,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker="m",
        state=ResourceState.HELD,
        plan="vcg-a100-12c",
        intended_at=START,
        provider_id="p-1",
        billed_from=START,
        billing=BillingRule.STARTED_HOUR,
        rates=(Rate(since=START, usd_per_hour=Decimal("2.397")),),
        address="192.0.2.7",
        status="active/running/ok",
    )
    attempt = Attempt(number=1, offer=OFFERS[0], started_at=START, ready_deadline=START + timedelta(minutes=10))
    for state in (LeaseState.PROVISIONING, LeaseState.RUNNING):
        new = world.ledger.load(lease_id).lease.model_copy(
            update={"state": state, "attempts": (attempt,), "running_at": START}
        )
        resources = (machine,) if state is LeaseState.PROVISIONING else ()
        world.ledger.commit(Change(lease_id=lease_id, lease=new, resources=resources, epoch=lease.epoch))
    world.clock.advance(5400)
    return lease_id


# --- asking -----------------------------------------------------------------------------------------------------------


def test_a_request_is_recorded_and_its_workflow_started(world: World, client: Client) -> None:
    answer = client.post({**A100, "name": "trainer", "labels": {"team": "vision"}, "start_script": "#!/bin/sh\n"})

    assert answer.status == 202
    lease_id = answer.json["id"]
    assert answer.headers["location"] == f"/v1/leases/{lease_id}"
    assert answer.json["state"] == "requested" and answer.json["owner"] == ALICE
    assert answer.json["spec"]["labels"] == {"team": "vision"}
    assert world.ledger.start_script(lease_id) == b"#!/bin/sh\n"
    assert world.workflows.started == [("provision", f"{lease_id}-provision-1", lease_id, 1)]


def test_the_start_script_is_never_shown_only_its_size_and_digest(client: Client) -> None:
    script = "#!/bin/sh\nexport TOKEN=hunter2\n"

    posted = client.post({**A100, "start_script": script})
    read = client.get(posted.headers["location"])

    for answer in (posted, read):
        assert "hunter2" not in answer.text
        assert answer.json["start_script_bytes"] == len(script)
        assert answer.json["start_script_sha256"] == sha256(script.encode()).hexdigest()


def test_a_script_in_base64_may_hold_any_bytes(world: World, client: Client) -> None:
    raw = bytes(range(256))

    answer = client.post({**A100, "start_script_base64": base64.b64encode(raw).decode()})

    assert world.ledger.start_script(answer.json["id"]) == raw


def test_a_lease_without_a_name_gets_one(client: Client) -> None:
    assert client.post(A100).json["name"].count("-") == 1


def test_a_workflow_that_does_not_start_costs_a_warning_and_no_lease(world: World, client: Client) -> None:
    world.workflows.failure = RuntimeError("throttled")

    answer = client.post(A100)

    assert answer.status == 202
    assert world.ledger.load(answer.json["id"]).lease.state is LeaseState.REQUESTED
    assert world.log.events("warning") == ["workflow_not_started"]


def test_a_dry_run_shows_the_offers_in_order_and_creates_nothing(world: World, client: Client) -> None:
    answer = client.post({"spot": "any", "max_attempts": 3}, query="dry_run=true")

    assert answer.status == 200
    prices = [Decimal(o["price_per_hour_usd"]) for o in answer.json["offers"]]
    assert prices == sorted(prices) and len(prices) == 3
    assert answer.json["total"] == 4 and answer.json["cheapest_price_per_hour_usd"] == "0.47"
    assert world.ledger.leases_of(None).items == () and world.workflows.started == []


def test_offers_of_a_provider_without_a_key_are_not_tried(world: World, client: Client) -> None:
    cheap = OFFERS[0].model_copy(update={"provider": "nobody", "price_per_hour_usd": Decimal("0.01")})
    world.offers.save(world.offers.snapshots[0].model_copy(update={"provider": "nobody", "offers": (cheap,)}))

    answer = client.post(A100, query="dry_run=true")

    assert {o["provider"] for o in answer.json["offers"]} == {"vultr"}


def test_a_ledger_that_does_not_answer_gives_503_and_the_id_to_look_for(world: World, client: Client) -> None:
    class Silent(SqliteLedger):
        def create_lease(self, lease: Lease, events: Any = (), start_script: bytes = b"") -> None:
            super().create_lease(lease, events, start_script)
            raise LedgerUnavailable("timeout")

    world.ledger = Silent()

    lost = client.post(A100, headers={"Idempotency-Key": "k"})
    again = client.post(A100, headers={"Idempotency-Key": "k"})

    assert lost.status == 503 and lost.headers["retry-after"] == "5"
    assert again.status == 202 and again.json["id"] == lost.json["lease_id"]
    assert [lease.id for lease in world.ledger.leases_of(ALICE).items] == [lost.json["lease_id"]]


# --- asking twice -----------------------------------------------------------------------------------------------------


def test_the_same_key_and_request_give_the_same_lease(world: World, client: Client) -> None:
    key = {"Idempotency-Key": "job-17"}

    first = client.post({**A100, "gpu_count": 1, "start_script": "x"}, headers=key)
    world.clock.advance(86_400)
    # Another spelling of the same request: order, defaults and the script's encoding do not matter.
    again = client.post({"start_script_base64": base64.b64encode(b"x").decode(), **A100}, headers=key)

    assert first.status == again.status == 202
    assert again.json["id"] == first.json["id"] and again.json["created_at"] == first.json["created_at"]
    assert again.headers["location"] == first.headers["location"]
    assert len(world.ledger.leases_of(ALICE).items) == 1


@pytest.mark.parametrize("other", [{"gpu": ["A16"]}, {**A100, "start_script": "y"}, {**A100, "name": "n"}])
def test_the_same_key_with_another_request_is_refused(client: Client, other: dict[str, Any]) -> None:
    client.post(A100, headers={"Idempotency-Key": "k"})

    answer = client.post(other, headers={"Idempotency-Key": "k"})

    assert answer.status == 409 and answer.json["code"] == "idempotency_key_reused"


def test_two_people_may_use_the_same_key(world: World) -> None:
    ids = {world.client(who).post(A100, headers={"Idempotency-Key": "k"}).json["id"] for who in (ALICE, BOB)}

    assert len(ids) == 2


def test_a_lease_made_with_a_key_has_an_id_like_any_other(client: Client) -> None:
    lease_id = client.post(A100, headers={"Idempotency-Key": "k"}).json["id"]

    assert client.get(f"/v1/leases/{lease_id}").status == 200


def test_a_repeated_request_finds_its_lease_after_the_offer_is_gone(world: World, client: Client) -> None:
    first = client.post(A100, headers={"Idempotency-Key": "k"})
    world.offers.snapshots = []

    again = client.post(A100, headers={"Idempotency-Key": "k"})
    fresh = client.post(A100, headers={"Idempotency-Key": "other"})

    assert again.status == 202 and again.json["id"] == first.json["id"]
    assert fresh.status == 503


def test_a_repeated_request_starts_the_workflow_that_was_not_started(world: World, client: Client) -> None:
    world.workflows.failure = RuntimeError("down")
    client.post(A100, headers={"Idempotency-Key": "k"})
    world.workflows.failure = None

    client.post(A100, headers={"Idempotency-Key": "k"})

    assert [entry[0] for entry in world.workflows.started] == ["provision"]


@dataclass
class MeetingLedger:
    """Lets two writers arrive before either writes."""

    inner: Any = field(default_factory=SqliteLedger)
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=10))

    def create_lease(self, *args: Any) -> None:
        self.barrier.wait()
        self.inner.create_lease(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_two_requests_at_once_with_one_key_make_one_lease(world: World) -> None:
    from gpulease.api.accept import accept
    from gpulease.api.caller import Caller
    from gpulease.api.catalogue import CatalogueReader
    from gpulease.api.schemas import LeaseRequest

    world.ledger = MeetingLedger()
    made: list[str] = []

    def ask() -> None:
        request = LeaseRequest(gpu=("A100",))
        made.append(accept(request, Caller(ALICE), "race", world, CatalogueReader(world)).lease.id)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(made) == 2 and len(set(made)) == 1
    assert len(world.ledger.leases_of(ALICE).items) == 1


def test_requests_of_several_threads_never_see_each_others_identity(world: World) -> None:
    app = create_app(world)
    wrong: list[str] = []

    def ask(who: str) -> None:
        for _ in range(30):
            owner = Client(app, who).post(A100).json["owner"]
            if owner != who:
                wrong.append(owner)

    threads = [threading.Thread(target=ask, args=(f"user-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert wrong == []
    assert len(world.ledger.leases_of(None, limit=200).items) == 120


# --- looking ----------------------------------------------------------------------------------------------------------


def test_a_running_lease_shows_its_machine_its_cost_and_how_to_log_in(world: World, client: Client) -> None:
    lease_id = running(world, client)

    view = client.get(f"/v1/leases/{lease_id}").json

    assert view["address"] == "192.0.2.7" and view["ssh"] == "ssh root@192.0.2.7"
    # Two started hours of a machine that is billed by started hours.
    assert view["price_per_hour_usd"] == "2.397" and view["cost_so_far_usd"] == "4.794"
    assert view["attempts"][0]["offer"] == OFFERS[0].key and view["offer"]["plan"] == "vcg-a100-12c"
    (machine,) = view["resources"]
    assert machine["billed"] is True and machine["cost_so_far_usd"] == "4.794" and machine["status"]
    assert view["next"]["text"]


def test_a_list_shows_what_open_leases_cost(world: World, client: Client) -> None:
    running(world, client)

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


# --- giving back ------------------------------------------------------------------------------------------------------


def test_a_lease_that_is_given_back_is_shown_as_billed_until_that_is_proven(world: World, client: Client) -> None:
    lease_id = running(world, client)

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert answer.status == 202
    assert answer.json["state"] == "releasing" and answer.json["reason"] == "user" and answer.json["epoch"] == 2
    assert answer.json["ssh"] is None
    assert [(r["state"], r["billed"]) for r in answer.json["resources"]] == [("releasing", True)]
    assert world.workflows.started[-1] == ("release", f"{lease_id}-release-2", lease_id, 2)


def test_giving_back_twice_answers_the_same_view(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]

    first, second = (client.delete(f"/v1/leases/{lease_id}") for _ in range(2))

    assert first.status == second.status == 202 and first.json == second.json
    assert len(client.get(f"/v1/leases/{lease_id}/events").json["events"]) == 2


def test_giving_back_a_released_lease_changes_nothing(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]
    client.delete(f"/v1/leases/{lease_id}")
    lease = world.ledger.load(lease_id).lease
    gone = lease.model_copy(update={"state": LeaseState.RELEASED, "released_at": START, "next_check_at": None})
    world.ledger.commit(Change(lease_id=lease_id, lease=gone, epoch=lease.epoch))
    started = list(world.workflows.started)

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert answer.status == 202 and answer.json["state"] == "released"
    assert world.workflows.started == started
    assert client.get("/v1/leases").json["leases"][0]["cost_so_far_usd"] is None


class BusyLedger(SqliteLedger):
    """Another writer gets ahead of the first few commits."""

    conflicts = 0

    def commit(self, change: Change) -> None:
        if self.conflicts:
            self.conflicts -= 1
            event = Event(lease_id=change.lease_id, at=START, kind="meanwhile", text="x")
            lease = self.load(change.lease_id).lease.model_copy(update={"waiting_for": f"{self.conflicts}"})
            super().commit(Change(lease_id=change.lease_id, lease=lease, events=(event,)))
            raise LeaseConflict(change.lease_id)
        super().commit(change)


@pytest.mark.parametrize(("conflicts", "status"), [(4, 202), (5, 503)])
def test_giving_back_is_tried_again_when_another_writer_was_first(world: World, conflicts: int, status: int) -> None:
    world.ledger = BusyLedger()
    client = world.client()
    lease_id = client.post(A100).json["id"]
    world.ledger.conflicts = conflicts

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert answer.status == status
    reason = world.ledger.load(lease_id).lease.reason
    assert reason is (Reason.USER if status == 202 else None)


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "0.00"), ("1.5", "1.50"), ("0.0138888888", "0.013889"), ("1E+3", "1000.00"), ("1E-9", "0.00")],
)
def test_money_is_plain_decimal_text(amount: str, text: str) -> None:
    assert money(Decimal(amount)) == text
