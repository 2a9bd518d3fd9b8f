"""Asking for a lease over HTTP, once and twice."""

import base64
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from gpulease.api.app import create_app
from gpulease.domain.lease import Lease, LeaseState
from gpulease.errors import LedgerUnavailable
from gpulease.ledger.sqlite import SqliteLedger

from tests.support.api_events import ALICE, BOB, Client
from tests.support.api_world import OFFERS, KeptOffers, World

A100 = {"gpu": ["A100"]}


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
    world.offers = KeptOffers([])

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
