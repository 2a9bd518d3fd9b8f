"""`gpulease sweep`: do now what the schedule does every five minutes."""

import click

from gpulease_cli.app import App
from gpulease_cli.doctor_views import SweepView
from gpulease_cli.options import api_options, json_option


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Only look, and say what would be done.")
@json_option
@api_options
def command(app: App, dry_run: bool, as_json: bool) -> None:
    """Hold the providers' lists against the ledger now, and give back what is in nobody's hands.

    For admins. The same rules as for the schedule: seen twice, a minute apart, and old enough to be in lists; so what
    nobody has seen before is only noted.

    \b
    gpulease sweep --dry-run
    gpulease sweep
    """
    done = app.client(timeout_seconds=60.0).sweep(dry_run=dry_run)
    if as_json:
        app.print_json(done.raw)
        return
    for line in done.lines:
        app.say(line)
    app.say(_summary(done, dry_run))


def _summary(done: SweepView, dry_run: bool) -> str:
    act, end = ("would be given back", "would be ended") if dry_run else ("given back", "ended")
    parts = [
        f"{done.count('complete')} of {done.count('places')} places compared",
        f"{done.count('held')} held",
        f"{done.count('taken_up')} {act}",
        f"{done.count('lost')} {end}",
    ]
    parts += [
        f"{done.count(name)} {what}"
        for name, what in (
            ("watching", "to be seen once more"),
            ("exempt", "exempt"),
            ("incomplete", "places could not be looked at"),
            ("skipped", "places were looked at less than a minute ago"),
            ("left", "places left to the next sweep"),
            ("failed", "could not be acted on"),
        )
        if done.count(name)
    ]
    return "; ".join(parts)
