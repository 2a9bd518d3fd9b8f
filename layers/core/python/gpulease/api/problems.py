"""How errors leave the API: problem details (RFC 9457), one shape for every status.

Invariants: a body never holds a stack trace, the text of an unexpected exception, a start script or an SSH key; a
field is named by its path in the request's JSON (`gpu_count`, `labels.team`, `gpu[0]`), and says what would be right.
"""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel, ConfigDict, Field

from gpulease.domain.cache_spec import FORMS
from gpulease.domain.policy import in_words
from gpulease.domain.spec import LeaseSpec

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:gpulease:problem:"
SECRET_FIELDS = ("start_script", "start_script_base64", "ssh_keys")
"""Never echoed: a script may hold passwords, and a private key may have been pasted for a public one."""
MAX_ECHO_CHARACTERS = 100

Scalar = str | int | float | bool | None


class FieldError(BaseModel):
    """One field that is wrong. `value` is left out where it must not or cannot usefully be repeated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(description="Path in the request's JSON, or the name of a query parameter or header")
    message: str = Field(description="What is wrong and what would be right")
    value: Scalar = None


class ProblemDetails(BaseModel):
    """RFC 9457 problem details. `code` is the stable, machine-readable name; texts may change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    errors: tuple[FieldError, ...] = ()
    request_id: str | None = None
    lease_id: str | None = None


class Problem(Exception):
    """Raised by routes and guards; turned into a response in one place."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str = "",
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        lease_id: str | None = None,
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.detail = status, code, detail
        self.errors, self.headers = tuple(errors), dict(headers or {})
        self.request_id, self.lease_id = request_id, lease_id

    def body(self) -> str:
        details = ProblemDetails(
            type=TYPE_PREFIX + self.code,
            title=self.status.phrase,
            status=self.status.value,
            code=self.code,
            detail=self.detail or (self.errors[0].message if len(self.errors) == 1 else ""),
            errors=self.errors,
            request_id=self.request_id,
            lease_id=self.lease_id,
        )
        members = details.model_dump(exclude_none=True)
        text = json.dumps(
            {k: v for k, v in members.items() if v not in ("", ())}, separators=(",", ":"), ensure_ascii=False
        )
        # A lone surrogate in something echoed must not break the answer; escaped, strict readers refuse it.
        return text.encode("utf-8", "replace").decode()

    def response(self) -> Response[str]:
        return Response(
            status_code=self.status.value,
            content_type=CONTENT_TYPE,
            body=self.body(),
            headers={**self.headers, "Cache-Control": "no-store"},
        )


def invalid(errors: Sequence[FieldError], code: str = "invalid_request", detail: str = "") -> Problem:
    """422 over one or more fields."""
    many = f"{len(errors)} fields are wrong" if len(errors) > 1 else ""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, code, detail or many, errors=errors)


def not_found(lease_id: str) -> Problem:
    """404 for a lease that does not exist or is somebody else's: both look the same."""
    return Problem(HTTPStatus.NOT_FOUND, "lease_not_found", f"there is no lease {echo(lease_id)}")


def unavailable(code: str, detail: str, *, retry_after_seconds: int, lease_id: str | None = None) -> Problem:
    """503 with Retry-After."""
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        code,
        detail,
        headers={"Retry-After": str(retry_after_seconds)},
        lease_id=lease_id,
    )


def echo(value: object) -> Scalar:
    """The value as far as it may be repeated in an answer: scalars only, long texts cut."""
    if isinstance(value, str):
        return value if len(value) <= MAX_ECHO_CHARACTERS else value[:MAX_ECHO_CHARACTERS] + "…"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float) and len(text := str(value)) <= MAX_ECHO_CHARACTERS and text not in _NO_JSON:
        return value
    return None


_LIMITS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
_NO_JSON = ("inf", "-inf", "nan")
_NAMED = re.compile(r"^(?:Value error, )?([a-z_]+): (.+)$", re.DOTALL)
"""A rule over several fields names the one to change first: `private_network: required contradicts …`."""

_FORMS = {
    "gpu": "a GPU model such as H100: letters, digits, blanks, . _ -, beginning with a letter or digit",
    "ssh_keys": "an OpenSSH public key on one line, such as `ssh-ed25519 AAAA… name`",
    "labels": "label names: 1-64 letters, digits, . _ -, beginning with a letter or digit; values without control"
    " characters",
    "image": "an image name: letters, digits, blanks, . _ : / -, beginning with a letter or digit",
    "Idempotency-Key": "1 to 255 visible ASCII characters, no blanks",
}
_WORD_FORM = "letters, digits, . _ -, beginning with a letter or digit"
_TYPE_TEXTS = {
    "missing": "is required",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be a JSON object",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode",
}


class _Where(NamedTuple):
    path: str
    top: str


def field_errors(errors: Sequence[Mapping[str, Any]], known: Sequence[str] = ()) -> list[FieldError]:
    """Validation errors in our words. `known`: names to suggest for an unknown field."""
    return [_field_error(error, known) for error in errors]


def _field_error(error: Mapping[str, Any], known: Sequence[str]) -> FieldError:
    where = _where(error.get("loc", ()))
    kind, message = str(error.get("type", "")), str(error.get("msg", "is not valid"))
    value = None if where.top in SECRET_FIELDS else echo(error.get("input"))
    if not where.path and (named := _NAMED.match(message)) and named[1] in {*LeaseSpec.model_fields, *known}:
        return FieldError(field=named[1], message=named[2])
    if kind == "extra_forbidden":
        # What stands in a field nobody knows may be a misspelt start script.
        return FieldError(field=where.path, message=unknown_name("field", where.path, known))
    if kind == "string_pattern_mismatch":
        form = FORMS.get(error.get("ctx", {}).get("pattern", "")) or _FORMS.get(where.top, _WORD_FORM)
        return FieldError(field=where.path, message=_with_value(f"must be {form}", value), value=value)
    if kind in _TYPE_TEXTS:
        return FieldError(field=where.path, message=_TYPE_TEXTS[kind], value=value)
    message = message.removeprefix("Value error, ").replace("Input should be", "must be")
    if kind in _LIMITS:
        if where.path.endswith("_seconds"):
            message += f" seconds ({in_words(int(error['ctx'][_LIMITS[kind]]))})"
        message = _with_value(message, value)
    elif kind in ("string_too_short", "string_too_long"):
        size = len(str(error.get("input")))
        message = message.replace("String should have", "must have") + (f", not {size}" if size else ", and is empty")
    return FieldError(field=where.path, message=message, value=value)


def _with_value(message: str, value: Scalar) -> str:
    """The same with what was given, where that may be repeated."""
    return message if value is None else f"{message}, not {value!r}"


def unknown_name(what: str, name: str, known: Sequence[str]) -> str:
    """`unknown field; did you mean gpu_count? known: …`"""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else ";"
    return f"unknown {what}{hint} known: {', '.join(known) or 'none'}"


def _where(loc: Sequence[str | int]) -> _Where:
    parts = list(loc)
    if parts and parts[0] in ("body", "query", "path", "header"):
        # The framework writes header names in lower case.
        parts = [str(parts[1]).title()] if parts[0] == "header" else parts[1:]
    parts = [part for part in parts if part != "[key]"]
    path = ""
    for part in parts:
        text = str(part)[:MAX_ECHO_CHARACTERS]
        path += f"[{part}]" if isinstance(part, int) else f".{text}" if path else text
    return _Where(path, str(parts[0]) if parts else "")
