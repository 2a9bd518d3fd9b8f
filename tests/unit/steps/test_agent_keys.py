"""Keys of an object store: a secret that names its users is handed to machines of nobody else."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from gpulease.domain.cache import new_cache
from gpulease.domain.cache_spec import CacheSpec, ObjectStore
from gpulease.domain.record import LeaseRecord
from gpulease.steps.agent_keys import NoKeys, keys_for

from tests.support.pause_records import running

ADA, BOB = "arn:aws:iam::111122223333:user/ada", "arn:aws:iam::111122223333:user/bob"
NOW = datetime(2026, 1, 5, tzinfo=UTC)


def keys(owner: str, secret: dict[str, Any]) -> Any:
    """What a machine of this owner's gets; the owner has named the secret `ada`."""
    store = ObjectStore(endpoint="https://store.example", bucket="models", credentials="ada")
    cache, _ = new_cache(CacheSpec(user=owner, size_gb=1, object_store=store), "models", 1, NOW)
    lease = running().lease.model_copy(update={"cache_id": cache.id, "owner": owner})
    stored = {"access_key_id": "id", "secret_access_key": "key", **secret}
    deps: Any = SimpleNamespace(
        ledger=SimpleNamespace(load=lambda lease_id: LeaseRecord(cache)),
        secrets=SimpleNamespace(provider_key=lambda name: json.dumps(stored)),
    )
    return keys_for(lease, deps, lambda key, store: None)


def test_the_users_that_a_secret_names_get_its_keys() -> None:
    assert keys(ADA, {"users": [ADA]}).access_key_id == "id"


def test_nobody_else_does_though_he_names_it() -> None:
    with pytest.raises(NoKeys) as refused:
        keys(BOB, {"users": [ADA]})

    assert ADA not in str(refused.value)


def test_a_secret_that_names_nobody_is_everybodys() -> None:
    assert keys(BOB, {}).access_key_id == "id"
