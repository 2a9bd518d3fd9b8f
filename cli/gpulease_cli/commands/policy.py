"""`gpulease policy`: change what happens to a lease by itself, while it lives."""

from typing import Any

import click

from gpulease_cli.app import App
from gpulease_cli.client import ApiProblem
from gpulease_cli.complete import lease_names
from gpulease_cli.errors import CliError
from gpulease_cli.options import api_options, json_option
from gpulease_cli.policy_options import LimitType, fields, option_of, policy_options
from gpulease_cli.problems import as_cli_error
from gpulease_cli.resolve import resolve
from gpulease_cli.told import policy_lines, tell_next, window_lines
from gpulease_cli.views import LeaseView


@click.command("policy")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@policy_options
@click.option("--no-windows", is_flag=True, help="Take all windows off.")
@click.option(
    "--max-duration", type=LimitType("off"), metavar="TIME|off", help="Give it back after so long, pauses included."
)
@json_option
@api_options
def command(app: App, lease: str, no_windows: bool, max_duration: int | None, as_json: bool, **values: Any) -> None:
    """Show or change what happens to a lease by itself. What is not named stays as it is.

    --keep-off replaces all windows that keep off and leaves those that keep warm, and the other way round.

    \b
    gpulease policy train
    gpulease policy train --idle 2h --idle-then release
    gpulease policy train --idle off --budget 40
    gpulease policy train --keep-off '0 22 * * 1-5/0 8 * * 1-5@Europe/Berlin'
    """
    client = app.client()
    changed = fields(values)
    if no_windows:
        if "windows" in changed:
            raise CliError("contradicts --keep-off and --keep-warm; give one of the two", field="--no-windows")
        changed["windows"] = []
    if max_duration is not None:
        changed["max_duration_seconds"] = max_duration or None
    found = resolve(client, lease)
    if changed.get("windows"):
        changed["windows"] += _of_other_kinds(found, {window["keep"] for window in changed["windows"]})
    if not changed:
        found = client.lease(found.id)
        if as_json:
            app.print_json(found.raw.get("policy"))
            return
        for line in policy_lines(found.raw.get("policy") or {}):
            app.say(line)
        return
    try:
        after = client.change(found.id, {"policy": changed})
    except ApiProblem as problem:
        raise as_cli_error(problem, option_of) from problem
    tell_next(app, after, as_json)
    if not as_json and "windows" in changed:
        for line in window_lines(after.raw.get("policy") or {}):
            app.say(line)


def _of_other_kinds(lease: LeaseView, kinds: set[str]) -> list[Any]:
    """Windows that the lease has and that are not replaced: who names only when it is warm does not mean that it shall
    run all night."""
    windows = (lease.raw.get("policy") or {}).get("windows") or ()
    return [window for window in windows if window.get("keep") not in kinds]
