"""Offers, health and the description of the API."""

import json
from decimal import Decimal
from typing import Any

import pytest
from gpulease.api.app import create_app
from gpulease.domain.offer import OfferSnapshot
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.support.api_events import Client
from tests.support.api_world import KeptOffers, OneProvider, World, offer


def test_offers_are_sorted_by_price_and_say_how_old_they_are(world: World, client: Client) -> None:
    world.clock.advance(3600)

    page = client.get("/v1/offers").json

    prices = [Decimal(o["price_per_hour_usd"]) for o in page["offers"]]
    assert prices == sorted(prices) and page["total"] == 5
    assert page["catalogue"] == [
        {
            "provider": "vultr",
            "as_of": "2026-01-05T12:00:00Z",
            "age_seconds": 3600,
            "offers": 5,
            "configured": True,
        }
    ]


@pytest.mark.parametrize(
    ("query", "plans"),
    [
        ("gpu=a100", {"vcg-a100-12c"}),
        ("gpu=A16&gpu=L40S", {"vcg-a16-6c", "vcg-l40s-16c"}),
        ("gpu=A16,L40S&max_price_per_hour_usd=1", {"vcg-a16-6c"}),
        ("gpu_count=8", {"vbm-8-h100"}),
        ("plan_kinds=bare_metal", {"vbm-8-h100"}),
        ("regions=ams", {"vcg-a100-12c"}),
        ("min_gpu_memory_gib=40&min_memory_gib=100", {"vcg-a100-12c", "vbm-8-h100", "vcg-l40s-16c"}),
        ("private_network=required&gpu=H100", set()),
    ],
)
def test_offers_are_filtered_by_the_fields_of_a_request(client: Client, query: str, plans: set[str]) -> None:
    page = client.get("/v1/offers", query=query).json

    assert {o["plan"] for o in page["offers"]} == plans


def test_a_limit_cuts_offers_but_not_their_total(client: Client) -> None:
    page = client.get("/v1/offers", query="limit=1").json

    assert len(page["offers"]) == 1 and page["total"] == 5


def test_health_needs_no_identity_and_no_catalogue(world: World) -> None:
    world.offers.snapshots = []

    answer = world.client(owner=None).get("/v1/health")

    assert answer.status == 200
    assert answer.json["deployment"] == "d1" and answer.json["version"] and answer.json["catalogue"] == []


def with_b200(offers: KeptOffers) -> OfferSnapshot:
    snapshot = offers.snapshots[0]
    return snapshot.model_copy(update={"offers": (*snapshot.offers, offer("b", "B200", "9"))})


def test_a_new_catalogue_is_seen_within_half_a_minute(world: World, client: Client) -> None:
    assert client.post({"gpu": ["B200"]}).status == 422
    world.offers.save(with_b200(world.offers))

    world.clock.advance(30)

    assert client.post({"gpu": ["B200"]}).status == 202


def test_the_store_is_not_read_for_every_request(world: World, client: Client) -> None:
    class Counting(KeptOffers):
        reads = 0

        def load(self) -> list[OfferSnapshot]:
            self.reads += 1
            return super().load()

    world.offers = Counting()

    for _ in range(10):
        client.post({"gpu": ["A100"]})

    assert world.offers.reads == 1


def test_an_empty_catalogue_is_read_again_at_once(world: World, client: Client) -> None:
    full, world.offers.snapshots = world.offers.snapshots, []
    assert client.post({}).status == 503

    world.offers.snapshots = full

    assert client.post({}).status == 202


def test_another_store_or_another_account_is_seen_at_once(world: World, client: Client) -> None:
    assert client.post({"gpu": ["B200"]}).status == 422

    world.offers = KeptOffers([with_b200(world.offers)])
    assert client.post({"gpu": ["B200"]}).status == 202

    world.providers = OneProvider(("other",))
    assert client.post({"gpu": ["B200"]}).status == 503


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    answer = World().client(owner=None).get("/openapi.json")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    document: dict[str, Any] = json.loads(answer.text)
    return document


def test_the_description_is_valid_openapi(description: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(description).validate()


def test_the_description_names_every_route_and_its_problems(description: dict[str, Any]) -> None:
    operations = {
        operation["operationId"]: operation for path in description["paths"].values() for operation in path.values()
    }

    assert set(operations) == {
        "createLease",
        "listLeases",
        "getLease",
        "releaseLease",
        "listLeaseEvents",
        "changeLease",
        "touchLease",
        "keepLease",
        "pauseLease",
        "resumeLease",
        "createCache",
        "listCaches",
        "getCache",
        "changeCache",
        "removeCache",
        "listOffers",
        "getHealth",
        "getDoctor",
        "sweep",
        "drain",
        "getDrain",
        "stopDraining",
    }
    assert set(operations["createLease"]["responses"]) >= {"200", "202", "401", "409", "413", "415", "422", "503"}
    for operation in operations.values():
        assert "application/problem+json" in operation["responses"]["422"]["content"]
    assert "HTTPValidationError" not in json.dumps(description)
    assert operations["getHealth"]["security"] == []


def test_every_reference_of_the_description_leads_somewhere(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    text = json.dumps(description)

    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert names and names <= set(schemas)


def test_the_description_is_made_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(world)
    client = Client(app)
    first = client.get("/openapi.json").text
    monkeypatch.setattr(app, "get_openapi_json_schema", None)

    assert client.get("/openapi.json").text == first


def test_the_answer_fits_its_own_description(client: Client, description: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    answer = client.post({"gpu": ["A100"]})
    schema = {"$ref": "#/components/schemas/LeaseView", "components": description["components"]}

    Draft202012Validator(schema).validate(answer.json)
