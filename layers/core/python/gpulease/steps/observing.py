"""How steps look at machines: from one list that serves everybody, and by themselves only where the list cannot tell.

Invariants: a list proves presence and never absence; absence, the proof of a deletion and attachments are read
directly. A list that failed publishes nothing. What is shared may be lost or unreadable at any time: then machines are
read directly, within the account's rate.
"""

import json
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from gpulease.domain.gate import SOON_SECONDS, Lane, Pause, pause_key, pause_of
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import Resource, ResourceKind, marker_for
from gpulease.errors import (
    LedgerUnavailable,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import Deps, Provider
from gpulease.sharing import CLAIM_SECONDS, age_of
from gpulease.steps.base import ref_of

FRESH = timedelta(seconds=1)
"""With the pause of a poll (4 s) a machine that became ready is noticed within five seconds."""
FRESH_BARE_METAL = timedelta(seconds=20)
USABLE = timedelta(seconds=30)
"""While somebody else refreshes it, a snapshot so old has to do."""
PER_CHUNK = 50
"""Machines in one item: a poll reads one of some 3 KB, compressed, however many there are."""
SPREAD_SECONDS = 8


def observe(deps: Deps, resource: Resource) -> Observation | Absent | None:
    """Look at a machine. None = not now (the rate is used up, or somebody is reading): come again in two seconds."""
    provider = deps.providers.get(resource.account)
    seen = next((o for o in listed(deps, provider, resource) if o.provider_id == resource.provider_id), None)
    if seen is not None:
        return seen
    return provider.observe(ref_of(resource)) if may_read(deps, provider) else None


def find(deps: Deps, resource: Resource) -> list[Observation] | None:
    """What carries the resource's marker. An empty list was read directly and completely. None = not now."""
    provider = deps.providers.get(resource.account)
    found = listed(deps, provider, resource)
    if found:
        return found
    return provider.find(ref_of(resource)) if may_read(deps, provider) else None


def may_read(deps: Deps, provider: Provider) -> bool:
    """Whether a read of one thing fits into the account's rate now."""
    spacing = Lane.READ.spacing_seconds(provider.capabilities.requests_per_second)
    try:
        slot = deps.shared.reserve(Lane.READ.key(provider.account), deps.clock.now(), spacing, SOON_SECONDS)
    except LedgerUnavailable:
        return True
    return slot is not None


def may_change(deps: Deps, provider: Provider) -> bool:
    """Whether a call that changes something fits into the account's rate now."""
    spacing = Lane.CHANGE.spacing_seconds(provider.capabilities.requests_per_second)
    slot = deps.shared.reserve(Lane.CHANGE.key(provider.account), deps.clock.now(), spacing, SOON_SECONDS)
    return slot is not None


def throttled_pause_seconds(error: ProviderError, who: str) -> int:
    """When to come again after a refusal: as late as the provider asks, spread by name so as not to come in step."""
    return ceil(error.facts.retry_after_seconds) + 2 + zlib.crc32(who.encode()) % SPREAD_SECONDS


# --- turns ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """When calls may be sent. `wait_seconds` 0 = now; else come again with `slot`, which is kept."""

    slot: datetime
    wait_seconds: int = 0


def take_turn_in(deps: Deps, provider: Provider, lane: Lane, held: datetime | None, calls: float = 1.0) -> Turn:
    """Queue for `calls` calls, first come first served; `held` is the slot of an earlier answer, or None.

    A slot that falls into a pause of the account moves behind it.
    """
    now = deps.clock.now()
    pause = _pause(deps, provider.account)
    waits = pause is not None and bool(pause.left(now))
    if held is not None:
        slot = pause.moved(held) if pause is not None and waits else held
    else:
        start = pause.until if pause is not None and waits else now
        spacing = lane.spacing_seconds(provider.capabilities.requests_per_second, calls)
        slot = deps.shared.reserve(lane.key(provider.account), start, spacing) or start
    wait = (slot - now).total_seconds()
    return Turn(slot, ceil(wait) if wait > SOON_SECONDS else 0)


def _pause(deps: Deps, account: str) -> Pause | None:
    known = deps.shared.read(pause_key(account))
    return pause_of(known.value) if known is not None else None


# --- the shared list --------------------------------------------------------------------------------------------------


def listed(deps: Deps, provider: Provider, resource: Resource, *, after: datetime | None = None) -> list[Observation]:
    """What the account's list shows under the resource's marker; empty = it does not tell.

    `after`: only from a list that was begun later.
    """
    name = provider.list_of(ref_of(resource)) if resource.kind is ResourceKind.INSTANCE else ""
    if not name:
        return []
    fresh = FRESH_BARE_METAL if resource.subkind == PlanKind.BARE_METAL else FRESH
    try:
        found = _listed(deps, provider, name, resource.marker, fresh, after)
    except (LedgerUnavailable, ProviderUnavailable, ProviderUnexpected, ProviderRejected) as error:
        deps.log.warning("list_not_shared", provider=provider.name, list=name, reason=str(error))
        return []
    return [seen for seen in found if seen.marker == resource.marker]


def _listed(
    deps: Deps, provider: Provider, name: str, marker: str, fresh: timedelta, after: datetime | None
) -> list[Observation]:
    key = f"{provider.account}/machines/{name}"
    now = deps.clock.now()
    index = deps.shared.read(key)
    age = age_of(index, now)
    if age > fresh or (after is not None and index is not None and index.as_of <= after):
        if deps.shared.claim(key, now, CLAIM_SECONDS):
            return _refresh(deps, provider, name, key, now)
        if age > USABLE or (after is not None and index is not None and index.as_of <= after):
            return []
    if index is None:
        return []
    chunks = int(index.value)
    chunk = deps.shared.read(_chunk_key(key, marker, chunks))
    return _decoded(chunk.value) if chunk is not None else []


def _refresh(deps: Deps, provider: Provider, name: str, key: str, now: datetime) -> list[Observation]:
    """Read the whole list for everybody. Chunks are written before the index that counts them."""
    prefix = marker_for(deps.policy.deployment, "")
    ours = [seen for seen in provider.list_machines(name) if seen.marker.startswith(prefix)]
    chunks = 1
    while len(ours) > chunks * PER_CHUNK:
        chunks *= 2
    parts: dict[str, list[Observation]] = {f"{key}/{n}of{chunks}": [] for n in range(chunks)}
    for seen in ours:
        parts[_chunk_key(key, seen.marker, chunks)].append(seen)
    for part, members in parts.items():
        deps.shared.publish(part, _encoded(members), now)
    deps.shared.publish(key, str(chunks), now)
    return ours


def _chunk_key(key: str, marker: str, chunks: int) -> str:
    """By marker: it is known before the id is."""
    return f"{key}/{zlib.crc32(marker.encode()) % chunks}of{chunks}"


def _encoded(members: list[Observation]) -> str:
    return json.dumps(
        [
            [
                seen.provider_id,
                seen.region,
                seen.marker,
                seen.condition.value,
                seen.words,
                seen.subkind,
                seen.plan,
                seen.address,
                seen.created_at.isoformat() if seen.created_at else None,
                seen.zone,
                seen.reason,
            ]
            for seen in members
        ],
        separators=(",", ":"),
    )


def _decoded(text: str) -> list[Observation]:
    return [_observation(*row) for row in json.loads(text)]


def _observation(
    provider_id: str,
    region: str,
    marker: str,
    condition: str,
    words: str,
    subkind: str,
    plan: str,
    address: str,
    at: Any,
    zone: str = "",
    reason: str = "",
) -> Observation:
    return Observation(
        kind=ResourceKind.INSTANCE,
        provider_id=provider_id,
        region=region,
        marker=marker,
        condition=Condition(condition),
        words=words,
        subkind=subkind,
        plan=plan,
        address=address,
        created_at=datetime.fromisoformat(at) if at else None,
        zone=zone,
        reason=reason,
    )
