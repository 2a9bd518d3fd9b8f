"""Reads a request body before anything else looks at it: type, size, encoding, strict JSON.

Stricter than `json.loads`, because a request that rents machines must not be read in two ways: no duplicate names, no
NaN or infinity, an object at the top.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from gpulease.api.problems import Problem

MAX_BODY_BYTES = 256 * 1024
"""A start script of full size with every byte escaped as \\u00xx still fits."""


def checked_body(event: Mapping[str, Any]) -> str:
    """The body as text. Raises 415 (type), 413 (size), 400 (encoding)."""
    headers = event.get("headers") or {}
    content_type = next((v for k, v in headers.items() if k.lower() == "content-type"), "")
    media_type = str(content_type).partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "content_type",
            "the body must be JSON, sent with Content-Type: application/json",
            headers={"Accept-Post": "application/json"},
        )
    body = event.get("body") or ""
    if len(body) > MAX_BODY_BYTES * 4 // 3 + 4:
        raise _too_big()
    if not event.get("isBase64Encoded"):
        raw = body.encode("utf-8", "surrogatepass")
    else:
        try:
            raw = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _malformed("the body could not be decoded") from error
    if len(raw) > MAX_BODY_BYTES:
        raise _too_big()
    if not raw.strip():
        raise _malformed("the body is empty; send a JSON object, at least {}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"the body is not valid UTF-8 (byte {error.start})") from error


def read_json(text: str) -> dict[str, Any]:
    """The JSON object in the text. Raises 400 for anything else."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _malformed(f"the body is not JSON: {error.msg} ({where})") from error
    except RecursionError as error:
        raise _malformed("the JSON is nested too deeply") from error
    except ValueError as error:  # int() refuses thousands of digits
        raise _malformed("the JSON holds a number that is too long") from error
    if not isinstance(value, dict):
        raise _malformed("the body must be a JSON object")
    return value


def _malformed(detail: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "malformed_body", detail)


def _too_big() -> Problem:
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_big", f"the body may have {MAX_BODY_BYTES} bytes")


def _no_constant(name: str) -> float:
    raise _malformed(f"the body is not JSON: {name} is no JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _malformed("the JSON holds a number that is too big")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _malformed("the JSON names a field twice")
    return value
