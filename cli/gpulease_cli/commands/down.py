"""`gpulease down`: give machines back."""

from collections.abc import Sequence

import click

from gpulease_cli import words
from gpulease_cli.app import App, names
from gpulease_cli.client import Client
from gpulease_cli.complete import lease_names
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import DURATION, api_options, json_option
from gpulease_cli.progress import progress
from gpulease_cli.resolve import resolve
from gpulease_cli.ssh_folder import addresses_changed
from gpulease_cli.text import cost, local_time
from gpulease_cli.views import LIVE_STATES, LeaseView
from gpulease_cli.waiting import Waiter, WaitTimedOut


@click.command("down")
@click.argument("leases", nargs=-1, metavar="NAME|ID...", shell_complete=lease_names)
@click.option("--all", "all_leases", is_flag=True, help="All leases that are yours.")
@click.option("--wait/--no-wait", "wait", default=None, help="Wait until each is proven gone. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long; giving back goes on.")
@click.option("--now", is_flag=True, help="Do not wait for caches to be saved.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@api_options
def command(
    app: App,
    leases: tuple[str, ...],
    all_leases: bool,
    wait: bool | None,
    timeout: int | None,
    now: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Give machines back and wait until they are gone.

    Everything on their disks is lost. A cache is saved and unmounted first, for 15 minutes at most; --now does not wait
    for that, and ends a waiting that has begun. A machine counts as billed until its absence is proven. On a terminal
    you are asked first; without one, only --all needs --yes.

    \b
    gpulease down train
    gpulease down train --now
    gpulease down train l-4kq7c2mzx5ab --yes
    gpulease down --all --yes --timeout 15m
    """
    if bool(leases) == all_leases:
        problem = (
            "contradicts naming leases; give one of the two" if leases else "nothing is named; name a lease, or --all"
        )
        raise CliError(problem, field="--all" if leases else "lease")
    if wait is False and timeout is not None:
        raise CliError("contradicts --no-wait; give one of the two", field="--timeout")
    if all_leases and not yes and not app.interactive:
        raise CliError("needs --yes where nobody can be asked", field="--all")
    client = app.client()
    found = _all(client) if all_leases else _named(client, leases)
    going = [lease for lease in found if not lease.released]
    if going and not yes and app.interactive and not _agreed(app, going):
        app.note("Nothing was given back.")
        return ExitCode.NOT_AS_ASKED
    # Each is asked for before any is waited for.
    found = [lease if lease.released else client.release(lease.id, now=now) for lease in found]
    _tell_of_caches(app, found)
    addresses_changed(app, client)
    code = ExitCode.OK
    if wait is not False and going:
        found, code = _wait(app, client, found, timeout)
    if as_json:
        app.print_json({"leases": [lease.raw for lease in found], "cursor": None})
    else:
        _tell(app, found)
    return code


def _all(client: Client) -> list[LeaseView]:
    return [client.lease(lease.id) for lease in client.leases(states=LIVE_STATES)]


def _named(client: Client, leases: Sequence[str]) -> list[LeaseView]:
    """All of them, each once. When one cannot be found nothing is given back."""
    found = [resolve(client, word) for word in leases]
    return list({lease.id: lease for lease in found}.values())


def _agreed(app: App, leases: Sequence[LeaseView]) -> bool:
    for lease in leases:
        app.note(f"  {lease.label}  {lease.id}  {lease.state}  {words.money(lease)}")
    return app.confirm(f"Give back {names([lease.label for lease in leases])}? Everything on the disks is lost.")


def _tell_of_caches(app: App, leases: Sequence[LeaseView]) -> None:
    for lease in leases:
        if lease.cache_saving_until is not None:
            app.note(
                f"{lease.label}: its cache is saved first, until {local_time(lease.cache_saving_until)} at most; its "
                f"machine is billed meanwhile. `gpulease down {lease.label} --now` does not wait for that"
            )


def _wait(
    app: App, client: Client, leases: Sequence[LeaseView], timeout: int | None
) -> tuple[list[LeaseView], ExitCode]:
    waiter = Waiter(app, client, leases, timeout)
    try:
        waiter.run(progress(app).know(leases, client.now()), lambda lease: lease.released)
    except KeyboardInterrupt:
        app.note("Interrupted; giving back goes on without you, see `gpulease ls`")
        return waiter.leases, ExitCode.INTERRUPTED
    except WaitTimedOut as error:
        app.error(error.line())
        return waiter.leases, ExitCode.TIMED_OUT
    return waiter.leases, ExitCode.OK


def _tell(app: App, leases: Sequence[LeaseView]) -> None:
    if not leases:
        app.say("No leases; there is nothing to give back.")
    for lease in leases:
        if lease.released:
            app.say(f"{lease.label} is released; it cost {cost(lease.cost_so_far_usd)}")
        else:
            billed = words.still_billed(lease.still_billed)
            app.say(f"{lease.label} is {lease.state}" + (f"; {billed}" if billed else ""))
