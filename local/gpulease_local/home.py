"""Where one computer keeps its things, and that only its user can read them and only one server uses them.

Invariants: folders are 0700 and files with secrets 0600 from their first byte on; files are replaced whole (a reader or
a crash sees the old or the new one); the lock is the operating system's, so it ends with the process, however it ends.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

_DEPLOYMENT = re.compile(r"[a-z0-9]{4,32}")


class HomeRefused(Exception):
    """The data folder cannot be used as it is; the message says what to do."""


def home_of(env: Mapping[str, str]) -> Path:
    """`$GPULEASE_HOME`, by default `~/.gpulease`."""
    return Path(env.get("GPULEASE_HOME") or "~/.gpulease").expanduser()


def private_folder(path: Path) -> Path:
    """Make the folder, readable by its user only."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Put a file in place whole, readable by its user only, and make it last over a crash."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_private(path: Path) -> str:
    """The file's text without the last line end. Raises FileNotFoundError; HomeRefused when others may read it."""
    if path.stat().st_mode & 0o077:
        raise HomeRefused(f"{path} can be read by others: run `chmod 600 {path}`")
    return path.read_text(encoding="utf-8").strip()


def kept_token(path: Path, new: Callable[[], str]) -> str:
    """The token in the file; made at first use."""
    try:
        token = read_private(path)
    except FileNotFoundError:
        token = ""
    if len(token) < 32:
        token = new()
        write_private(path, token + "\n")
    return token


def kept_deployment(path: Path, provider: str, new: Callable[[], str]) -> str:
    """This folder's deployment id, made once. Raises HomeRefused when the folder belongs to another provider."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        deployment, owner = str(kept["deployment"]), str(kept["provider"])
    except FileNotFoundError:
        deployment, owner = new()[:12], provider
        write_private(path, json.dumps({"deployment": deployment, "provider": provider}) + "\n")
    except (ValueError, KeyError, TypeError) as error:
        raise HomeRefused(f"{path} is not readable: {error}") from error
    if owner != provider:
        raise HomeRefused(f"{path.parent} holds leases at {owner}, not {provider}: give another data folder")
    if not _DEPLOYMENT.fullmatch(deployment):
        raise HomeRefused(f"{path}: {deployment!r} is no deployment id")
    return deployment


class RollingFile:
    """A text file for one line after the other; at `max_bytes` it becomes `<name>.1` and a new one begins."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = self._opened()

    def write(self, text: str) -> None:
        """Add text, which is on its way to the disk when this returns."""
        if self._file.tell() >= self._max_bytes:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._opened()
        self._file.write(text)
        self._file.flush()

    def close(self) -> None:
        """Close the present file."""
        self._file.close()

    def _opened(self) -> IO[str]:
        file = self._path.open("a", encoding="utf-8")
        self._path.chmod(0o600)
        return file


class DataLock:
    """Holds a data folder for this process. Raises HomeRefused while another process has it."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise HomeRefused(
                f"another gpulease (process {holder}) uses {path.parent}: stop it, or give another data folder"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let others have the folder."""
        self._file.close()
