"""Vultr's routes as typed calls. Lists are complete or an error; refusals are read with the table in `errors.py`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from gpulease.errors import ProviderError, ProviderFacts, ProviderRejected
from gpulease.providers.http import ApiClient, Reply
from gpulease.providers.vultr.errors import Meaning, default_of, meaning_of
from gpulease.providers.vultr.models import Identified, Meta, Wire

BASE_URL = "https://api.vultr.com/v2"
PAGE_SIZE = 500
"""The largest the API gives; it answers in 1 to 2 s whatever the size."""

LIST_PASSES = 3
"""A list of several pages whose total changes meanwhile may have skipped items: it is read again, and all that was seen
counts."""

W = TypeVar("W", bound=Identified)
P = TypeVar("P", bound=Wire)
V = TypeVar("V")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)


def is_id(text: str) -> bool:
    """Whether this can be the id of a machine or a VPC. Nothing else goes into a path: `/instances/` means all."""
    return _UUID.fullmatch(text) is not None


class VultrClient:
    """Calls and their answers; what they mean for a lease is the adapter's business."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def __repr__(self) -> str:
        return f"VultrClient({self._api!r})"

    def get(self, path: str) -> Reply:
        return self._api.call("GET", path)

    def post(self, path: str, body: Mapping[str, object]) -> Reply:
        return self._api.call("POST", path, body=body)

    def delete(self, path: str) -> Reply:
        return self._api.call("DELETE", path)

    def listing(self, path: str, key: str, kind: type[W], filters: Mapping[str, str] | None = None) -> list[W]:
        """All items of all pages, each once. Raises ProviderError when any page fails or the list is not whole."""
        return self.chosen(path, key, kind, lambda item: item, filters)

    def chosen(
        self,
        path: str,
        key: str,
        kind: type[W],
        choose: Callable[[W], V | None],
        filters: Mapping[str, str] | None = None,
    ) -> list[V]:
        """What `choose` makes of the items of all pages, as in `listing`; what it gives None for is not kept."""
        items: dict[Any, V] = {}
        for _ in range(LIST_PASSES):
            if len(self._read_list(path, key, kind, filters or {}, items, choose)) <= 1:
                break
        return list(items.values())

    def _read_list(
        self,
        path: str,
        key: str,
        kind: type[W],
        filters: Mapping[str, str],
        items: dict[Any, V],
        choose: Callable[[W], V | None],
    ) -> set[int]:
        """Add all pages to `items`; gives the totals that the pages named."""
        seen: set[Any] = set()
        cursors: set[str] = set()
        totals: set[int] = set()
        cursor = ""
        while True:
            query = [*filters.items(), ("per_page", str(PAGE_SIZE))]
            reply = self._api.call("GET", path, query=[*query, ("cursor", cursor)] if cursor else query)
            if not reply.ok:
                raise failure(reply)
            page = reply.value(key)
            if not isinstance(page, list):
                reply.unexpected(f"{key!r} is no list")
            for raw in page:
                item = parsed(reply, kind, raw)
                identity = item.id
                value = choose(item)
                if value is not None:
                    items[identity] = value
                seen.add(identity)
            meta = parsed(reply, Meta, reply.value("meta"))
            totals.add(meta.total)
            cursor = meta.links.next
            if not cursor:
                break
            if cursor in cursors:
                reply.unexpected("a page cursor came twice")
            cursors.add(cursor)
        # Fewer than there were at any moment means that some were not shown.
        if len(seen) < min(totals):
            reply.unexpected(f"the list shows {len(seen)} of {min(totals)} items")
        return totals

    def available_plans(self, region: str, plan_type: str) -> frozenset[str]:
        """Plans in stock. Raises ProviderRejected for a region that does not exist."""
        if not re.fullmatch(r"[a-z0-9-]{1,32}", region):
            message = f"{region!r} is no region"
            raise ProviderRejected(ProviderFacts("vultr", message, region=region))
        path = f"/regions/{region}/availability"
        reply = self._api.call("GET", path, query=(("type", plan_type),))
        if not reply.ok:
            raise failure(reply).at(region=region)
        plans = reply.value("available_plans")
        if not isinstance(plans, list) or not all(isinstance(plan, str) for plan in plans):
            reply.unexpected("'available_plans' is no list of texts")
        return frozenset(plans)


def parsed(reply: Reply, kind: type[P], raw: object) -> P:
    """`raw` as `kind`. Raises ProviderUnexpected naming the fields that are wrong, never their values."""
    try:
        return kind.model_validate(raw)
    except ValidationError as exc:
        fields = ", ".join(sorted({".".join(str(part) for part in error["loc"]) or "all" for error in exc.errors()}))
    reply.unexpected(f"{kind.__name__} with missing or wrong fields: {fields}"[:300])


def verdict(reply: Reply) -> type[ProviderError] | Meaning | None:
    """What a refusal means by the table; None = unknown."""
    return meaning_of(reply.facts.method, reply.facts.path, reply.status, reply.text)


def failure(reply: Reply) -> ProviderError:
    """The error of a refusal, by the table or else by call and status."""
    known = verdict(reply)
    if known is not None and not isinstance(known, Meaning):
        return known(reply.facts)
    return default_of(reply.facts.method, reply.facts.path, reply.status)(reply.facts)
