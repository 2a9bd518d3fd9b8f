"""`gpulease resume`: let a paused machine run again."""

import click

from gpulease_cli.app import App
from gpulease_cli.complete import lease_names
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import DURATION, api_options, json_option
from gpulease_cli.pausing import followed
from gpulease_cli.resolve import resolve
from gpulease_cli.text import duration

MOST_SECONDS = 86400


@click.command("resume")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@click.option(
    "--on-no-capacity",
    type=click.Choice(["wait", "replace"]),
    help="Stay paused, or take a new machine and give the stopped one back when that runs.",
)
@click.option("--try-for", type=DURATION, metavar="TIME", help="How long to try for capacity. Default: 2m.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--wait/--no-wait", "waits", default=None, help="Wait until it runs. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long; the resume goes on.")
@json_option
@api_options
def command(
    app: App,
    lease: str,
    on_no_capacity: str | None,
    try_for: int | None,
    dry_run: bool,
    waits: bool | None,
    timeout: int | None,
    as_json: bool,
) -> int:
    """Let a paused machine run again: the stopped one, or a new one with its cache.

    Its address is another one afterwards. Without capacity it stays paused, and nothing of it is deleted.

    \b
    gpulease resume train
    gpulease resume train --try-for 30m
    gpulease resume train --on-no-capacity replace
    """
    if waits is False and timeout is not None:
        raise CliError("contradicts --no-wait; give one of the two", field="--timeout")
    if try_for is not None and try_for > MOST_SECONDS:
        raise CliError(f"{duration(try_for)} is too long; give at most 24h", field="--try-for")
    client = app.client()
    found = resolve(client, lease)
    if dry_run:
        plan = client.plan(found.id, "resume")
        if as_json:
            app.print_json(plan.raw)
        else:
            app.say(plan.text)
            app.note("Nothing was resumed.")
        return ExitCode.OK if plan.possible else ExitCode.NOT_AS_ASKED
    found = client.resume(found.id, on_no_capacity=on_no_capacity or "", wait_seconds=try_for)
    return followed(app, client, found, "running", waits, timeout, as_json)
