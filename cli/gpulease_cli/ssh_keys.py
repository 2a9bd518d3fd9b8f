"""Which public SSH keys a machine gets: those that were named, else the user's own."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpulease_cli.errors import CliError

_LITERAL = ("ssh-", "ecdsa-", "sk-")
_USUAL = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")
_LARGEST_FILE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class OwnKey:
    path: Path
    keys: tuple[str, ...]


def resolve(values: Iterable[str], *, field: str = "--ssh-key") -> list[str]:
    """The key lines of files and literal keys, each once. Raises CliError."""
    keys: list[str] = []
    for value in values:
        keys += [value.strip()] if value.startswith(_LITERAL) else _from_file(Path(value).expanduser(), field)
    return list(dict.fromkeys(keys))


def own(home: Path) -> OwnKey | None:
    """The first of the user's usual public keys that is there, or None."""
    for name in _USUAL:
        path = home / ".ssh" / name
        if path.is_file():
            return OwnKey(path, tuple(_from_file(path, "--ssh-key")))
    return None


def _from_file(path: Path, field: str) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise CliError(
            f"cannot read {path} ({error.strerror}); give a file with a public key, or the key itself", field=field
        ) from error
    if "PRIVATE KEY" in content:
        raise CliError(f"{path} is a private key and stays on this computer; give {path}.pub", field=field)
    lines = [line.strip() for line in content.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys or not all(key.startswith(_LITERAL) for key in keys):
        raise CliError(f"{path} holds no public key; give a file like ~/.ssh/id_ed25519.pub", field=field)
    return keys
