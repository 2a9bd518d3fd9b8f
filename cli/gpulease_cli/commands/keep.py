"""`gpulease keep`: keep a machine for a while, used or not."""

import click

from gpulease_cli.app import App
from gpulease_cli.complete import lease_names
from gpulease_cli.errors import CliError
from gpulease_cli.options import DURATION, api_options, json_option
from gpulease_cli.resolve import resolve
from gpulease_cli.text import duration
from gpulease_cli.told import kept_line, tell_next

LEAST_SECONDS, MOST_SECONDS = 60, 30 * 86400


@click.command("keep")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@click.option("--for", "seconds", type=DURATION, required=True, metavar="TIME", help="From now on; at most 30d.")
@json_option
@api_options
def command(app: App, lease: str, seconds: int, as_json: bool) -> None:
    """Keep a machine for a while, used or not, also where a window would pause it. Limits of time and money hold.

    \b
    gpulease keep train --for 2h
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise CliError(f"{duration(seconds)} is not possible; give 1m to 30d", field="--for")
    client = app.client()
    kept = client.keep(resolve(client, lease).id, seconds)
    tell_next(app, kept, as_json)
    if not as_json:
        app.say(f"  kept {kept_line(kept, client.now())}")
