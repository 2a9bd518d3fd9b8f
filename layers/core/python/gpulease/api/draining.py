"""Empties a deployment: puts the switch on, gives back what is open, says what is left.

Invariants: the switch is written before the open leases are listed, so a lease that the listing misses was written
after the switch and ends by itself (`gpulease/draining.py`) or was not in the index yet, for which `done` waits
SETTLE_SECONDS; a cache is never touched, but one of which nothing was asked of a provider yet is a request that
begins nothing; whatever is asked may be asked again.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

from gpulease.api.caller import Caller
from gpulease.api.give_back import give_back
from gpulease.api.problems import Problem
from gpulease.api.schemas_drain import DrainCache, DrainLease, DrainThing, DrainView
from gpulease.api.views import money
from gpulease.domain.cache import volume_of
from gpulease.domain.cost import rate_now
from gpulease.domain.drain import Drain
from gpulease.domain.lease import Lease, LeaseKind, LeaseState
from gpulease.domain.resource import Resource
from gpulease.draining import DETAIL, end_while_draining
from gpulease.errors import LeaseConflict, LeaseSuperseded
from gpulease.ports import Deps

SETTLE_SECONDS = 10.0
"""After the switch: by then every lease written before it is in the index that lists leases (it lags by a second)."""
WORK_TIME = timedelta(seconds=12)
"""For giving back in one request; the next goes on."""
MAX_SHOWN = 200
_OPEN = tuple(state for state in LeaseState if state is not LeaseState.RELEASED)
_PAGE = 200


def put_on(deps: Deps, caller: Caller) -> DrainView:
    """Refuse new leases from now on, and give back the open ones."""
    drain = deps.drains.load()
    now = deps.clock.now()
    if not drain.on:
        drain = Drain(on=True, since=now, by=caller.owner)
        deps.drains.save(drain)
        deps.log.warning("drain_on", by=caller.owner)
    for lease in _open_leases(deps):
        if lease.kind is LeaseKind.NETWORK or lease.state is LeaseState.RELEASING:
            continue
        if deps.clock.now() - now > WORK_TIME:
            break
        if lease.kind is LeaseKind.CACHE:
            _end_if_not_begun(lease, deps)
            continue
        try:
            give_back(deps.ledger.load(lease.id), deps, DETAIL)
        except Problem as problem:
            # Busy at this moment. The next request finds it still open.
            deps.log.warning("drain_left", lease_id=lease.id, reason=problem.code)
    return look(deps)


def _end_if_not_begun(cache: Lease, deps: Deps) -> None:
    if cache.state not in (LeaseState.REQUESTED, LeaseState.PROVISIONING):
        return
    record = deps.ledger.load(cache.id)
    if volume_of(record) is not None:
        return
    # Changed at this moment: its volume is being asked for, or it ends already.
    with suppress(LeaseConflict, LeaseSuperseded):
        end_while_draining(record, deps)


def put_off(deps: Deps, caller: Caller) -> DrainView:
    """Take new leases again. What is on its way out stays so."""
    if deps.drains.load().on:
        deps.drains.save(Drain())
        deps.log.warning("drain_off", by=caller.owner)
    return look(deps)


def look(deps: Deps) -> DrainView:
    """How far it is. Changes nothing."""
    drain = deps.drains.load()
    leases = list(_open_leases(deps))
    caches = {lease.id: lease for lease in leases if lease.kind is LeaseKind.CACHE}
    machines = [lease for lease in leases if lease.kind is LeaseKind.MACHINE]
    # After the leases: what of theirs was made meanwhile is among it.
    billed = sorted(deps.ledger.open_resources(), key=lambda row: row.id)
    things = [row for row in billed if row.lease_id not in caches]
    settled = drain.since is not None and deps.clock.now() - drain.since >= timedelta(seconds=SETTLE_SECONDS)
    return DrainView(
        draining=drain.on,
        since=drain.since,
        by=drain.by,
        done=drain.on and settled and not machines and not things,
        leases=tuple(_lease(lease) for lease in machines[:MAX_SHOWN]),
        lease_count=len(machines),
        still_billed=tuple(_thing(row) for row in things[:MAX_SHOWN]),
        still_billed_count=len(things),
        # What is in an object store alone is billed by nobody that we know.
        caches=tuple(
            _cache(lease, rows)
            for lease in caches.values()
            if (rows := [row for row in billed if row.lease_id == lease.id])
            or lease.cache is None
            or lease.cache.has_volume
        ),
        price_per_hour_usd=money(_price(billed)),
    )


def _open_leases(deps: Deps) -> Iterator[Lease]:
    cursor: str | None = None
    while True:
        page = deps.ledger.leases_of(None, states=_OPEN, cursor=cursor, limit=_PAGE)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def _price(rows: list[Resource]) -> Decimal:
    return sum((rate_now(row) for row in rows), Decimal(0))


def _lease(lease: Lease) -> DrainLease:
    return DrainLease(id=lease.id, name=lease.name, owner=lease.owner, state=lease.state, waiting_for=lease.waiting_for)


def _thing(row: Resource) -> DrainThing:
    return DrainThing(
        kind=row.kind,
        provider=row.provider,
        account=row.account,
        region=row.region,
        provider_id=row.provider_id,
        resource_id=row.id,
        lease_id=row.lease_id,
        state=row.state,
        price_per_hour_usd=money(rate_now(row)),
        tries=row.release.tries if row.release else 0,
        last_error=row.release.last_error if row.release else "",
    )


def _cache(lease: Lease, rows: list[Resource]) -> DrainCache:
    spec = lease.cache
    return DrainCache(
        id=lease.id,
        name=lease.name,
        owner=spec.user if spec else lease.owner,
        provider=spec.provider if spec else "",
        region=spec.region if spec else "",
        provider_id=next((row.provider_id for row in rows), ""),
        price_per_hour_usd=money(_price(rows)),
    )
