"""Caches over HTTP: made once, priced before, seen by their owner alone, and never pulled away from a machine."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.cache import freed, taken
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change
from gpulease.domain.resource import BillingRule, Rate, Resource, ResourceKind, ResourceState
from gpulease.domain.transitions import cancel
from gpulease.errors import LedgerUnavailable

from tests.support.api_events import ALICE, BOB, Client
from tests.support.api_world import START, OneProvider, World, running_lease

MODELS: dict[str, Any] = {"name": "models", "provider": "vultr", "region": "ewr", "size_gb": 50}
HF = {"name": "models", "mounts": ["/root/.cache/huggingface"]}


def available(world: World, client: Client, **more: Any) -> str:
    """A cache whose volume has been made."""
    identity = str(client("POST", "/v1/caches", {**MODELS, **more}).json["id"])
    for state in (LeaseState.PROVISIONING, LeaseState.RUNNING):
        lease = world.ledger.load(identity).lease
        world.ledger.commit(Change(identity, lease=lease.model_copy(update={"state": state, "running_at": START})))
    return identity


def with_volume(world: World, cache: str, usd_per_hour: str) -> None:
    """Let the cache's volume be billed."""
    volume = Resource(
        id=f"{cache}.volume.1",
        lease_id=cache,
        kind=ResourceKind.VOLUME,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker=f"gpulease:d:{cache}.volume.1",
        attempt=0,
        state=ResourceState.HELD,
        provider_id="b-1",
        intended_at=START,
        rates=(Rate(since=START, usd_per_hour=Decimal(usd_per_hour)),),
        billing=BillingRule.PER_SECOND,
    )
    world.ledger.commit(Change(cache, resources=(volume,)))


def use(world: World, cache: str, lease: str) -> None:
    """Let the lease's first machine be the cache's user."""
    row = world.ledger.load(cache).lease
    world.ledger.commit(Change(cache, lease=taken(row, f"{lease}.instance.1", world.clock.now())))


# --- making ---


def test_a_cache_is_accepted_and_its_workflow_started(world: World, client: Client) -> None:
    answer = client("POST", "/v1/caches", MODELS)

    assert answer.status == 202 and answer.headers["location"] == "/v1/caches/models"
    assert (answer.json["state"], answer.json["size_gb"], answer.json["owner"]) == ("creating", 50, ALICE)
    identity = answer.json["id"]
    assert world.workflows.started == [("cache", f"{identity}-cache-1", identity, 1)]


def test_the_same_request_gives_the_same_cache_and_another_one_is_refused(world: World, client: Client) -> None:
    first = client("POST", "/v1/caches", MODELS).json["id"]

    assert client("POST", "/v1/caches", MODELS).json["id"] == first
    refused = client("POST", "/v1/caches", {**MODELS, "size_gb": 60})
    assert refused.status == 409 and refused.json["code"] == "cache_exists"
    assert "50 GB in vultr/ewr" in refused.json["detail"]
    assert len(client.get("/v1/caches").json["caches"]) == 1


def test_a_request_whose_start_was_lost_starts_the_workflow_when_it_is_repeated(world: World, client: Client) -> None:
    world.workflows.failure = LedgerUnavailable("no answer")
    client("POST", "/v1/caches", MODELS)
    world.workflows.failure = None

    client("POST", "/v1/caches", MODELS)

    assert [machine for machine, *_ in world.workflows.started] == ["cache"]


def test_the_price_is_told_before_anything_is_made(world: World, client: Client) -> None:
    answer = client("POST", "/v1/caches", MODELS, query="dry_run=true")

    assert answer.status == 200 and answer.json["price_per_month_usd"] == "5.00"
    assert (answer.json["exists"], answer.json["offers"]) == (False, 3)
    assert client.get("/v1/caches").json["caches"] == [] and world.workflows.started == []


@pytest.mark.parametrize(
    ("change", "field", "told"),
    [
        ({"provider": "aws"}, "provider", "configured: vultr"),
        ({"region": "mars"}, "region", "no block storage"),
        ({"region": "nrt"}, "region", "some could in: ams, ewr"),
        ({"size_gb": 5}, "size_gb", "10 GB or more"),
        ({"size_gb": 0}, "size_gb", "greater than or equal to 1"),
        ({"size_gb": "50"}, "size_gb", "must be a number"),
        (
            {"name": "Models!"},
            "name",
            "must be small letters, digits and -, with a letter or digit at both ends, not 'Mo",
        ),
        ({"name": ""}, "name", "must have at least 1 character, and is empty"),
        ({"expire_after_seconds": 60}, "expire_after_seconds", "equal to 3600 seconds (1 hour), not 60"),
        ({"zone": "ewr-a"}, "zone", "vultr does not divide ewr into zones"),
        ({"object_store": {"bucket": "abc", "endpoint": "ftp://x"}}, "object_store.endpoint", "https://s3.example.com"),
        ({"expire_after_seconds": 60}, "expire_after_seconds", "3600"),
        ({"provider": None, "region": None}, "provider", "or object_store"),
        ({"region": None}, "region", "both provider and region"),
        ({"sise_gb": 5}, "sise_gb", "did you mean size_gb"),
        ({"object_store": {"bucket": "B"}}, "object_store.bucket", ""),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_made(
    world: World, client: Client, change: dict[str, Any], field: str, told: str
) -> None:
    answer = client("POST", "/v1/caches", {**MODELS, **change})

    assert answer.status == 422
    (error,) = answer.json["errors"]
    assert error["field"] == field and told in error["message"]
    assert client.get("/v1/caches").json["caches"] == []


def test_a_zone_is_asked_for_where_the_provider_has_zones(world: World, client: Client) -> None:
    snapshot = world.offers.snapshots[0]
    zoned = tuple(o.model_copy(update={"zone": "ewr-b"}) if o.region == "ewr" else o for o in snapshot.offers)
    world.offers.save(snapshot.model_copy(update={"offers": zoned}))

    refused = client("POST", "/v1/caches", MODELS)

    assert refused.json["errors"][0]["field"] == "zone" and "ewr-b" in refused.json["errors"][0]["message"]
    assert client("POST", "/v1/caches", {**MODELS, "zone": "ewr-b"}).status == 202


def test_a_cache_without_a_volume_can_be_used_at_once_and_costs_nothing_here(world: World, client: Client) -> None:
    body = {"name": "hf", "object_store": {"bucket": "my-models", "prefix": "hf", "credentials": "models-s3"}}

    answer = client("POST", "/v1/caches", body)

    assert (answer.json["state"], answer.json["size_gb"], answer.json["volumes"]) == ("available", None, [])
    assert answer.json["price_per_month_usd"] == "0.00" and world.workflows.started == []


def test_a_removed_name_can_be_taken_again_and_one_on_its_way_out_cannot(world: World, client: Client) -> None:
    first = available(world, client)
    client.delete("/v1/caches/models")
    assert client("POST", "/v1/caches", MODELS).json["code"] == "cache_being_removed"
    lease = world.ledger.load(first).lease
    gone = lease.model_copy(update={"state": LeaseState.RELEASED, "released_at": START, "next_check_at": None})
    world.ledger.commit(Change(first, lease=gone))

    second = client("POST", "/v1/caches", MODELS)

    assert second.status == 202 and second.json["id"] != first
    assert [each["id"] for each in client.get("/v1/caches").json["caches"]] == [second.json["id"]]
    assert len(client.get("/v1/caches", query="removed=true").json["caches"]) == 2


# --- whose ---


def test_anothers_cache_does_not_exist(world: World, client: Client) -> None:
    available(world, client)
    bob = world.client(BOB)

    assert bob.get("/v1/caches").json["caches"] == []
    for answer in (bob.get("/v1/caches/models"), bob.delete("/v1/caches/models")):
        assert answer.status == 404 and answer.json["code"] == "cache_not_found"
    refused = bob.post({"gpu": ["A100"], "cache": HF})
    assert refused.status == 422 and refused.json["code"] == "cache_not_found"
    assert bob("POST", "/v1/caches", MODELS).status == 202, "a name is its owner's own"


def test_no_listing_of_leases_shows_a_cache(world: World, client: Client) -> None:
    identity = available(world, client)
    admin = world.client(next(iter(world.policy.admins)))

    assert client.get("/v1/leases").json["leases"] == []
    assert admin.get("/v1/leases", query="all=true").json["leases"] == []
    assert client.get(f"/v1/leases/{identity}").status == 404


# --- changing and ending ---


def test_the_expiry_is_changed_and_can_be_taken_away(world: World, client: Client) -> None:
    available(world, client)

    sooner = client("PATCH", "/v1/caches/models", {"expire_after_seconds": 86400}).json
    never = client("PATCH", "/v1/caches/models", {"expire_after_seconds": None}).json

    assert sooner["expires_at"] == (START + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    assert (never["expire_after_seconds"], never["expires_at"]) == (None, None)
    assert client("POST", "/v1/caches", MODELS).status == 202, "still the cache that was asked for"


def test_a_cache_in_use_is_not_removed_and_says_by_whom(world: World, client: Client) -> None:
    cache = available(world, client)
    lease = running_lease(world, client)
    use(world, cache, lease)

    refused = client.delete("/v1/caches/models")

    assert refused.status == 409 and refused.json["code"] == "cache_in_use" and lease in refused.json["detail"]
    shown = client.get("/v1/caches/models").json
    assert shown["state"] == "in_use" and shown["used_by"] == {"lease_id": lease, "name": "trainer", "state": "running"}
    assert shown["expires_at"] is None


def test_a_free_cache_is_removed_and_asking_again_changes_nothing(world: World, client: Client) -> None:
    cache = available(world, client)

    first, second = (client.delete("/v1/caches/models") for _ in range(2))

    assert first.status == second.status == 202 and first.json == second.json
    assert first.json["state"] == "removing"
    assert world.ledger.load(cache).lease.reason is Reason.USER
    assert world.workflows.started[-1] == ("release", f"{cache}-release-2", cache, 2)


@pytest.mark.parametrize("state", [LeaseState.PAUSED, LeaseState.RELEASED])
def test_what_a_paused_lease_would_come_back_with_is_not_removed(
    world: World, client: Client, state: LeaseState
) -> None:
    available(world, client)
    lease = client.post({"gpu": ["A100"], "cache": HF}).json["id"]
    row = world.ledger.load(lease).lease
    world.ledger.commit(Change(lease, lease=row.model_copy(update={"state": state, "next_check_at": None})))

    answer = client.delete("/v1/caches/models")

    if state is LeaseState.PAUSED:
        assert (answer.status, answer.json["code"], answer.json["lease_id"]) == (409, "cache_in_use", lease)
    else:
        assert answer.status == 202


# --- for a lease ---


def test_only_offers_that_can_use_the_volume_are_tried(world: World, client: Client) -> None:
    available(world, client)

    answer = client.post({"gpu": ["A100"], "cache": HF}, query="dry_run=true")

    assert [offer["region"] for offer in answer.json["offers"]] == ["ewr"]


def test_a_lease_remembers_its_cache(world: World, client: Client) -> None:
    cache = available(world, client)

    lease = client.post({"gpu": ["A100"], "cache": HF}).json["id"]

    assert world.ledger.load(lease).lease.cache_id == cache


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"gpu": ["H100"], "gpu_count": 8}, "bare metal takes no volume: it can use an object store only"),
        ({"gpu": ["A100"], "regions": ["ams"]}, "what fits is in vultr/ams"),
    ],
)
def test_a_lease_that_could_not_use_its_cache_is_refused_at_once(
    world: World, client: Client, request_: dict[str, Any], told: str
) -> None:
    available(world, client)

    answer = client.post({**request_, "cache": HF})

    assert answer.status == 422 and answer.json["code"] == "no_matching_offer"
    assert answer.json["errors"][0]["field"] == "cache.name" and told in answer.json["errors"][0]["message"]
    assert client.get("/v1/leases").json["leases"] == []


def test_with_an_object_store_too_what_has_the_volume_comes_first_and_the_rest_after_it(
    world: World, client: Client
) -> None:
    available(world, client, region="ams", object_store={"bucket": "my-models"})

    answer = client.post({"gpu": ["A100", "A16"], "cache": HF}, query="dry_run=true")

    assert [offer["region"] for offer in answer.json["offers"]] == ["ams", "ewr", "ewr"]


def test_a_cache_that_is_not_there_yet_or_on_its_way_out_is_no_cache_for_a_lease(world: World, client: Client) -> None:
    client("POST", "/v1/caches", MODELS)
    early = client.post({"gpu": ["A100"], "cache": HF})
    client.delete("/v1/caches/models")
    late = client.post({"gpu": ["A100"], "cache": HF})

    assert (early.status, early.json["code"]) == (409, "cache_not_ready")
    assert (late.status, late.json["code"]) == (409, "cache_being_removed")


def test_a_cache_in_use_is_refused_and_one_that_is_being_left_is_waited_for(world: World, client: Client) -> None:
    cache = available(world, client)
    first = running_lease(world, client)
    use(world, cache, first)

    refused = client.post({"gpu": ["A100"], "cache": HF})
    client.delete(f"/v1/leases/{first}")
    accepted = client.post({"gpu": ["A100"], "cache": HF})

    assert refused.status == 409 and refused.json["code"] == "cache_in_use" and refused.json["lease_id"] == first
    assert accepted.status == 202


def test_a_repeated_request_is_answered_with_its_lease_though_that_uses_the_cache_by_now(
    world: World, client: Client
) -> None:
    cache = available(world, client)
    headers = {"Idempotency-Key": "once"}
    lease = client.post({"gpu": ["A100"], "cache": HF}, headers=headers).json["id"]
    use(world, cache, lease)

    again = client.post({"gpu": ["A100"], "cache": HF}, headers=headers)

    assert again.status == 202 and again.json["id"] == lease


@pytest.mark.parametrize("state", [LeaseState.RELEASING, LeaseState.RUNNING])
def test_removing_loses_no_race_against_somebody_who_takes_it(world: World, client: Client, state: LeaseState) -> None:
    """Between the look and the write another request takes the cache, or removes it: one of the two is true."""
    cache = available(world, client)
    commit = world.ledger.commit
    lease = running_lease(world, client)

    def racing(change: Change) -> None:
        world.ledger.commit = commit
        record = world.ledger.load(cache)
        if state is LeaseState.RUNNING:
            commit(Change(cache, lease=taken(record.lease, f"{lease}.instance.1", START)))
        else:
            commit(replace(cancel(record, now=START, reason=Reason.EXPIRED), events=()))
        commit(change)

    world.ledger.commit = racing
    answer = client.delete("/v1/caches/models")

    row = world.ledger.load(cache).lease
    if state is LeaseState.RUNNING:
        assert answer.status == 409 and row.members and row.state is LeaseState.RUNNING
    else:
        assert answer.status == 202 and row.reason is Reason.EXPIRED
    assert freed(row, START).members == ()


def test_what_a_pause_would_cost_counts_the_cache_before_anything_is_rented(world: World, client: Client) -> None:
    with_volume(world, available(world, client), "0.0137")
    world.providers = OneProvider(stops=False)

    told = client("POST", "/v1/leases", {"gpu": ["A100"], "cache": HF}, query="dry_run=true").json["when_paused"]

    assert "running $2.411/h, paused $0.014/h" in told
