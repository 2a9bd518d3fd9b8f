"""How to reach a lease's machine by SSH: one description for `gpulease ssh` and for the file that `ssh` itself reads.

Invariants: a machine is known by its lease and attempt and never by its address, which belongs to somebody else after a
pause; host keys that the machine's agent reported are the only right ones. What comes from the API is checked before
it reaches a file that ssh reads.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from gpulease_cli.views import LeaseView

USER = "root"
KNOWN_HOSTS = "known_hosts"
CONFIG = "config"
MACHINES = "machines"
"""What `CONFIG` includes at the moment of a connection."""
_WRITTEN = "# Written by `gpulease config ssh`; changes are lost.\n"
_NOT_IN_EXEC = "\"'\\"
"""ssh takes the command between double quotes, of which older ones know no way to write one, nor a backslash."""
_KEY = re.compile(r"(ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+={0,3}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Host:
    """`host_keys` may be empty: then the first key seen under this alias is kept."""

    name: str
    alias: str
    address: str
    port: int
    host_keys: tuple[str, ...]

    def options(self, folder: Path, identity: Path | None) -> list[tuple[str, str]]:
        """ssh's own options for this machine."""
        options = [
            ("HostKeyAlias", self.alias),
            ("UserKnownHostsFile", _without_tokens(folder / KNOWN_HOSTS)),
            ("StrictHostKeyChecking", "yes" if self.host_keys else "accept-new"),
        ]
        if identity is not None:
            options.append(("IdentityFile", _without_tokens(identity)))
        return options


def host_of(lease: LeaseView) -> Host | None:
    """The machine of a running lease; None = it has no address that can be reached."""
    try:
        address = str(ip_address(lease.address))
    except ValueError:
        return None
    if lease.state != "running" or not _NAME.fullmatch(lease.name):
        return None
    agent = lease.raw.get("agent")
    told = agent.get("host_keys") if isinstance(agent, dict) else None
    keys = [found.group() for key in told or () if isinstance(key, str) and (found := _KEY.match(key))]
    number = lease.attempts[-1].number if lease.attempts else 1
    return Host(
        name=lease.name,
        alias=f"gpulease-{lease.id}.{number}",
        address=address,
        port=_port(lease.ssh),
        host_keys=tuple(dict.fromkeys(keys)),
    )


def command(host: Host, folder: Path, identity: Path | None, words: Sequence[str]) -> list[str]:
    """The ssh command line."""
    options = [f"-o{name}={_quoted(value)}" for name, value in host.options(folder, identity)]
    return ["ssh", *options, "-p", str(host.port), f"{USER}@{host.address}", *words]


def known_hosts(before: str, hosts: Iterable[Host]) -> str:
    """The file with the reported keys of these machines; lines of other machines, and of unreported keys, stay."""
    lines = [line for line in before.splitlines() if line.strip()]
    for host in hosts:
        if host.host_keys:
            lines = [line for line in lines if line.split(" ", 1)[0] != host.alias]
            lines += [f"{host.alias} {key}" for key in host.host_keys]
    return "".join(f"{line}\n" for line in lines)


def config(hosts: Sequence[Host], folder: Path, identity: Path | None) -> str:
    """`ssh NAME` and `ssh gpulease-NAME` for every machine that runs."""
    text = _WRITTEN
    for host in hosts:
        text += f"\nHost gpulease-{host.name} {host.name}\n"
        pairs = [("HostName", host.address), ("Port", str(host.port)), ("User", USER)]
        text += "".join(f"  {name} {value}\n" for name, value in pairs)
        text += "".join(f"  {name} {_quoted(value)}\n" for name, value in host.options(folder, identity))
    return text


def entry(names: Iterable[str], folder: Path, refresh: Sequence[str]) -> str:
    """The include file: who connects to one of these asks for its present address first. Where that cannot be had ssh
    knows no address at all, and asks at none (C40)."""
    include = f"Include {_quoted(str(folder / MACHINES))}\n"
    if any(character in word for word in refresh for character in _NOT_IN_EXEC):
        return f"{_WRITTEN}\n{include}"
    known = ",".join(["gpulease-*", *sorted({name for name in names if _NAME.fullmatch(name)})])
    return f'{_WRITTEN}\nMatch originalhost {known} exec "{shlex.join(refresh).replace("%", "%%")}"\n  {include}'


def with_include(user_config: str, file: Path) -> str:
    """The user's own ssh config with our file included, first of all so that it holds for all hosts; once."""
    line = include_line(file)
    return user_config if line in user_config.splitlines() else f"{line}\n{user_config}"


def without_include(user_config: str, file: Path) -> str:
    """The user's own ssh config as it was."""
    line = include_line(file)
    return "".join(kept for kept in user_config.splitlines(keepends=True) if kept.rstrip("\r\n") != line)


def include_line(file: Path) -> str:
    return f"Include {_quoted(str(file))}"


def _without_tokens(path: Path) -> str:
    """A percent sign begins one of ssh's own words."""
    return str(path).replace("%", "%%")


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value


def _port(ssh: str) -> int:
    found = re.search(r"-p (\d{1,5})\b", ssh)
    return int(found.group(1)) if found else 22
