"""`gpulease doctor`: ledger and provider side by side."""

from datetime import datetime

import click

from gpulease_cli.app import App
from gpulease_cli.client import Client
from gpulease_cli.doctor_views import DoctorView, PlaceView, ThingView
from gpulease_cli.options import api_options, json_option
from gpulease_cli.tables import Column, print_table
from gpulease_cli.text import between, local_time, rate

_COLUMNS = (
    Column("WHAT", 0),
    Column("KIND", 4),
    Column("WHERE", 3),
    Column("ID", 1),
    Column("LEASE", 2),
    Column("SINCE", 5, right=True),
    Column("$/H", 2, right=True),
    Column("NOTE", 6, least=16),
)
_MEANING = {
    "held": "held",
    "releasing": "on its way out",
    "unowned": "in nobody's hands",
    "lost": "gone at the provider",
    "exempt": "exempt (gpulease:keep)",
}
_THERE = {True: "the provider shows it", False: "the provider does not show it", None: ""}


@click.command("doctor")
@click.option("--live/--no-live", default=True, help="Ask the providers now, or show what the last sweep saw.")
@json_option
@api_options
def command(app: App, live: bool, as_json: bool) -> None:
    """Compare what gpulease holds with what the providers show.

    Your own things; everybody's for an admin. Changes nothing.

    \b
    gpulease doctor
    gpulease doctor --json | jq '.groups[] | {group, count, price_per_hour_usd}'
    """
    client = app.client(timeout_seconds=60.0)
    seen = client.doctor(live=live)
    if as_json:
        app.print_json(seen.raw)
        return
    _show(app, client, seen)


def _show(app: App, client: Client, seen: DoctorView) -> None:
    now = client.now()
    things = [thing for group in seen.groups for thing in group.things]
    if things:
        print_table(app.console(), _COLUMNS, [_row(thing, now) for thing in things])
    elif not seen.places:
        app.say("Nothing was ever asked for; nothing is held.")
    for group in seen.groups:
        if group.count:
            more = f", the first {len(group.things)} are shown" if group.count > len(group.things) else ""
            app.say(f"{_MEANING.get(group.name, group.name)}: {group.count} ({rate(group.price_per_hour_usd)}/h{more})")
    for place in seen.places:
        app.say(_place(place))
    for line in _advice(seen):
        app.say(line)


def _row(thing: ThingView, now: datetime) -> list[str]:
    return [
        _MEANING.get(thing.group, thing.group),
        thing.kind,
        thing.place,
        thing.provider_id or thing.resource_id,
        thing.lease_id or "-",
        between(thing.since, now),
        rate(thing.price_per_hour_usd),
        _note(thing),
    ]


def _note(thing: ThingView) -> str:
    if thing.group == "releasing":
        tried = f"delete sent {thing.tries} times" if thing.tries != 1 else "delete sent once"
        return f"{tried}; {thing.last_error}" if thing.last_error else tried
    if thing.state == "intended":
        return "asked for; may exist"
    return _THERE[thing.at_provider] or "-"


def _place(place: PlaceView) -> str:
    if place.source == "live":
        return f"{place.name}: compared just now"
    if place.verified_at and not place.incomplete_runs and not place.last_error:
        return f"{place.name}: as the sweep of {local_time(place.verified_at)} saw it"
    since = local_time(place.verified_at) if place.verified_at else "the beginning"
    missed = f" (sweeps that could not look: {place.incomplete_runs})" if place.incomplete_runs else ""
    why = f": {place.last_error}" if place.last_error else ""
    return f"{place.name}: not verified since {since}{missed}{why}"


def _advice(seen: DoctorView) -> list[str]:
    """What becomes of what should not be."""
    lines = []
    drained = [place.name for place in seen.places if place.draining]
    if drained:
        where = ", ".join(drained)
        lines.append(f"No longer configured: {where}. Keep the key until nothing is held there; it is being drained.")
    if seen.group("unowned").count:
        lines.append("In nobody's hands: the sweep gives it back at its second sighting, within 10 minutes.")
    if seen.group("lost").count:
        lines.append("Gone at the provider: its lease is ended once two sweeps, id and marker say so.")
    return lines
