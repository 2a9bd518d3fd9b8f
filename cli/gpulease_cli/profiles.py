"""Deployed stacks that this user knows, in `$GPULEASE_HOME/config.toml`; written by `gpulease configure`, editable by
hand. The file holds no secret: requests are signed with the user's own AWS credentials."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gpulease_cli.errors import CliError

DEFAULT = "default"
LOCAL = "local"
"""Of GPULEASE_PROFILE: the server on this computer, whatever the file says."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One stack. `authorization` is IAM or JWT; `aws_profile` may be empty (the usual search for credentials)."""

    url: str
    authorization: str
    stack: str
    region: str
    secret_prefix: str
    aws_profile: str = ""


def path_in(home: Path) -> Path:
    """The file."""
    return home / "config.toml"


def check_name(name: str, field: str) -> str:
    """The name, if a profile may be called so. Raises CliError."""
    if name == LOCAL or not _NAME.fullmatch(name):
        raise CliError(f"{name!r} cannot name a profile; use letters, digits, - and _, and not {LOCAL!r}", field=field)
    return name


def read(home: Path) -> dict[str, Profile]:
    """All profiles by name; none where there is no file. Raises CliError for one that is not understood."""
    file = path_in(home)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CliError(f"cannot be read ({error}); mend or delete it", field=str(file)) from error
    return {name: _profile(file, name, values) for name, values in content.items()}


def write(home: Path, name: str, profile: Profile) -> Path:
    """Keep one profile beside the others; where it lies. Raises CliError."""
    profiles = read(home) | {name: profile}
    text = "# Written by `gpulease configure`.\n" + "".join(
        f"\n[{each}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in asdict(values).items())
        for each, values in profiles.items()
    )
    file = path_in(home)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise CliError(f"cannot be written: {error.strerror}", field=str(file)) from error
    return file


def _profile(file: Path, name: str, values: object) -> Profile:
    known = [field.name for field in fields(Profile)]
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise CliError(f"[{name}] must hold texts only", field=str(file))
    if unknown := sorted(set(values) - set(known)):
        raise CliError(f"[{name}] has an unknown entry {unknown[0]!r}; known: {', '.join(known)}", field=str(file))
    try:
        return Profile(**values)
    except TypeError:
        missing = [key for key in known if key not in values and key != "aws_profile"]
        raise CliError(f"[{name}] lacks {', '.join(missing)}; run `gpulease configure` anew", field=str(file)) from None
