"""`gpulease pause`: stop the bill of a machine and keep what can be kept."""

import click

from gpulease_cli import words
from gpulease_cli.app import App
from gpulease_cli.complete import lease_names
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import DURATION, api_options, json_option
from gpulease_cli.pausing import followed
from gpulease_cli.resolve import resolve
from gpulease_cli.ssh_folder import addresses_changed
from gpulease_cli.text import duration, rate
from gpulease_cli.views import LeaseView, PlanView


@click.command("pause")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@click.option("--dry-run", is_flag=True, help="Only say what it would do and cost.")
@click.option("--wait/--no-wait", "waits", default=None, help="Wait until nothing is computed for. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long; the pause goes on.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@api_options
def command(
    app: App, lease: str, dry_run: bool, waits: bool | None, timeout: int | None, yes: bool, as_json: bool
) -> int:
    """Stop the bill of a machine and keep what can be kept.

    Where the provider does not bill a stopped machine (AWS) it is stopped. Elsewhere (Vultr) it is given back and its
    cache is kept; without a cache that is refused, as nothing would be kept. On a terminal you are asked first.

    \b
    gpulease pause train --dry-run
    gpulease pause train
    gpulease pause train --yes --no-wait
    """
    if waits is False and timeout is not None:
        raise CliError("contradicts --no-wait; give one of the two", field="--timeout")
    client = app.client()
    found = resolve(client, lease)
    if dry_run:
        return _show(app, client.plan(found.id, "pause"), as_json)
    if (
        app.interactive
        and not yes
        and found.state == "running"
        and not _agreed(app, found, client.plan(found.id, "pause"))
    ):
        app.note("Nothing was paused.")
        return ExitCode.NOT_AS_ASKED
    found = client.pause(found.id)
    addresses_changed(app, client)
    return followed(app, client, found, "paused", waits, timeout, as_json)


def _show(app: App, plan: PlanView, as_json: bool) -> int:
    if as_json:
        app.print_json(plan.raw)
    else:
        _tell(app, plan)
        app.note("Nothing was paused.")
    return ExitCode.OK if plan.possible else ExitCode.NOT_AS_ASKED


def _tell(app: App, plan: PlanView) -> None:
    app.say(plan.text)
    if plan.possible:
        app.say(f"  billed while paused: {words.billed_while_paused(plan.billed)}")
        if plan.release_after_seconds:
            app.say(f"  given back after {duration(plan.release_after_seconds)} of being paused")


def _agreed(app: App, lease: LeaseView, plan: PlanView) -> bool:
    app.note(f"  {plan.text}")
    if not plan.possible:
        # The API refuses it in its own words.
        return True
    return app.confirm(f"Pause {lease.label} ({rate(plan.paused_price_per_hour_usd)}/h while paused)?")
