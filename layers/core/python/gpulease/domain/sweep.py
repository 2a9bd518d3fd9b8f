"""What a provider shows against what the ledger holds: the rules of the sweep (law 8 of the design), without any I/O.

Invariants: nothing is judged by one look; a look that was not complete judges nothing, in either direction; what does
not carry exactly our deployment's marker is not even looked at; absence here is a suspicion that somebody has to
confirm by id and by marker, never a proof.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gpulease.domain.cost import rate_now
from gpulease.domain.model import Instant, Model
from gpulease.domain.observation import Condition, Observation
from gpulease.domain.release import MAX_PAUSE_SECONDS
from gpulease.domain.resource import Resource, ResourceKind, ResourceState, marker_for

SWEEP_EVERY = timedelta(minutes=5)
"""As in template.yaml."""
LOOKS_NEEDED = 2
LOOKS_APART = timedelta(seconds=60)
"""Two looks closer together than this count as one: a list that lags would say the same thing twice."""
MAX_SIGHTINGS = 400
"""Kept per place and direction, the longest known first, so that a state stays below 200 KB. Others follow later."""
ALARM_AFTER_RUNS = 3
ALARM_AGAIN_AFTER = timedelta(hours=1)
LATE_AFTER = 3 * SWEEP_EVERY
RELEASE_OVERDUE = timedelta(seconds=MAX_PAUSE_SECONDS + 60)
"""A release whose next turn is so long past has no workflow behind it any more."""

_KINDS = "|".join(kind.value for kind in ResourceKind)
# A lease, the holder of a shared network, or a cache.
_NAME = re.compile(
    rf"(?P<lease>[lnc]-[a-z2-7]{{12}})\.(?P<kind>{_KINDS})\.(?P<attempt>[1-9][0-9]{{0,3}})(\.[0-9]{{1,4}})?"
)


class Unowned(Model):
    """Something at the provider with our marker that no open resource of the ledger holds."""

    provider_id: str
    kind: ResourceKind
    subkind: str = ""
    marker: str
    plan: str = ""
    created_at: Instant | None = None
    first_at: Instant
    counted_at: Instant
    looks: int = 1
    """Complete looks in a row in which it was seen so, each at least LOOKS_APART after the one counted before."""
    exempt: bool = False
    """Marked at the provider as not to be touched (`gpulease:keep`)."""
    readable: bool = True
    """Whether its marker names a lease and a resource. What it does not name is shown and never touched."""


class Missing(Model):
    """A resource that the ledger holds and the provider did not show."""

    resource_id: str
    lease_id: str
    kind: ResourceKind
    first_at: Instant
    counted_at: Instant
    looks: int = 1


class SweepState(Model):
    """What is remembered of one account and region between two sweeps. Region "" = the account itself.

    `version` counts writes (0 = not yet stored) and is raised by the store alone.
    """

    account: str
    region: str
    version: int = 0
    last_try_at: Instant | None = None
    last_complete_at: Instant | None = None
    incomplete_runs: int = 0
    """In a row, up to now."""
    last_error: str = ""
    alarmed_at: Instant | None = None
    """When `SweepIncomplete` was raised for the present outage."""
    auth_alarmed_at: Instant | None = None
    """Of the account's row: when `ProviderAuthFailed` was raised last."""
    unowned: tuple[Unowned, ...] = ()
    missing: tuple[Missing, ...] = ()
    left_out: int = 0
    """Sightings beyond MAX_SIGHTINGS."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a marker of ours names."""

    lease_id: str
    kind: ResourceKind
    attempt: int
    resource_id: str


def named_by(marker: str, deployment: str) -> Named | None:
    """The lease and resource in a marker of exactly this deployment; None for anything else."""
    prefix = marker_for(deployment, "")
    if not deployment or not marker.startswith(prefix):
        return None
    found = _NAME.fullmatch(marker.removeprefix(prefix))
    if found is None:
        return None
    return Named(found["lease"], ResourceKind(found["kind"]), int(found["attempt"]), found[0])


@dataclass(frozen=True, slots=True)
class Look:
    """One complete look at one account and region."""

    deployment: str
    account: str
    at: datetime
    """When listing began: what is younger than that was not there to be seen."""
    window_seconds: float
    """V: how long a fresh thing may be missing from lists."""
    shown: Mapping[str, Observation]
    """By provider id: all that carries our marker, from all pages."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What follows from a look. `state` is what to remember when everything else has been done."""

    state: SweepState
    take_up: tuple[Unowned, ...] = ()
    """Unowned long enough: to be held as releasing, and given back."""
    differ: tuple[str, ...] = ()
    """Resource ids of machines that are shown stopped and should run, or the other way round."""
    confirm: tuple[Missing, ...] = ()
    """Missing long enough: lost if id and marker say so too."""
    overdue: tuple[str, ...] = ()
    """Leases with something on its way out that nobody works on."""
    held: int = 0
    releasing: int = 0
    new: tuple[Unowned, ...] = ()
    """Seen unowned for the first time."""


@dataclass
class Bill:
    """What the ledger lists as billed in the places that were looked at."""

    resources: int = 0
    machines: int = 0
    usd_per_hour: Decimal = Decimal(0)

    def add(self, resource: Resource) -> None:
        """One open resource."""
        self.resources += 1
        self.machines += resource.kind is ResourceKind.INSTANCE
        self.usd_per_hour += rate_now(resource)


@dataclass
class SweepReport:
    """What one sweep did, as numbers, and as sentences for people."""

    dry_run: bool = False
    places: int = 0
    complete: int = 0
    incomplete: int = 0
    skipped: int = 0
    """Looked at by somebody else less than a minute ago."""
    left: int = 0
    """Not reached in time; first in the next run."""
    held: int = 0
    releasing: int = 0
    watching: int = 0
    exempt: int = 0
    taken_up: int = 0
    lost: int = 0
    failed: int = 0
    lines: list[str] = field(default_factory=list)
    bill: Bill = field(default_factory=Bill)

    def counts(self) -> dict[str, int]:
        """The numbers alone."""
        return {name: value for name, value in vars(self).items() if type(value) is int}


def judge(look: Look, rows: Iterable[Resource], before: SweepState) -> Judgement:
    """Compare a complete look with the open resources of the ledger, which must have been read after it.

    `rows`: all open resources of this provider and region, of every account: two accounts may be two keys of one.
    """
    owned: set[str] = set()
    intents: set[str] = set()
    absent: list[Resource] = []
    overdue: dict[str, None] = {}
    differ: list[str] = []
    held = releasing = 0
    for row in rows:
        if row.state is ResourceState.RELEASED:
            continue
        if row.provider_id:
            owned.add(row.provider_id)
        else:
            # May exist, may not: whoever works on the intent looks for its marker.
            intents.add(row.marker)
        held += row.state is ResourceState.HELD
        releasing += row.state is ResourceState.RELEASING
        if _is_absent(row, look):
            absent.append(row)
        if _differs(row, look):
            differ.append(row.id)
        if row.release is not None and row.release.next_try_at + RELEASE_OVERDUE < look.at:
            overdue[row.lease_id] = None
    strangers = [seen for seen in look.shown.values() if seen.provider_id not in owned and seen.marker not in intents]
    unowned, more_unowned = _unowned(look, strangers, before)
    missing, more_missing = _missing(look, absent, before)
    known = {sighting.provider_id for sighting in before.unowned}
    state = before.model_copy(
        update={
            "last_complete_at": look.at,
            "incomplete_runs": 0,
            "last_error": "",
            "alarmed_at": None,
            "unowned": unowned,
            "missing": missing,
            "left_out": more_unowned + more_missing,
        }
    )
    return Judgement(
        state=state,
        take_up=tuple(each for each in unowned if may_take_up(each, look)),
        differ=tuple(differ),
        confirm=tuple(each for each in missing if each.looks >= LOOKS_NEEDED),
        overdue=tuple(overdue),
        held=held,
        releasing=releasing,
        new=tuple(each for each in unowned if each.provider_id not in known),
    )


def may_take_up(sighting: Unowned, look: Look) -> bool:
    """Seen unowned in two looks in a row, older than V, named by its marker, and not exempt."""
    window = timedelta(seconds=look.window_seconds)
    # A provider's clock that runs ahead must not protect a thing for ever: what we have seen for so long is as old.
    born = min(sighting.created_at or sighting.first_at, sighting.first_at)
    return (
        sighting.looks >= LOOKS_NEEDED
        and look.at - born >= window
        and sighting.readable
        and not sighting.exempt
        and named_by(sighting.marker, look.deployment) is not None
    )


def incomplete(before: SweepState, error: str) -> SweepState:
    """After a look that failed: what was seen before stays as it was, and is neither confirmed nor refuted."""
    return before.model_copy(update={"incomplete_runs": before.incomplete_runs + 1, "last_error": error[:300]})


def needs_alarm(state: SweepState, now: datetime) -> bool:
    """Whether people must be told that this place cannot be verified (again)."""
    if state.incomplete_runs < ALARM_AFTER_RUNS:
        return False
    return state.alarmed_at is None or now - state.alarmed_at >= ALARM_AGAIN_AFTER


def stood_still_since(states: Iterable[SweepState], now: datetime) -> datetime | None:
    """When the last look at any place was, if that is longer ago than sweeps should be apart; else None."""
    last = max((state.last_try_at for state in states if state.last_try_at is not None), default=now)
    return last if now - last > LATE_AFTER else None


def in_turn(states: Iterable[SweepState]) -> list[SweepState]:
    """Places to look at, the one that has waited longest first: what one run did not reach is first in the next."""
    return sorted(
        (state for state in states if state.region),
        key=lambda state: (state.last_try_at is not None, state.last_try_at, state.account, state.region),
    )


def _is_absent(row: Resource, look: Look) -> bool:
    if row.state is not ResourceState.HELD or row.account != look.account or row.provider_id in look.shown:
        return False
    return look.at - (row.held_at or row.intended_at) >= timedelta(seconds=look.window_seconds)


def _differs(row: Resource, look: Look) -> bool:
    """Whether a machine is shown stopped that should run, or running that should be stopped. A list says that it may
    be so; somebody has to look at the machine itself."""
    seen = look.shown.get(row.provider_id)
    if seen is None or row.kind is not ResourceKind.INSTANCE or row.state is not ResourceState.HELD:
        return False
    if seen.condition is Condition.STOPPED:
        return row.stopped_at is None
    return row.stopped_at is not None and seen.condition in (Condition.READY, Condition.PENDING)


def _counted(earlier: Unowned | Missing | None, now: datetime) -> dict[str, Any]:
    """First and last time and number of the looks that count, this one included."""
    if earlier is None:
        return {"first_at": now, "counted_at": now, "looks": 1}
    if now - earlier.counted_at < LOOKS_APART:
        return {"first_at": earlier.first_at, "counted_at": earlier.counted_at, "looks": earlier.looks}
    return {"first_at": earlier.first_at, "counted_at": now, "looks": earlier.looks + 1}


def _unowned(look: Look, strangers: list[Observation], before: SweepState) -> tuple[tuple[Unowned, ...], int]:
    known = {sighting.provider_id: sighting for sighting in before.unowned}
    seen = []
    for each in strangers:
        named = named_by(each.marker, look.deployment)
        seen.append(
            Unowned(
                provider_id=each.provider_id,
                kind=each.kind,
                subkind=each.subkind,
                marker=each.marker,
                plan=each.plan,
                created_at=each.created_at,
                **_counted(known.get(each.provider_id), look.at),
                exempt=each.exempt,
                readable=named is not None and named.kind is each.kind,
            )
        )
    seen.sort(key=lambda each: (each.first_at, each.provider_id))
    return tuple(seen[:MAX_SIGHTINGS]), max(0, len(seen) - MAX_SIGHTINGS)


def _missing(look: Look, absent: list[Resource], before: SweepState) -> tuple[tuple[Missing, ...], int]:
    known = {sighting.resource_id: sighting for sighting in before.missing}
    found = []
    for row in absent:
        found.append(
            Missing(
                resource_id=row.id,
                lease_id=row.lease_id,
                kind=row.kind,
                **_counted(known.get(row.id), look.at),
            )
        )
    # Machines before networks: the end of a lease takes its network with it.
    found.sort(key=lambda each: (each.first_at, each.kind is not ResourceKind.INSTANCE, each.resource_id))
    return tuple(found[:MAX_SIGHTINGS]), max(0, len(found) - MAX_SIGHTINGS)
