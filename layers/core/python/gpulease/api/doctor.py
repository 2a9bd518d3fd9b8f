"""`GET /v1/doctor`: ledger and provider side by side, looked at now where the provider answers in time.

Read-only. The provider is asked in a thread of its own: it may take minutes, and the caller is answered after
LOOK_SECONDS with what is known by then, each place saying whether that was read now or is what the last sweep saw.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

from gpulease.api.caller import Caller
from gpulease.api.schemas_doctor import DoctorGroup, DoctorItem, DoctorPlace, DoctorView
from gpulease.api.views import money
from gpulease.domain.cache import cache_owner
from gpulease.domain.doctor import NOT_IN_LEDGER, Finding, Group, PlaceView, diagnose
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import Resource, ResourceState
from gpulease.domain.sweep import SweepState, in_turn
from gpulease.errors import GpuleaseError
from gpulease.ports import Deps, Once

LOOK_SECONDS = 15.0
MAX_ITEMS = 200
"""Shown of each group; counts and prices are of all."""
_OPEN = tuple(state for state in LeaseState if state is not LeaseState.RELEASED)
_PAGE = 200


def examine(deps: Deps, caller: Caller, *, live: bool = True) -> DoctorView:
    """The caller's own, or for admins everything. `live=False`: ask no provider, take the last sweep's word."""
    states = in_turn(deps.sweeps.states())
    if not caller.admin:
        mine = {(row.account, row.region) for row in _own(deps, caller)}
        states = [state for state in states if (state.account, state.region) in mine]
    places = _looked_at(deps, states, live)
    # Cloud first, then ledger: what was made or given back meanwhile must not look lost or unowned.
    rows = deps.ledger.open_resources() if caller.admin else _own(deps, caller)
    found = list(diagnose(rows, places, deps.policy.deployment))
    if not caller.admin:
        # Of what the provider shows beyond the caller's rows, most is other people's.
        leases = {each.lease_id for each in found if each.state != NOT_IN_LEDGER}
        found = [each for each in found if each.lease_id in leases]
    return _view(deps, caller, found, places)


def _own(deps: Deps, caller: Caller) -> Iterator[Resource]:
    """Open resources of the caller's leases and caches."""
    for owner in (caller.owner, cache_owner(caller.owner)):
        cursor: str | None = None
        while True:
            page = deps.ledger.leases_of(owner, states=_OPEN, cursor=cursor, limit=_PAGE)
            for lease in page.items:
                if lease.owner == owner:
                    record = deps.ledger.load(lease.id)
                    yield from (each for each in record.resources if each.state is not ResourceState.RELEASED)
            cursor = page.cursor
            if cursor is None:
                break


def _looked_at(deps: Deps, states: Sequence[SweepState], live: bool) -> dict[tuple[str, str], PlaceView]:
    """Each place with the provider's list where it could be read in time."""
    places = {(state.account, state.region): _unread(deps, state) for state in states}
    if not live or not places:
        return places
    read: dict[tuple[str, str], PlaceView] = {}

    def look() -> None:
        shared: dict[str, Once] = defaultdict(Once)
        for key, place in places.items():
            read[key] = _read(deps, place, shared[place.state.account])

    thread = threading.Thread(target=look, name="doctor", daemon=True)
    thread.start()
    thread.join(LOOK_SECONDS)
    return {**places, **dict(read)}


def _unread(deps: Deps, state: SweepState) -> PlaceView:
    """As the last sweep left it. An account that is no longer configured is shown all the same."""
    try:
        provider = deps.providers.get(state.account)
    except GpuleaseError as error:
        return PlaceView(state, error=str(error))
    return PlaceView(
        state, provider=provider.name, window_seconds=provider.visibility_window_seconds, error=state.last_error
    )


def _read(deps: Deps, place: PlaceView, once: Once) -> PlaceView:
    state, now = place.state, deps.clock.now()
    try:
        provider = deps.providers.get(state.account)
        listed = provider.list_owned(state.region, deps.policy.deployment, once=once)
        shown = {seen.provider_id: seen for seen in listed}
    except GpuleaseError as error:
        return PlaceView(state, place.provider, place.window_seconds, error=str(error))
    return PlaceView(state, place.provider, place.window_seconds, shown=shown, read_at=now)


def _view(deps: Deps, caller: Caller, found: Sequence[Finding], places: dict[tuple[str, str], PlaceView]) -> DoctorView:
    prices = _Prices(deps)
    groups = []
    for group in Group:
        members = [each for each in found if each.group is group]
        members.sort(key=lambda each: (each.since is None, each.since, each.resource_id))
        costs = [prices.of(each) for each in members]
        groups.append(
            DoctorGroup(
                group=group,
                count=len(members),
                price_per_hour_usd=money(sum((cost for cost in costs if cost is not None), Decimal(0))),
                items=tuple(
                    _item(each, cost) for each, cost in zip(members[:MAX_ITEMS], costs[:MAX_ITEMS], strict=True)
                ),
            )
        )
    return DoctorView(
        checked_at=deps.clock.now(),
        everybodys=caller.admin,
        groups=tuple(groups),
        places=tuple(_place(place, deps.providers.accounts()) for _, place in sorted(places.items())),
    )


def _item(each: Finding, cost: Decimal | None) -> DoctorItem:
    return DoctorItem(
        kind=each.kind,
        provider=each.provider,
        account=each.account,
        region=each.region,
        plan=each.plan,
        provider_id=each.provider_id,
        resource_id=each.resource_id,
        lease_id=each.lease_id or None,
        state=each.state,
        since=each.since,
        at_provider=each.at_provider,
        tries=each.tries,
        last_error=each.last_error,
        price_per_hour_usd=None if cost is None else money(cost),
    )


def _place(place: PlaceView, configured: Sequence[str]) -> DoctorPlace:
    return DoctorPlace(
        account=place.state.account,
        provider=place.provider,
        region=place.state.region,
        source=place.source,
        verified_at=place.verified_at,
        incomplete_runs=place.state.incomplete_runs,
        last_error=place.error,
        draining=place.state.account not in configured,
    )


class _Prices:
    """What a thing costs per hour: by the ledger, else by the catalogue, which is read only if something needs it."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._catalogue: dict[tuple[str, str, str], Decimal] | None = None

    def of(self, each: Finding) -> Decimal | None:
        """US dollars; None = not known."""
        if each.usd_per_hour is not None or not each.plan:
            return each.usd_per_hour
        if self._catalogue is None:
            offers = (offer for snapshot in self._deps.offers.load() for offer in snapshot.offers)
            self._catalogue = {(o.provider, o.region, o.plan): o.price_per_hour_usd for o in offers}
        return self._catalogue.get((each.provider, each.region, each.plan))
