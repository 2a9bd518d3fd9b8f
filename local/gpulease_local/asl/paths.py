"""Reference paths, payload templates and JSON values.

Invariants: a JSON value is never changed in place (writes copy the objects along the path), so states, retries
and stores may share values; a path that leads nowhere is an error, never a silent null.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gpulease_local.asl.errors import DATA_LIMIT_EXCEEDED, RESULT_PATH_MATCH_FAILURE, RUNTIME, StateError

PAYLOAD_LIMIT_BYTES = 262_144  # https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_\-]*)|\[(\d+)\]|\['([^'\]]+)'\]")
_MISSING = object()

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
decode_json = json.JSONDecoder().decode


class Scope(Protocol):
    """Whatever can build the context object (`$$`); built only when a path asks for it."""

    def context(self) -> dict[str, Any]:
        """Return the context object."""


# A compiled path or template: (input of the state, scope) -> value.
Reader = Callable[[Any, Scope], Any]


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """A path such as `$`, `$.a.b[0]`, `$['a']` or `$$.Execution.Name`."""

    text: str
    steps: tuple[str | int, ...]
    of_context: bool

    def find(self, data: Any, scope: Scope) -> Any:
        """Return the value at the path, or the module's marker for "not there" (see `is_missing`)."""
        value: Any = scope.context() if self.of_context else data
        try:
            for step in self.steps:
                if step.__class__ is int and not isinstance(value, list):
                    return _MISSING  # a position in a text would be a character
                value = value[step]
        except (KeyError, IndexError, TypeError):
            return _MISSING
        return value

    def read(self, data: Any, scope: Scope) -> Any:
        """Return the value at the path; States.Runtime when the path leads nowhere."""
        value = self.find(data, scope)
        if value is _MISSING:
            raise StateError(RUNTIME, f"The path {self.text} leads to nothing in the input")
        return value

    def write(self, data: Any, value: Any) -> Any:
        """Return `data` with `value` at the path; missing objects are made, nothing is changed in place."""
        return _write(data, self.steps, value, self.text) if self.steps else value


def is_missing(value: Any) -> bool:
    """Tell whether `find` found nothing."""
    return value is _MISSING


def parse_path(text: str) -> ReferencePath:
    """Compile a reference path; ValueError for anything outside the subset (wildcards, filters, slices)."""
    of_context = text.startswith("$$")
    rest = text[2:] if of_context else text[1:]
    if not text.startswith("$"):
        raise ValueError(f"{text!r} is not a path")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise ValueError(f"{text!r} is outside the supported paths ($, $.a.b, $.a[0], $['a'], $$.…)")
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else name or quoted)
        at = match.end()
    return ReferencePath(text, tuple(steps), of_context)


def compile_template(template: Any) -> Reader:
    """Compile Parameters or ResultSelector; ValueError for a bad path or an intrinsic function."""
    if isinstance(template, dict):
        return _compile_object(template)
    if isinstance(template, list):
        items = [compile_template(item) for item in template]
        return lambda data, scope: [item(data, scope) for item in items]
    return lambda data, scope: template


def has_paths(template: Any) -> bool:
    """Tell whether a template reads anything (has a key that ends in `.$`)."""
    if isinstance(template, dict):
        return any(key.endswith(".$") or has_paths(value) for key, value in template.items())
    return isinstance(template, list) and any(has_paths(item) for item in template)


def check_size(text: str, what: str) -> None:
    """Raise States.DataLimitExceeded when the JSON text is over 256 KB of UTF-8."""
    if len(text) * 4 > PAYLOAD_LIMIT_BYTES and len(text.encode()) > PAYLOAD_LIMIT_BYTES:
        raise StateError(DATA_LIMIT_EXCEEDED, f"{what} is larger than {PAYLOAD_LIMIT_BYTES} bytes")


def _compile_object(template: dict[str, Any]) -> Reader:
    fields: list[tuple[str, Reader]] = []
    for key, value in template.items():
        if not key.endswith(".$"):
            fields.append((key, compile_template(value)))
        elif not isinstance(value, str):
            raise ValueError(f"{key} must be a path")
        elif value.startswith("States."):
            raise ValueError(f"{key}: intrinsic functions are not supported ({value})")
        else:
            fields.append((key[:-2], parse_path(value).read))
    if len({name for name, _ in fields}) != len(fields):
        raise ValueError("a field is given twice, with and without .$")
    if not has_paths(template):
        return lambda data, scope: template
    return lambda data, scope: {name: read(data, scope) for name, read in fields}


def _write(data: Any, steps: tuple[str | int, ...], value: Any, text: str) -> Any:
    if not isinstance(data, dict):
        raise StateError(RESULT_PATH_MATCH_FAILURE, f"{text} cannot be written into a value that is no object")
    first, rest = steps[0], steps[1:]
    copy = dict(data)
    copy[str(first)] = _write(data.get(str(first), {}), rest, value, text) if rest else value
    return copy
