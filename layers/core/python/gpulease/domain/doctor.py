"""Ledger and provider side by side, for people: what is held, on its way out, in nobody's hands, or gone.

Pure. Says what is so and decides nothing: what is "lost" or "unowned" here becomes so by the sweep's rules alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from gpulease.domain.cost import rate_now
from gpulease.domain.observation import Observation
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.sweep import SweepState, Unowned, named_by

NOT_IN_LEDGER = "not_in_ledger"


class Group(StrEnum):
    """Where something stands."""

    HELD = "held"
    RELEASING = "releasing"
    UNOWNED = "unowned"
    LOST = "lost"
    EXEMPT = "exempt"


class Source(StrEnum):
    """Where the provider's side of a comparison comes from."""

    LIVE = "live"
    LAST_SWEEP = "last_sweep"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class PlaceView:
    """An account and region, and what is known of the provider's side of it."""

    state: SweepState
    provider: str = ""
    window_seconds: float = 0.0
    shown: Mapping[str, Observation] | None = None
    """All of this deployment, read just now; None = not read, the last sweep's state counts."""
    read_at: datetime | None = None
    error: str = ""

    @property
    def source(self) -> Source:
        if self.shown is not None:
            return Source.LIVE
        return Source.LAST_SWEEP if self.state.last_complete_at is not None else Source.NEVER

    @property
    def verified_at(self) -> datetime | None:
        return self.read_at if self.shown is not None else self.state.last_complete_at


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing. `since`: in this group; None = not known. `at_provider` None = not known."""

    group: Group
    kind: ResourceKind
    provider: str
    account: str
    region: str
    provider_id: str
    resource_id: str
    lease_id: str
    state: str
    since: datetime | None
    at_provider: bool | None
    usd_per_hour: Decimal | None
    plan: str = ""
    tries: int = 0
    last_error: str = ""


def diagnose(
    rows: Iterable[Resource], places: Mapping[tuple[str, str], PlaceView], deployment: str
) -> Iterator[Finding]:
    """Every open resource, then what the provider shows beyond them. `rows`: all open ones, read after the lists."""
    owned: set[str] = set()
    intents: set[str] = set()
    for row in rows:
        if row.provider_id:
            owned.add(row.provider_id)
        else:
            intents.add(row.marker)
        yield _of_row(row, places.get((row.account, row.region)))
    told: set[str] = set()
    for place in places.values():
        for each in _strangers(place, owned, intents):
            # Two accounts may be two keys of one.
            if each.provider_id not in told:
                told.add(each.provider_id)
                yield _of_stranger(each, place, deployment)


def _of_row(row: Resource, place: PlaceView | None) -> Finding:
    group, since = Group.HELD, row.held_at or row.intended_at
    seen = _is_seen(row, place)
    if row.release is not None and row.state is ResourceState.RELEASING:
        group, since = Group.RELEASING, row.release.requested_at
    elif row.state is ResourceState.HELD and seen is False:
        group, since = Group.LOST, _missing_since(row, place) or since
    return Finding(
        group=group,
        kind=row.kind,
        provider=row.provider,
        account=row.account,
        region=row.region,
        provider_id=row.provider_id,
        resource_id=row.id,
        lease_id=row.lease_id,
        state=row.state.value,
        since=since,
        at_provider=seen,
        usd_per_hour=rate_now(row),
        plan=row.plan,
        tries=row.release.tries if row.release is not None else 0,
        last_error=row.release.last_error if row.release is not None else "",
    )


def _is_seen(row: Resource, place: PlaceView | None) -> bool | None:
    if place is None or not row.provider_id:
        return None
    if place.shown is None:
        return False if _missing_since(row, place) is not None else None
    if row.provider_id in place.shown:
        return True
    young = timedelta(seconds=place.window_seconds)
    if place.read_at is None or place.read_at - (row.held_at or row.intended_at) < young:
        return None
    return False


def _missing_since(row: Resource, place: PlaceView | None) -> datetime | None:
    if place is None:
        return None
    return next((each.first_at for each in place.state.missing if each.resource_id == row.id), None)


def _strangers(place: PlaceView, owned: set[str], intents: set[str]) -> Iterator[Unowned]:
    """What is in nobody's hands: from the list just read, else as the last sweep saw it and the ledger still says."""
    known = {each.provider_id: each for each in place.state.unowned}
    if place.shown is None:
        yield from (each for each in known.values() if each.provider_id not in owned and each.marker not in intents)
        return
    for seen in place.shown.values():
        if seen.provider_id in owned or seen.marker in intents:
            continue
        earlier = known.get(seen.provider_id)
        at = place.read_at or place.state.last_try_at
        if earlier is None and at is not None:
            earlier = Unowned(
                provider_id=seen.provider_id,
                kind=seen.kind,
                subkind=seen.subkind,
                marker=seen.marker,
                plan=seen.plan,
                created_at=seen.created_at,
                first_at=at,
                counted_at=at,
                exempt=seen.exempt,
            )
        if earlier is not None:
            yield earlier


def _of_stranger(each: Unowned, place: PlaceView, deployment: str) -> Finding:
    named = named_by(each.marker, deployment)
    return Finding(
        group=Group.EXEMPT if each.exempt else Group.UNOWNED,
        kind=each.kind,
        provider=place.provider,
        account=place.state.account,
        region=place.state.region,
        provider_id=each.provider_id,
        resource_id=named.resource_id if named else each.marker,
        lease_id=named.lease_id if named else "",
        state=NOT_IN_LEDGER,
        since=each.first_at,
        at_provider=True,
        usd_per_hour=None,
        plan=each.plan,
    )
