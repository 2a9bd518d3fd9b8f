"""The speed of a cache's volume over HTTP: priced before, part of what a cache is, and refused where it cannot be."""

from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from gpulease.domain.cache import spec_digest
from gpulease.domain.cache_spec import CacheSpec

from tests.support.api_events import Client
from tests.support.api_world import World

MODELS: dict[str, Any] = {"name": "models", "provider": "vultr", "region": "ewr", "size_gb": 50}


def test_speed_is_bought_with_the_volume_and_shown_with_its_price(world: World, client: Client) -> None:
    planned = client("POST", "/v1/caches", {**MODELS, "throughput_mibps": 400}, query="dry_run=true").json
    usual = client("POST", "/v1/caches", MODELS, query="dry_run=true").json
    made = client("POST", "/v1/caches", {**MODELS, "throughput_mibps": 400}).json

    assert (planned["throughput_mibps"], usual["throughput_mibps"]) == (400, None)
    assert Decimal(planned["price_per_month_usd"]) == Decimal(usual["price_per_month_usd"]) + 11
    assert client("GET", "/v1/caches/models").json["throughput_mibps"] == made["throughput_mibps"] == 400


def test_another_speed_is_another_cache(world: World, client: Client) -> None:
    made = client("POST", "/v1/caches", {**MODELS, "throughput_mibps": 400}).json["id"]

    assert client("POST", "/v1/caches", {**MODELS, "throughput_mibps": 400}).json["id"] == made
    refused = client("POST", "/v1/caches", MODELS)

    assert (refused.status, refused.json["code"]) == (409, "cache_exists")
    assert "400 MiB/s" in refused.json["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**MODELS, "throughput_mibps": 5000}, "throughput_mibps"),
        ({**MODELS, "throughput_mibps": "400"}, "throughput_mibps"),
        ({"name": "models", "object_store": {"bucket": "models"}, "throughput_mibps": 400}, "throughput_mibps"),
    ],
)
def test_a_speed_that_cannot_be_is_named(world: World, client: Client, body: dict[str, Any], field: str) -> None:
    refused = client("POST", "/v1/caches", body)

    assert refused.status == 422
    assert field in [each["field"] for each in refused.json["errors"]]


def test_a_cache_of_before_speed_could_be_bought_is_the_same_cache_still() -> None:
    spec = CacheSpec(user="ada", size_gb=50, provider="vultr", account="vultr", region="ewr")
    before = '{"user":"ada","size_gb":50,"provider":"vultr","account":"vultr","region":"ewr","zone":"",' + (
        '"object_store":null,"expire_after_seconds":1209600}'
    )

    assert spec_digest(spec) == sha256(before.encode()).hexdigest()
