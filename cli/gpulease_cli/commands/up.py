"""`gpulease up`: rent a machine."""

from pathlib import Path
from typing import Any

import click

from gpulease_cli import pausing, words
from gpulease_cli.app import App
from gpulease_cli.client import ApiProblem, ApiUnreachable, Client
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import DURATION, CountType, api_options, json_option, offer_options
from gpulease_cli.policy_options import policy_options
from gpulease_cli.problems import as_cli_error
from gpulease_cli.progress import progress
from gpulease_cli.request import LeaseRequest, build, from_file, from_options
from gpulease_cli.ssh_folder import addresses_changed
from gpulease_cli.text import clean, cost
from gpulease_cli.views import LeaseView, OffersView
from gpulease_cli.waiting import Waiter, WaitTimedOut


@click.command("up")
@click.option("-f", "--file", "file", metavar="FILE", help="Lease file (YAML, - for stdin); options override it.")
@click.option("--name", metavar="NAME", help="To call it by; made up when missing.")
@click.option("--resume", "resume_name", metavar="NAME", help="Resume your lease of this name; rent one if none is.")
@offer_options
@click.option(
    "--network-scope", type=click.Choice(["owner", "lease"]), help="One network for all yours there, or its own."
)
@click.option("--ssh-key", multiple=True, metavar="FILE|KEY", help="Public key. Default: your own, if there is one.")
@click.option("--start-script", metavar="FILE", help="Run once as root when the machine starts; - for stdin.")
@click.option("--image", metavar="IMAGE", help="Image of the provider; its default when missing.")
@click.option("--label", multiple=True, metavar="K=V")
@click.option("--max-duration", type=DURATION, metavar="TIME", help="Give it back after so long of running.")
@policy_options
@click.option("--max-attempts", type=CountType(1, 50), metavar="N", help="Offers to try. Default: 10.")
@click.option("--retry-not-ready", is_flag=True, default=None, help="Try the next offer if not ready in time.")
@click.option("--cache", metavar="NAME[:/PATH,...]", help="Keep these directories in a cache (gpulease cache create).")
@click.option("--cache-docker", is_flag=True, help="Keep Docker's own data in the cache too.")
@click.option("--dry-run", is_flag=True, help="Only show the offers that would be tried, in order.")
@click.option("--wait/--no-wait", "wait", default=None, help="Wait until it runs. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long; the lease goes on.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--idempotency-key", metavar="KEY", help="The same key again gives the same lease.")
@json_option
@api_options
def command(
    app: App,
    file: str | None,
    resume_name: str | None,
    dry_run: bool,
    wait: bool | None,
    timeout: int | None,
    yes: bool,
    idempotency_key: str | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Rent a machine and wait until it runs.

    On a terminal the offers are shown first and you are asked. With --yes, or without a terminal, nobody is asked.

    \b
    gpulease up --gpu A100 --gpu H100 --max-price 4 --name train
    gpulease up --gpu L40S --region ewr --start-script setup.sh --max-duration 8h --yes
    gpulease up --gpu A100 --idle 1h --budget 40 --keep-off '0 22 * * */0 8 * * *@Europe/Berlin'
    gpulease up -f lease.yaml --max-price 2.50 --dry-run
    gpulease up --gpu A16 --no-wait --json | jq -r .id
    gpulease up --resume train --gpu A100
    """
    if wait is False and timeout is not None:
        raise CliError("contradicts --no-wait; give one of the two", field="--timeout")
    if idempotency_key is not None and not _is_key(idempotency_key):
        raise CliError("has blanks or is too long; give 1 to 255 visible ASCII characters", field="--idempotency-key")
    if resume_name is not None:
        if values.get("name") not in (None, resume_name):
            raise CliError("contradicts --resume, which names the lease", field="--name")
        values["name"] = resume_name
    request = build(from_file(file) if file else {}, from_options(values))
    client = app.client()
    if resume_name is not None and not dry_run and (known := pausing.alive(client, resume_name)) is not None:
        return pausing.resumed(app, client, known, wait, timeout, as_json)
    request, key_note = _with_own_key(app, request, client, make=False)
    if dry_run:
        _show_preview(app, _preview(client, request), as_json)
        return ExitCode.OK
    if app.interactive and not yes and not _agreed(app, client, request):
        app.note("Nothing was rented.")
        return ExitCode.NOT_AS_ASKED
    if not key_note:
        request, key_note = _with_own_key(app, request, client, make=True)
    lease = _rent(app, client, request, idempotency_key or app.new_key())
    app.note(f"{lease.label}: accepted as {lease.id}")
    if key_note:
        app.note(f"{lease.label}: {key_note}")
    code = ExitCode.OK
    if wait is not False:
        lease, code = _wait(app, client, lease, timeout)
        addresses_changed(app, client)
    if as_json:
        app.print_json(lease.raw)
    elif code is ExitCode.OK:
        _tell(app, lease)
    return code


def _is_key(key: str) -> bool:
    return 0 < len(key) < 256 and all("!" <= character <= "~" for character in key)


def _with_own_key(app: App, request: LeaseRequest, client: Client, *, make: bool) -> tuple[LeaseRequest, str]:
    """The request with the user's own SSH key where it has none, and a line that says so. `make`: a user who has none
    gets one for this deployment."""
    from gpulease_cli import ssh_folder, ssh_keys

    if "ssh_keys" in request.body:
        return request, ""
    own = ssh_keys.own(Path(app.env.get("HOME") or "~").expanduser())
    path = own.path if own is not None else None
    if path is None and make:
        private = ssh_folder.make_identity(app, client)
        path = private.with_suffix(".pub") if private is not None else None
    if path is None:
        if not make:
            return request, ""
        return request, "warning: no SSH key (none in ~/.ssh, no --ssh-key); nobody will be able to log in"
    keys = list(own.keys) if own is not None else ssh_keys.resolve([str(path)])
    body = build(request.body, {"ssh_keys": keys}).body
    return LeaseRequest(body, request.from_options), f"SSH key: {path}"


def _preview(client: Client, request: LeaseRequest) -> OffersView:
    try:
        return client.preview(request.body)
    except ApiProblem as problem:
        raise as_cli_error(problem, request.call) from problem


def _show_preview(app: App, found: OffersView, as_json: bool) -> None:
    from gpulease_cli.offer_tables import print_catalogue, print_offers

    if as_json:
        app.print_json(found.raw)
        return
    print_offers(app, found.offers, total=found.total, numbered=True)
    print_catalogue(app, found.catalogue)
    for line in _when_paused(found):
        app.say(line)
    app.note("Nothing was rented.")


def _when_paused(found: OffersView) -> list[str]:
    """What a pause would do and cost; a line for each sort of machine where that differs."""
    text = clean(found.raw.get("when_paused") or "")
    first, *rest = text.split("; [")
    return [first, *(f"  or [{part}" for part in rest)] if text else []


def _agreed(app: App, client: Client, request: LeaseRequest) -> bool:
    from gpulease_cli.offer_tables import print_offers

    found = _preview(client, request)
    print_offers(app, found.offers, numbered=True, most=10, stderr=True)
    for line in _when_paused(found):
        app.note(line)
    return app.confirm(f"Rent the first of these that can be had ({words.offer(found.offers[0])} is tried first)?")


def _rent(app: App, client: Client, request: LeaseRequest, key: str) -> LeaseView:
    again = f"to ask again without renting twice: gpulease up ... --idempotency-key {key}"
    try:
        return client.create_lease(request.body, idempotency_key=key)
    except ApiProblem as problem:
        if problem.status >= 500 and problem.code not in {"catalogue_not_loaded", "no_provider_configured"}:
            app.note(f"It is not known whether a lease was made; see `gpulease ls`, or {again}")
        raise as_cli_error(problem, request.call) from problem
    except ApiUnreachable as error:
        if not error.sent:
            raise
        raise CliError(
            f"{error}; whether a lease was made is not known: see `gpulease ls`, or {again}",
            field="endpoint",
            code=ExitCode.UNREACHABLE,
        ) from error
    except KeyboardInterrupt:
        app.note(f"Interrupted while asking; a lease may have been made: see `gpulease ls`, or {again}")
        raise


def _wait(app: App, client: Client, lease: LeaseView, timeout: int | None) -> tuple[LeaseView, ExitCode]:
    """Wait until it runs or is gone, through interruptions. The code says how it ended."""
    waiter = Waiter(app, client, [lease], timeout)
    while True:
        try:
            waiter.run(progress(app), lambda lease: lease.released or lease.state == "running")
        except KeyboardInterrupt:
            match _on_interrupt(app, waiter.leases[0]):
                case "keep":
                    continue
                case "release":
                    waiter.leases[0] = client.release(lease.id)
                    waiter.run(progress(app), lambda lease: lease.released)
                    app.note(f"{lease.label} is released; it cost {cost(waiter.leases[0].cost_so_far_usd)}")
            return waiter.leases[0], ExitCode.INTERRUPTED
        except WaitTimedOut as error:
            app.error(error.line())
            return waiter.leases[0], ExitCode.TIMED_OUT
        break
    lease = waiter.leases[0]
    if not lease.released:
        return lease, ExitCode.OK
    how = "has run and is released" if lease.running_at else "ended without running"
    app.error(
        f"{lease.label}: {how} ({words.why(lease) or 'no reason given'}); `gpulease events {lease.id}` tells its story"
    )
    return lease, ExitCode.NOT_AS_ASKED


def _on_interrupt(app: App, lease: LeaseView) -> str:
    if app.interactive and lease.state != "releasing":
        question = f"\n{lease.label} is {lease.state}. [r]elease it, [k]eep waiting, or [l]eave it running? [l] "
        answers = {"": "leave", "l": "leave", "leave": "leave", "k": "keep", "keep": "keep"}
        try:
            answer = app.ask(question, answers | {"r": "release", "release": "release"})
        except KeyboardInterrupt:
            answer = "leave"
        if answer != "leave":
            return answer
    app.note(
        f"Interrupted; {lease.label} ({lease.id}) goes on and is billed: "
        f"`gpulease show {lease.label}`, give it back: `gpulease down {lease.label}`"
    )
    return "leave"


def _tell(app: App, lease: LeaseView) -> None:
    """What the user needs next."""
    pausing.tell_running(app, lease)
