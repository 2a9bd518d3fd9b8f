"""`gpulease ssh`: a shell on a lease's machine."""

import os

import click

from gpulease_cli import ssh_folder, ssh_hosts
from gpulease_cli.app import App
from gpulease_cli.complete import lease_names
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import api_options
from gpulease_cli.resolve import resolve
from gpulease_cli.views import LeaseView


@click.command("ssh", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--print", "only_print", is_flag=True, help="Print the ssh command instead.")
@api_options
def command(app: App, lease: str, words: tuple[str, ...], only_print: bool) -> int:
    """Open a shell on a machine, or run a command there. Its host key is the one that its agent reported.

    Options of ssh itself may follow the name.

    \b
    gpulease ssh train
    gpulease ssh train nvidia-smi
    gpulease ssh train -L 8888:localhost:8888
    gpulease ssh --print train
    """
    if words and words[0].startswith("--"):
        # Those of `ssh` itself have one dash.
        raise CliError(f"{words[0]!r} belongs before the name: gpulease ssh {words[0]} {lease}")
    client = app.client()
    found = resolve(client, lease)
    host = ssh_hosts.host_of(found)
    if host is None:
        raise CliError(_why_not(found), field="lease", code=ExitCode.REFUSED)
    folder = ssh_folder.folder_of(app)
    ssh_folder.keep_host_keys(folder, [host])
    line = ssh_hosts.command(host, folder, ssh_folder.identity_of(app, client), words)
    if only_print:
        import shlex

        app.say(shlex.join(line))
        return ExitCode.OK
    try:
        os.execvp(line[0], line)  # noqa: S606
    except OSError as error:
        raise CliError(f"cannot be started ({error.strerror}); is it installed?", field="ssh") from error


def _why_not(lease: LeaseView) -> str:
    if lease.state == "paused":
        return f"{lease.label} is paused; `gpulease resume {lease.label}` brings it back"
    if lease.state == "running":
        return f"{lease.label} has no address that can be reached"
    waiting = f", waiting for {lease.waiting_for}" if lease.waiting_for else ""
    return f"{lease.label} is {lease.state}{waiting}; a shell needs a running machine"
