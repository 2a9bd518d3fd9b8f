"""`gpulease touch`: say that a machine is in use."""

import click

from gpulease_cli.app import App
from gpulease_cli.complete import lease_names
from gpulease_cli.options import api_options, json_option
from gpulease_cli.resolve import resolve
from gpulease_cli.told import tell_next


@click.command("touch")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@json_option
@api_options
def command(app: App, lease: str, as_json: bool) -> None:
    """Say that a machine is in use now: idleness counts from here again.

    \b
    gpulease touch train
    """
    client = app.client()
    tell_next(app, client.touch(resolve(client, lease).id), as_json)
