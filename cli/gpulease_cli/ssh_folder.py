"""`$GPULEASE_HOME/ssh`: host keys, the include file, and one key pair per deployment for users who have none."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gpulease_cli import ssh_hosts
from gpulease_cli.app import App
from gpulease_cli.client import ApiProblem, ApiUnreachable, Client
from gpulease_cli.endpoint import home
from gpulease_cli.errors import CliError

_LIVING = ("requested", "provisioning", "running", "pausing", "paused", "resuming")


def folder_of(app: App) -> Path:
    return home(app.env).absolute() / "ssh"


def identity_of(app: App, client: Client) -> Path | None:
    """The deployment's private key on this computer, if it was made."""
    path = _key_path(app, client)
    return path if path is not None and path.is_file() else None


def make_identity(app: App, client: Client) -> Path | None:
    """The deployment's private key, made now if it is missing; None = it cannot be made here."""
    path = _key_path(app, client)
    if path is None or path.is_file():
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"gpulease {path.parent.name}", "-f", str(path)]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if done.returncode == 0 and path.is_file() else None


def keep_host_keys(folder: Path, hosts: Sequence[ssh_hosts.Host]) -> None:
    """Write what the machines' agents reported. Raises CliError."""
    file = folder / ssh_hosts.KNOWN_HOSTS
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    after = ssh_hosts.known_hosts(before, hosts)
    if after != before or not file.is_file():
        write(file, after)


def write_config(app: App, client: Client) -> list[ssh_hosts.Host]:
    """Write what ssh reads, with every machine that runs now; returns them. Raises CliError, and what the API says."""
    folder = folder_of(app)
    leases = list(client.leases(states=_LIVING))
    running = [client.lease(lease.id) for lease in leases if lease.state == "running"]
    hosts = [host for lease in running if (host := ssh_hosts.host_of(lease)) is not None]
    keep_host_keys(folder, hosts)
    write(folder / ssh_hosts.MACHINES, ssh_hosts.config(hosts, folder, identity_of(app, client)))
    names = [lease.name for lease in leases]
    write(folder / ssh_hosts.CONFIG, ssh_hosts.entry(names, folder, _refresh(app)))
    return hosts


def _refresh(app: App) -> list[str]:
    """The command that ssh runs before it connects. A token is never part of it: that is read from where it is kept."""
    own = [sys.executable, "-m", "gpulease_cli", "config", "ssh", "--refresh"]
    where = ["--endpoint", app.endpoint_option] if app.endpoint_option else []
    return ["env", f"GPULEASE_HOME={home(app.env).absolute()}", *own, *where]


def addresses_changed(app: App, client: Client) -> None:
    """Write the include file anew where there is one: what it names may be somebody else's by now (C40)."""
    file = folder_of(app) / ssh_hosts.CONFIG
    if not file.is_file():
        return
    try:
        write_config(app, client)
    except (CliError, ApiProblem, ApiUnreachable) as error:
        app.note(f"warning: {file} may name old addresses ({error}); run `gpulease config ssh`")


def write(file: Path, text: str) -> None:
    """The whole file, at once, readable by its user only. Raises CliError."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.gpulease-new")
        new.touch(mode=0o600)
        new.write_text(text, encoding="utf-8")
        # A config that is a link (dotfiles) stays one.
        new.replace(file.resolve())
    except OSError as error:
        raise CliError(f"cannot be written: {error.strerror}", field=str(file)) from error


def _key_path(app: App, client: Client) -> Path | None:
    try:
        deployment = str(client.health().get("deployment") or "")
    except (ApiProblem, ApiUnreachable):
        return None
    return folder_of(app) / deployment / "id_ed25519" if re.fullmatch(r"[a-z0-9]{1,64}", deployment) else None
