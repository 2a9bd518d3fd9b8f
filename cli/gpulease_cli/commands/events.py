"""`gpulease events`: the story of a lease."""

import click

from gpulease_cli.app import App
from gpulease_cli.client import ApiUnreachable, Client
from gpulease_cli.complete import lease_names
from gpulease_cli.options import api_options, json_option
from gpulease_cli.resolve import resolve
from gpulease_cli.text import local_time
from gpulease_cli.views import EventView
from gpulease_cli.waiting import LONGEST_OUTAGE_SECONDS

_FOLLOW_SECONDS = 2.0


@click.command("events")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@click.option("-F", "--follow", is_flag=True, help="Go on until the lease is released.")
@json_option
@api_options
def command(app: App, lease: str, follow: bool, as_json: bool) -> None:
    """Show what happened to a lease, oldest first.

    With --follow, --json prints one event per line instead of one document, because the end is not known yet.

    \b
    gpulease events train
    gpulease events train --follow
    gpulease events train --json | jq -r '.events[].text'
    """
    client = app.client()
    lease_id = resolve(client, lease, released_too=True).id
    if follow:
        _follow(app, client, lease_id, as_json)
        return
    events = list(client.all_events(lease_id))
    if as_json:
        app.print_json({"events": [event.raw for event in events], "cursor": None})
        return
    for event in events:
        _print(app, event)


def _follow(app: App, client: Client, lease_id: str, as_json: bool) -> None:
    """The last page grows: it is read again, and what was shown of it is skipped."""
    cursor: str | None = None
    shown = 0
    silent_since: float | None = None
    while True:
        try:
            # Asked for before its events: an event written in between must not be missed.
            released = client.lease(lease_id).released
            page = client.events(lease_id, cursor=cursor)
        except ApiUnreachable:
            now = app.clock.elapsed_seconds()
            silent_since = now if silent_since is None else silent_since
            if now - silent_since > LONGEST_OUTAGE_SECONDS:
                raise
            app.clock.sleep(_FOLLOW_SECONDS)
            continue
        silent_since = None
        for event in page.events[shown:]:
            if as_json:
                app.print_json_line(event.raw)
            else:
                _print(app, event)
        if page.cursor is not None:
            cursor, shown = page.cursor, 0
            continue
        shown = len(page.events)
        if released:
            return
        app.clock.sleep(_FOLLOW_SECONDS)


def _print(app: App, event: EventView) -> None:
    level = "" if event.level == "info" else f"{event.level}: "
    app.say(f"{local_time(event.at)}  {level}{event.text or event.kind}")
