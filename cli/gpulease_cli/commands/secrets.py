"""`gpulease secrets`: the providers' keys, where the functions (or the local server) look for them."""

import os
import re
import sys
from pathlib import Path

import click

from gpulease_cli.app import App
from gpulease_cli.aws import Aws
from gpulease_cli.endpoint import chosen_profile, home
from gpulease_cli.errors import CliError

_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_KEY = 4096


@click.group("secrets")
def command() -> None:
    """Keep the keys of provider accounts.

    \b
    gpulease secrets set vultr              # asks for the key, without showing it
    gpulease secrets set vultr < key.txt
    """


@command.command("set")
@click.argument("account", metavar="ACCOUNT")
@click.option("--local", "on_this_computer", is_flag=True, help="For `gpulease local`, though a stack is configured.")
@click.pass_obj
def set_key(app: App, account: str, on_this_computer: bool) -> None:
    """Store the key of a provider account, such as vultr.

    \b
    gpulease secrets set vultr
    gpulease secrets set vultr --local
    """
    if not _ACCOUNT.fullmatch(account):
        raise CliError(f"{account!r} is no name of an account; use small letters, digits and -", field="ACCOUNT")
    profile = None if on_this_computer else chosen_profile(app.env)
    key = _typed(app, account)
    if profile is None:
        app.say(f"stored in {_write_private(home(app.env) / 'keys', account, key)}, which only you can read")
        return
    name = f"{profile.secret_prefix}/{account}"
    Aws(profile.region, profile.aws_profile).store_secret(name, key)
    app.say(f"stored as {name} in Secrets Manager ({profile.region}); functions use it within five minutes")


def _typed(app: App, account: str) -> str:
    """The key: typed without being shown, or the whole of what is piped in. Never an argument: others see those."""
    if app.interactive:
        key = str(click.prompt(f"Key of {account}", hide_input=True, err=True))
    else:
        key = sys.stdin.read(_LONGEST_KEY + 1)
    key = key.strip()
    if not key or len(key) > _LONGEST_KEY or any(not character.isprintable() for character in key):
        raise CliError("must be one line of printable characters; nothing was stored", field="key")
    return key


def _write_private(folder: Path, account: str, key: str) -> Path:
    file = folder / account
    new = folder / f".{account}.new"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        # Made with its mode: a file that is narrowed afterwards can be read by others for a moment.
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(key + "\n")
        new.replace(file)
    except OSError as error:
        raise CliError(f"cannot be written: {error.strerror}", field=str(file)) from error
    return file
