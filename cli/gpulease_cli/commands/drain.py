"""`gpulease drain`: empty a deployment, and know when it may be deleted."""

from collections.abc import Iterator

import click

from gpulease_cli.app import App
from gpulease_cli.client import ApiProblem, ApiUnreachable, Client
from gpulease_cli.drain_views import DrainedThing, DrainView
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import DURATION, api_options, json_option
from gpulease_cli.text import duration, rate
from gpulease_cli.waiting import LONGEST_OUTAGE_SECONDS

PAUSE_SECONDS = 5.0
FEW_LINES = 20


@click.command("drain")
@click.option("--off", is_flag=True, help="Take new leases again.")
@click.option("--status", is_flag=True, help="Only say how far it is.")
@click.option("--wait/--no-wait", "wait", default=None, help="Wait until nothing is billed. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long; giving back goes on.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@api_options
def command(app: App, off: bool, status: bool, wait: bool | None, timeout: int | None, yes: bool, as_json: bool) -> int:
    """Refuse new leases, give back all that there are, and wait until nothing is billed.

    For admins: it ends everybody's leases, and everything on their disks is lost. Caches are shown with their price and
    never removed. Do this before you delete the stack. Exit code 0: nothing is billed any more; 1: something still is
    (caches, or with --no-wait and --status whatever is on its way out); 6: the time-out came first.

    \b
    gpulease drain
    gpulease drain --yes --timeout 30m --json
    gpulease drain --status
    gpulease drain --off
    """
    _check(app, off=off, status=status, wait=wait, timeout=timeout, yes=yes)
    client = app.client(timeout_seconds=60.0)
    if off:
        return _say_off(app, client.stop_draining(), as_json)
    if not status and not yes and app.interactive and not _agreed(app, client.drain_state()):
        app.note("Nothing was changed.")
        return ExitCode.NOT_AS_ASKED
    view = client.drain_state() if status else client.drain()
    code = ExitCode.OK
    if not status and wait is not False:
        view, code = _wait(app, client, view, timeout)
    if code is ExitCode.OK and (not view.done or view.caches):
        code = ExitCode.NOT_AS_ASKED
    if as_json:
        app.print_json(view.raw)
    else:
        for line in _lines(view):
            app.say(line)
    return code


def _check(app: App, *, off: bool, status: bool, wait: bool | None, timeout: int | None, yes: bool) -> None:
    if off and status:
        raise CliError("contradicts --status; give one of the two", field="--off")
    if (off or status) and (wait is not None or timeout is not None):
        raise CliError("there is nothing to wait for", field="--off" if off else "--status")
    if wait is False and timeout is not None:
        raise CliError("contradicts --no-wait; give one of the two", field="--timeout")
    if not (off or status or yes or app.interactive):
        raise CliError("needs --yes where nobody can be asked: it ends everybody's leases")


def _agreed(app: App, view: DrainView) -> bool:
    for name, state in view.leases[:FEW_LINES]:
        app.note(f"  {name}  {state}")
    what = f"{view.lease_count} leases" if view.lease_count != 1 else "1 lease"
    return app.confirm(f"Give back {what} of everybody and take no new ones? Everything on the disks is lost.")


def _wait(app: App, client: Client, view: DrainView, timeout: int | None) -> tuple[DrainView, ExitCode]:
    """Ask again until it is done. Each request also gives back what the one before did not get to."""
    began, told, outage_since = app.clock.elapsed_seconds(), "", None
    try:
        while not view.done:
            news = _progress(view)
            if news != told:
                app.note(news)
                told = news
            waited = app.clock.elapsed_seconds() - began
            if timeout is not None and waited >= timeout:
                app.error(f"--timeout: {duration(waited)} are over and it is not done; giving back goes on")
                return view, ExitCode.TIMED_OUT
            app.clock.sleep(PAUSE_SECONDS if timeout is None else min(PAUSE_SECONDS, timeout - waited))
            try:
                view, outage_since = client.drain(), None
            except (ApiUnreachable, ApiProblem) as error:
                if isinstance(error, ApiProblem) and error.status < 500 and error.status != 429:
                    raise
                outage_since = waited if outage_since is None else outage_since
                if waited - outage_since > LONGEST_OUTAGE_SECONDS:
                    raise
    except KeyboardInterrupt:
        app.note("Interrupted; giving back goes on without you, see `gpulease drain --status`")
        return view, ExitCode.INTERRUPTED
    return view, ExitCode.OK


def _progress(view: DrainView) -> str:
    leases, things = view.lease_count, view.still_billed_count
    open_ = "1 lease is open" if leases == 1 else f"{leases} leases are open"
    return f"{open_}, 1 thing is still billed" if things == 1 else f"{open_}, {things} things are still billed"


def _say_off(app: App, view: DrainView, as_json: bool) -> int:
    if as_json:
        app.print_json(view.raw)
    else:
        app.say("New leases are taken again.")
    return ExitCode.OK


def _lines(view: DrainView) -> Iterator[str]:
    """What is left, and what that means."""
    for name, state in view.leases[:FEW_LINES]:
        yield f"lease {name} is {state}"
    if view.lease_count > FEW_LINES:
        yield f"... and {view.lease_count - FEW_LINES} more leases"
    for thing in view.still_billed[:FEW_LINES]:
        yield f"still billed: {_thing(thing)}"
    if view.still_billed_count > FEW_LINES:
        yield f"... and {view.still_billed_count - FEW_LINES} more things"
    for cache in view.caches:
        yield f"still billed: cache {_thing(cache)}; remove it with `gpulease cache rm {cache.name}`"
    if not view.draining:
        yield "New leases are taken: the deployment is not being drained."
    elif not view.done:
        yield f"Not done: {_progress(view)} ({rate(view.price_per_hour_usd)}/h)."
    elif view.caches:
        yield "Apart from caches nothing is billed any more. Deleting the stack does not remove them."
    else:
        yield "Nothing is billed any more: the stack may be deleted."


def _thing(thing: DrainedThing) -> str:
    what = f"{thing.name} of {thing.owner}" if thing.name else thing.kind
    which = thing.provider_id or "(asked for, may exist)"
    error = f", {thing.last_error}" if thing.last_error else ""
    return f"{what} {thing.place} {which} ({rate(thing.price_per_hour_usd)}/h{error})"
