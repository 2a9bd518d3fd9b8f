"""What `gpulease local` says when it starts and when it stops: one screen of facts, and what still costs money."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from gpulease.domain.cache import HOURS_PER_MONTH
from gpulease.domain.cost import lease_cost, price_per_hour
from gpulease.domain.lease import Lease, LeaseKind

from gpulease_local.books import OPEN_STATES, is_users
from gpulease_local.sides import Sides
from gpulease_local.stack import Stack

_PAGE = 100


def open_leases(stack: Stack) -> Iterator[Lease]:
    """Every lease that is not released, newest first."""
    return (lease for lease in _open_records(stack) if is_users(lease))


def cache_lines(stack: Stack) -> list[str]:
    """One line per cache that is billed, with its price; they cost money with and without leases."""
    now, lines = stack.deps.clock.now(), []
    for lease in _open_records(stack):
        if lease.kind is not LeaseKind.CACHE:
            continue
        price = price_per_hour(stack.deps.ledger.load(lease.id), now)
        if price:
            lines.append(f"  {lease.id}  cache {lease.name}  ${price * HOURS_PER_MONTH:.2f} a month")
    return lines


def _open_records(stack: Stack) -> Iterator[Lease]:
    cursor: str | None = None
    while True:
        page = stack.deps.ledger.leases_of(None, states=OPEN_STATES, cursor=cursor, limit=_PAGE)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def rented_lines(stack: Stack) -> list[str]:
    """One line per open lease with its price, then the sum; empty when nothing is open."""
    now = stack.deps.clock.now()
    lines: list[str] = []
    hourly = so_far = Decimal(0)
    for lease in open_leases(stack):
        record = stack.deps.ledger.load(lease.id)
        price, cost = price_per_hour(record, now), lease_cost(record, now)
        hourly, so_far = hourly + price, so_far + cost
        lines.append(f"  {lease.id}  {lease.name}  {lease.state}  ${price:.3f}/h  ${cost:.2f} so far")
    if lines:
        lines.append(f"  together ${hourly:.3f}/h, ${so_far:.2f} so far")
    return lines


def opening_lines(stack: Stack, sides: Sides, url: str, folder: Path, public_folder: Path) -> list[str]:
    """URL, data folder, provider, time scale, open leases and their price."""
    speed = "real time" if sides.scale == 1 else f"{sides.scale:g} times real time"
    rented = rented_lines(stack)
    return [
        "gpulease local",
        f"  API         {url}/v1   (description: {url}/openapi.json)",
        f"  token       {public_folder / 'token'}",
        f"  data        {folder}",
        *(f"  {'provider' if n == 0 else '':<12}{side.words}" for n, side in enumerate(sides.each)),
        f"  time        {speed}; now {stack.deps.clock.now():%Y-%m-%d %H:%M:%S} UTC",
        f"  open leases {len(rented) - 1 if rented else 'none'}",
        *rented,
        *cache_lines(stack),
        "Ctrl+C stops the server; leases stay.",
    ]


def closing_lines(stack: Stack, *, real: bool) -> list[str]:
    """What is still rented when the server stops."""
    rented, caches = rented_lines(stack), cache_lines(stack)
    if not rented and not caches:
        return ["stopped; nothing is rented"]
    if not real:
        return ["stopped; still rented at the simulated provider, goes on at the next start:", *rented, *caches]
    if not rented:
        warning = "STILL BILLED while gpulease is not running, and none of them ends by itself meanwhile:"
        return [warning, *caches, "Start `gpulease local` again to remove one: `gpulease cache rm`."]
    warning = "STILL RENTED AND BILLED while gpulease is not running; nothing watches idle or maximum duration:"
    return [warning, *rented, *caches, "Start `gpulease local` again to go on; give leases back with `gpulease down`."]
