"""Waiting for a pause or a resume: shared by `pause`, `resume` and `up --resume`."""

from gpulease_cli import words
from gpulease_cli.app import App
from gpulease_cli.client import Client
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.progress import progress
from gpulease_cli.ssh_folder import addresses_changed
from gpulease_cli.text import local_time
from gpulease_cli.views import LeaseView
from gpulease_cli.waiting import Waiter, WaitTimedOut

STARTING = ("requested", "provisioning")
ALIVE = (*STARTING, "pausing", "paused", "resuming", "running")
UNDER_WAY = (*STARTING, "pausing", "resuming", "releasing")


def wait(app: App, client: Client, lease: LeaseView, timeout: int | None, wanted: str) -> tuple[LeaseView, ExitCode]:
    """Wait until it is at rest. The code says whether that is what was `wanted`."""
    waiter = Waiter(app, client, [lease], timeout)
    try:
        waiter.run(progress(app).know([lease], client.now()), lambda lease: lease.state not in UNDER_WAY)
    except KeyboardInterrupt:
        app.note(f"Interrupted; it goes on without you, see `gpulease show {lease.label}`")
        return waiter.leases[0], ExitCode.INTERRUPTED
    except WaitTimedOut as error:
        app.error(error.line())
        return waiter.leases[0], ExitCode.TIMED_OUT
    lease = waiter.leases[0]
    if lease.state == wanted:
        return lease, ExitCode.OK
    app.error(f"{lease.label} is {lease.state}: {_why(lease)}; `gpulease events {lease.id}` tells its story")
    return lease, ExitCode.NOT_AS_ASKED


def _why(lease: LeaseView) -> str:
    if lease.state == "paused" and lease.pause.resume_failed:
        return f"the resume did not work ({lease.pause.resume_failed}), nothing was deleted"
    if lease.state == "running" and lease.warnings:
        return lease.warnings[-1]
    return words.why(lease) or "no reason given"


def alive(client: Client, name: str) -> LeaseView | None:
    """The user's lease of this name that is not being given back; None = there is none. Raises CliError: several."""
    found = list(client.leases(states=ALIVE, name=name))
    if len(found) > 1:
        ids = ", ".join(lease.id for lease in found)
        raise CliError(f"{len(found)} leases are called {name!r}; resume one by its id: {ids}", field="--resume")
    return found[0] if found else None


def resumed(app: App, client: Client, lease: LeaseView, waits: bool | None, timeout: int | None, as_json: bool) -> int:
    """`up --resume` of a lease that is there: let it run, in whichever of these states it is."""
    if lease.state == "pausing":
        app.note(f"{lease.label}: is being paused; it is resumed after that")
        lease, code = wait(app, client, lease, timeout, "paused")
        if code is not ExitCode.OK:
            return code
    if lease.state not in STARTING:
        lease = client.resume(lease.id)
    return followed(app, client, lease, "running", waits, timeout, as_json)


def followed(
    app: App, client: Client, lease: LeaseView, wanted: str, waits: bool | None, timeout: int | None, as_json: bool
) -> int:
    """Wait for a pause or a resume that was just asked for, unless that is not wanted, and tell what came of it."""
    code = ExitCode.OK
    if waits is not False:
        lease, code = wait(app, client, lease, timeout, wanted)
        if wanted == "running":
            # Its address is another one than before.
            addresses_changed(app, client)
    if as_json:
        app.print_json(lease.raw)
    elif code is ExitCode.OK:
        (tell_paused if wanted == "paused" else tell_running)(app, lease)
    return code


def tell_paused(app: App, lease: LeaseView) -> None:
    """What it still costs, until when it stays, and how it goes on."""
    app.say(f"{lease.label} is {lease.state}")
    if lease.state == "paused":
        app.say(f"  billed:     {words.billed_while_paused(lease.pause.billed)}")
        if lease.pause.release_at is not None:
            app.say(f"  stays until {local_time(lease.pause.release_at)}, then it is given back")
        app.say(f"  resume:     gpulease resume {lease.label}")
    app.say(f"  give back:  gpulease down {lease.label}")


def tell_running(app: App, lease: LeaseView) -> None:
    """How to reach it: its address is another one than before."""
    place = f" on {words.offer(lease.offer)}" if lease.offer else ""
    app.say(f"{lease.label} is {lease.state}{place}")
    if lease.ssh or lease.address:
        app.say(f"  connect:    {lease.ssh or lease.address}")
    if lease.state != "running":
        app.say(f"  follow:     gpulease events --follow {lease.label}")
    elif lease.next_text:
        app.say(f"  next:       {lease.next_text}{f' ({local_time(lease.next_at)})' if lease.next_at else ''}")
    app.say(f"  give back:  gpulease down {lease.label}")
