"""Where the API is and how to prove who we are.

In order: options, environment, the profile of a deployed stack, the file that `gpulease local` writes. A token found in
that file is sent only to the address found in it, so naming another endpoint cannot carry the local token there. Where
both a stack is configured and a local server runs, nothing is guessed: one of them rents for real money.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpulease_cli import profiles
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`source` says for people where the address was found. `token` may be empty. `profile`: of a deployed stack."""

    url: str
    token: str
    source: str
    profile: profiles.Profile | None = None

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in _LOOPBACK

    @property
    def is_signed(self) -> bool:
        """Whether requests are signed with AWS credentials; otherwise the token says who asks."""
        return self.profile is not None and self.profile.authorization == "IAM" and not self.token

    @property
    def sends_token_in_the_clear(self) -> bool:
        return bool(self.token) and self.url.startswith("http://") and not self.is_local

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r}, source={self.source!r})"


def home(env: Mapping[str, str]) -> Path:
    """The folder that holds what gpulease keeps on this computer."""
    return Path(env.get("GPULEASE_HOME") or "~/.gpulease").expanduser()


def discover(env: Mapping[str, str], *, url: str | None = None, token: str | None = None) -> Endpoint:
    """Find the API. Raises CliError when no address is given anywhere, or one is not an http(s) address."""
    path = home(env) / "local" / "api.json"
    if url or env.get("GPULEASE_ENDPOINT"):
        found = url or env["GPULEASE_ENDPOINT"]
        field = "--endpoint" if url else "GPULEASE_ENDPOINT"
        chosen = _checked(found, field)
        secret = token or env.get("GPULEASE_TOKEN") or ""
        if not secret:
            local = _read(path, must_be_right=False)
            secret = local.token if local and local.url == chosen else ""
        return Endpoint(chosen, secret, field)
    profile = chosen_profile(env)
    if profile is not None:
        if not env.get("GPULEASE_PROFILE") and path.exists():
            raise CliError(
                f"both the stack {profile.stack} is configured and a server on this computer runs ({path}); "
                "say which with GPULEASE_PROFILE=default or GPULEASE_PROFILE=local",
                field="endpoint",
            )
        source = str(profiles.path_in(home(env)))
        return Endpoint(_checked(profile.url, source), token or env.get("GPULEASE_TOKEN") or "", source, profile)
    local = _read(path, must_be_right=True)
    if local is None:
        raise CliError(
            f"no address of an API (tried --endpoint, GPULEASE_ENDPOINT, {profiles.path_in(home(env))} and {path}); "
            "start one on this computer with `gpulease local`, or use a stack with `gpulease configure`",
            field="endpoint",
            code=ExitCode.UNREACHABLE,
        )
    return Endpoint(local.url, token or env.get("GPULEASE_TOKEN") or local.token, local.source)


def chosen_profile(env: Mapping[str, str]) -> profiles.Profile | None:
    """The stack to talk to: the one named by GPULEASE_PROFILE, else "default"; None = the server on this computer.

    Raises CliError for a name that is not configured.
    """
    wanted = env.get("GPULEASE_PROFILE", "")
    if wanted == profiles.LOCAL:
        return None
    known = profiles.read(home(env))
    if wanted and wanted not in known:
        names = ", ".join([*known, profiles.LOCAL])
        raise CliError(f"{wanted!r} is not configured; known: {names}", field="GPULEASE_PROFILE")
    return known.get(wanted or profiles.DEFAULT)


def _checked(url: str, field: str) -> str:
    try:
        parts = urlsplit(url)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        right = False
    if not right:
        raise CliError(f"{url!r} is not an address; give one like http://127.0.0.1:8765 or https://host", field=field)
    return url.rstrip("/")


def _read(path: Path, *, must_be_right: bool) -> Endpoint | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Endpoint(_checked(str(content["url"]), str(path)), str(content["token"]), str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, CliError) as error:
        if not must_be_right:
            return None
        raise CliError(
            f"cannot be read ({error}); start `gpulease local` again, or give --endpoint and --token",
            field=str(path),
            code=ExitCode.UNREACHABLE,
        ) from error
