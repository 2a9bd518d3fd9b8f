"""Keys of a cache's object store for the one machine that uses it.

The stored secret is `<prefix>/cache/<name>`, so that no name a user gives reaches a provider's key. It is a JSON object
with `access_key_id` and `secret_access_key`, perhaps `session_token`, `provider` (rclone's name for the store), and
`users`: whose caches may name it. Anybody may name any secret, so one without users is everybody's.
Where the store is AWS, the machine gets a key that lives for hours and opens the one prefix; elsewhere the stored one.
"""

import json
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpulease.domain.agent_protocol import CacheKeys
from gpulease.domain.cache import spec_of
from gpulease.domain.cache_spec import ObjectStore
from gpulease.domain.lease import Lease
from gpulease.errors import ProviderAuthFailed, ProviderError
from gpulease.ports import Deps
from gpulease.steps.cache import cache_of


class NoKeys(Exception):
    """The cache has an object store, and no key of it can be had now."""


class StoredKey(BaseModel):
    """The secret. `provider` as rclone names it, where it is not to be guessed from the address."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    access_key_id: str = Field(min_length=1, max_length=256)
    secret_access_key: str = Field(min_length=1, max_length=512, repr=False)
    session_token: str = Field(default="", max_length=4096, repr=False)
    provider: str = Field(default="", max_length=40, pattern=r"^[A-Za-z]*$")
    users: tuple[str, ...] = Field(default=(), max_length=100)


Mint = Callable[[StoredKey, ObjectStore], tuple[StoredKey, int] | None]
"""A key of short life for one prefix, and its seconds; None = that cannot be made of this one."""


def keys_for(lease: Lease, deps: Deps, mint: Mint) -> CacheKeys | None:
    """Of the lease's own cache; None = it has none with an object store. Raises NoKeys."""
    cache = cache_of(lease, deps)
    store = spec_of(cache.lease).object_store if cache is not None else None
    if store is None:
        return None
    if not store.credentials:
        return _keys(store, None, None)
    try:
        text = deps.secrets.provider_key(f"cache/{store.credentials}")
        stored = StoredKey.model_validate(json.loads(text))
    except ProviderAuthFailed:
        raise NoKeys(f"there is no secret cache/{store.credentials}") from None
    except ProviderError:
        raise NoKeys(f"the secret cache/{store.credentials} cannot be read now") from None
    except (ValidationError, ValueError):
        raise NoKeys(f"the secret cache/{store.credentials} is not as docs/agent.md says") from None
    if stored.users and (cache is None or spec_of(cache.lease).user not in stored.users):
        raise NoKeys(f"the secret cache/{store.credentials} is not for this cache's owner")
    made = mint(stored, store) if not store.endpoint and not stored.session_token else None
    key, seconds = made if made is not None else (stored, None)
    return _keys(store, key, seconds)


def _keys(store: ObjectStore, key: StoredKey | None, seconds: int | None) -> CacheKeys:
    named = key.provider if key is not None else ""
    return CacheKeys(
        provider=named or _provider_of(store.endpoint),
        endpoint=store.endpoint,
        region=store.region,
        bucket=store.bucket,
        prefix=store.prefix,
        access_key_id=key.access_key_id if key is not None else "",
        secret_access_key=key.secret_access_key if key is not None else "",
        session_token=key.session_token if key is not None else "",
        expires_in_seconds=seconds,
    )


def _provider_of(endpoint: str) -> str:
    if not endpoint:
        return "AWS"
    return "Cloudflare" if ".r2.cloudflarestorage.com" in endpoint else "Other"
