"""`gpulease version`."""

import platform

import click

from gpulease_cli import __version__
from gpulease_cli.app import App
from gpulease_cli.options import json_option


@click.command("version")
@json_option
@click.pass_obj
def command(app: App, as_json: bool) -> None:
    """Show the version.

    \b
    gpulease version
    gpulease version --json
    """
    if as_json:
        app.print_json({"version": __version__, "python": platform.python_version()})
    else:
        app.say(f"gpulease {__version__} (Python {platform.python_version()})")
