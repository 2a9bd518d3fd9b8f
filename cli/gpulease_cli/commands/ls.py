"""`gpulease ls`: all leases in one table."""

from collections.abc import Sequence
from datetime import datetime

import click

from gpulease_cli.app import App
from gpulease_cli.cache_views import CacheView, total_per_month
from gpulease_cli.client import Client
from gpulease_cli.errors import CliError
from gpulease_cli.options import api_options, json_option
from gpulease_cli.tables import Column, print_table
from gpulease_cli.text import between, cost, rate
from gpulease_cli.views import LIVE_STATES, LeaseView, total_per_hour

_COLUMNS = (
    Column("NAME", 0),
    Column("ID", 4),
    Column("STATE", 0),
    Column("GPU", 5),
    Column("WHERE", 6),
    Column("$/H", 1, right=True),
    Column("COST", 2, right=True),
    Column("AGE", 3, right=True),
    Column("NEXT", 7, least=16),
)
_MORE = "`--all` shows released ones."
_WATCH_SECONDS = 3.0


@click.command("ls")
@click.option("-a", "--all", "all_leases", is_flag=True, help="Released ones too.")
@click.option("-w", "--watch", is_flag=True, help="Again every few seconds, until Ctrl+C.")
@json_option
@api_options
def command(app: App, all_leases: bool, watch: bool, as_json: bool) -> None:
    """List leases and what they cost, and how many caches there are.

    \b
    gpulease ls
    gpulease ls --all --json | jq -r '.leases[].id'
    gpulease ls --watch
    """
    if watch and as_json:
        raise CliError("contradicts --watch; give one of the two", field="--json")
    client = app.client()
    while True:
        leases = list(client.leases(states=() if all_leases else LIVE_STATES))
        if as_json:
            app.print_json({"leases": [lease.raw for lease in leases], "cursor": None})
            return
        if watch:
            app.clear()
        _show(app, client, leases, all_leases)
        if not watch:
            return
        app.clock.sleep(_WATCH_SECONDS)


def _show(app: App, client: Client, leases: Sequence[LeaseView], all_leases: bool) -> None:
    caches = _caches(list(client.caches()))
    if not leases:
        billed = caches or "nothing is billed"
        app.say("No leases" + (f"; {caches}." if caches else ".") if all_leases else f"No leases; {billed}. {_MORE}")
        return
    print_table(app.console(), _COLUMNS, [_row(lease, client.now()) for lease in leases])
    app.say(f"Total: {rate(total_per_hour(leases))}/h" + (f"; {caches}" if caches else ""))


def _caches(caches: Sequence[CacheView]) -> str:
    """What exists beside the leases, used or not; empty = nothing."""
    if not caches:
        return ""
    count = "1 cache" if len(caches) == 1 else f"{len(caches)} caches"
    return f"{count} at {cost(total_per_month(caches))} a month (`gpulease cache ls`)"


def _next(lease: LeaseView, now: datetime) -> str:
    """What comes next and in how long; where that is now, its text says so."""
    if lease.next_at is None or lease.next_at <= now or not lease.next_text:
        return lease.next_text or lease.reason or "-"
    return f"in {between(now, lease.next_at)}: {lease.next_text}"


def _row(lease: LeaseView, now: datetime) -> list[str]:
    return [
        lease.name,
        lease.id,
        lease.state,
        lease.offer.gpu if lease.offer else "-",
        lease.offer.place if lease.offer else "-",
        rate(lease.price_per_hour_usd),
        cost(lease.cost_so_far_usd),
        between(lease.created_at, lease.released_at or now),
        _next(lease, now),
    ]
