"""`gpulease config`: what other programs on this computer need to know of your machines."""

from pathlib import Path

import click

from gpulease_cli import ssh_folder, ssh_hosts
from gpulease_cli.app import App
from gpulease_cli.options import api_options, json_option


@click.group("config")
def command() -> None:
    """Tell other programs on this computer of your machines.

    \b
    gpulease config ssh             # then: ssh train, scp train:file ., rsync, VS Code
    gpulease config ssh --remove
    """


@command.command("ssh")
@click.option("--remove", is_flag=True, help="Take the line out of ~/.ssh/config and delete the file.")
@click.option("--refresh", is_flag=True, hidden=True, help="Only the addresses; ssh itself runs it.")
@json_option
@api_options
def ssh(app: App, remove: bool, refresh: bool, as_json: bool) -> None:
    """Write an SSH config with every machine of yours, and include it in ~/.ssh/config.

    Addresses change with each pause, so ssh asks for the present one before it connects. A lease that was made on
    another computer is known here when this is run again.

    \b
    gpulease config ssh
    ssh train
    """
    if refresh:
        ssh_folder.write_config(app, app.client())
        return
    folder = ssh_folder.folder_of(app)
    file = folder / ssh_hosts.CONFIG
    own = Path(app.env.get("HOME") or "~").expanduser() / ".ssh" / "config"
    before = own.read_text(encoding="utf-8") if own.is_file() else ""
    if remove:
        after = ssh_hosts.without_include(before, file)
        if after != before:
            ssh_folder.write(own, after)
        file.unlink(missing_ok=True)
        (folder / ssh_hosts.MACHINES).unlink(missing_ok=True)
        hosts: list[ssh_hosts.Host] = []
    else:
        hosts = ssh_folder.write_config(app, app.client())
        after = ssh_hosts.with_include(before, file)
        if after != before:
            ssh_folder.write(own, after)
    if as_json:
        machines = [{"name": host.name, "address": host.address, "port": host.port} for host in hosts]
        app.print_json({"file": str(file), "removed": remove, "hosts": machines})
    elif remove:
        app.say(f"{own} includes it no longer")
    else:
        app.say(f"{file}: {', '.join(host.name for host in hosts) or 'no machine runs'}")
