"""Strings that must stay where they are, and what looks for them everywhere else.

A canary is found however it was written: as it is, in base64 at any offset, twice in base64 (a start script inside
user data inside a request), in hex or percent-encoded.
"""

import base64
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote


class Canaries:
    """`secrets` by name. `look(place, thing)` notes in `found` which of them the thing holds."""

    def __init__(self, **secrets: str) -> None:
        self.secrets = secrets
        self._forms = {name: tuple(_forms(text)) for name, text in secrets.items()}
        self.found: set[tuple[str, str]] = set()
        self.looked: dict[str, int] = {}

    def look(self, place: str, thing: object) -> None:
        """Search text, bytes or anything that can be written as JSON or repr."""
        self.looked[place] = self.looked.get(place, 0) + 1
        text = _text(thing)
        self.found |= {(place, name) for name, forms in self._forms.items() if any(form in text for form in forms)}

    def found_in(self, place: str) -> set[str]:
        """Names of what was found there."""
        return {name for where, name in self.found if where == place}


class LookingHandler(logging.Handler):
    """Looks at each line of the process's logging, arguments and traceback included."""

    def __init__(self, canaries: Canaries) -> None:
        super().__init__(logging.DEBUG)
        self._canaries = canaries

    def emit(self, record: logging.LogRecord) -> None:
        """Look at it."""
        self._canaries.look("logging", f"{logging.Formatter().format(record)} {vars(record)!r}")


def _text(thing: object) -> str:
    if isinstance(thing, str):
        return thing
    if isinstance(thing, bytes):
        return thing.decode("utf-8", "replace")
    return f"{json.dumps(thing, default=repr, ensure_ascii=False)} {thing!r}"


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode()
    yield from {secret, quote(secret), raw.hex(), repr(secret)[1:-1]}
    for once in _in_base64(raw):
        yield once
        yield from _in_base64(once.encode())


def _in_base64(raw: bytes) -> list[str]:
    """The middle of it in base64, as it looks at each of the three offsets."""
    return [base64.b64encode(b"\0" * offset + raw).decode()[4 if offset else 0 : -4] for offset in range(3)]


def api_answer(answer: Any) -> Any:
    """What the API function returned, as far as a caller sees it."""
    return {name: answer.get(name) for name in ("statusCode", "headers", "body")}
