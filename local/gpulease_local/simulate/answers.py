"""Answers of a provider that is not itself: what gateways, throttles and half-broken services send."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpulease.providers.http import RawResponse

LATE_LIST_SECONDS = 60.0
"""How long a late list does not show what is new; half of the visibility window that the adapter states."""
_LISTS = {"/instances": "instances", "/bare-metals": "bare_metals", "/vpcs": "vpcs", "/blocks": "blocks"}
_REFUSALS: tuple[tuple[int, str], ...] = (
    (400, "The request was declined."),
    (409, "A conflicting change is in progress."),
    (422, "This cannot be done at the moment."),
    (500, "Unable to process the request right now."),
)
_DENIALS: tuple[tuple[int, str], ...] = ((404, "instance not found"), (404, "Nothing here."))
"""Of reads by id: the thing exists all the same (reported of fresh machines)."""


def _error(status: int, text: str, **headers: str) -> RawResponse:
    content = json.dumps({"error": text, "status": status}).encode()
    return RawResponse(status, {"content-type": "application/json", **headers}, content)


def throttled() -> RawResponse:
    """429; the call was not carried out."""
    return _error(429, "Too many requests.", **{"retry-after": "5"})


def gateway_page(status: int = 502) -> RawResponse:
    """A gateway's page in place of the API's answer."""
    page = f"<html><head><title>{status}</title></head><body>gateway</body></html>".encode()
    return RawResponse(status, {"content-type": "text/html"}, page)


def refused(method: str, path: str, draw: random.Random) -> RawResponse:
    """A refusal in words that nobody knows; for reads by id also a denial of what exists."""
    choices = _REFUSALS
    if method == "GET" and path.count("/") == 2 and path.startswith(("/instances/", "/bare-metals/")):
        choices = (*_REFUSALS, *_DENIALS)
    return _error(*draw.choice(choices))


def accepted() -> RawResponse:
    """204, with nothing behind it."""
    return RawResponse(204, {}, b"")


def wrong_shape(answer: RawResponse) -> RawResponse:
    """The same status, and a body that is JSON and not what was asked for."""
    return replace(answer, body=b'{"result": []}')


def late_list(answer: RawResponse, path: str, now: float, created_at: Callable[[str], float | None]) -> RawResponse:
    """The list without what was created in the last minute; other answers as they are."""
    key = _LISTS.get(path)
    if key is None or answer.status != 200:
        return answer
    page: dict[str, Any] = json.loads(answer.body)
    shown = [each for each in page[key] if not _is_fresh(created_at(each["id"]), now)]
    page["meta"]["total"] -= len(page[key]) - len(shown)
    page[key] = shown
    return replace(answer, body=json.dumps(page).encode())


def _is_fresh(created: float | None, now: float) -> bool:
    return created is not None and now - created < LATE_LIST_SECONDS
