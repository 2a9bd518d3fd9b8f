"""What `gpulease local` says when it starts and when it stops: one screen of facts, and what still costs money."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from gpulease.domain.cost import lease_cost, price_per_hour
from gpulease.domain.lease import Lease

from gpulease_local.books import OPEN_STATES, is_users
from gpulease_local.sides import Sides
from gpulease_local.stack import Stack

_PAGE = 100


def open_leases(stack: Stack) -> Iterator[Lease]:
    """Every lease that is not released, newest first."""
    cursor: str | None = None
    while True:
        page = stack.deps.ledger.leases_of(None, states=OPEN_STATES, cursor=cursor, limit=_PAGE)
        yield from (lease for lease in page.items if is_users(lease))
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
        "Ctrl+C stops the server; leases stay.",
    ]


def closing_lines(stack: Stack, *, real: bool) -> list[str]:
    """What is still rented when the server stops."""
    rented = rented_lines(stack)
    if not rented:
        return ["stopped; nothing is rented"]
    if real:
        warning = "STILL RENTED AND BILLED while gpulease is not running; nothing watches idle or maximum duration:"
        return [warning, *rented, "Start `gpulease local` again to go on; give leases back with `gpulease down`."]
    return ["stopped; still rented at the simulated provider, goes on at the next start:", *rented]
