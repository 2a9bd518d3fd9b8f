"""Answers of a provider that is not itself: what gateways, throttles and half-broken services send.

The storm says what goes wrong; how that looks is each provider's own: `Answers`, here Vultr's.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from gpulease.providers.http import Fault, RawResponse, TransportError

from gpulease_local.simulate.effects import Do, Effect

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


class Answers(Protocol):
    """How a provider's misbehaviour looks to its client. Answers are of the provider's own type."""

    def cut(self, seconds: float, text: str, *, sent: bool = True) -> NoReturn:
        """No answer in so many seconds. `sent`: it may have arrived."""
        ...

    def throttled(self, effect: Effect) -> Any:
        """Too many requests; the call was not carried out."""
        ...

    def gateway(self, status: int = 502, seconds: float = 0.0) -> Any:
        """A gateway's page in place of the API's answer."""
        ...

    def refused(self, effect: Effect, draw: random.Random) -> Any:
        """A refusal in words that nobody knows; for reads by id also a denial of what exists."""
        ...

    def ignored(self, effect: Effect, do: Do, draw: random.Random) -> Any:
        """Accepted, with nothing behind it."""
        ...

    def empty(self, answer: Any) -> Any:
        """200 and nothing."""
        ...

    def wrong_shape(self, effect: Effect, answer: Any, draw: random.Random) -> Any:
        """The same status, and not what was asked for."""
        ...

    def late_list(self, effect: Effect, answer: Any) -> Any:
        """The list without what was created in the last minute; other answers as they are."""
        ...


class VultrAnswers:
    """`Answers` of Vultr. `pretend` lets a create be answered as always and undoes it."""

    def __init__(
        self,
        spend: Callable[[float], None],
        pretend: Callable[[Do], Any],
        now: Callable[[], float],
        created_at: Callable[[str], float | None],
    ) -> None:
        self._spend, self._pretend, self._now, self._created_at = spend, pretend, now, created_at

    def cut(self, seconds: float, text: str, *, sent: bool = True) -> NoReturn:
        self._spend(seconds)
        raise TransportError(Fault.ANSWER_LOST if sent else Fault.NOT_SENT, text)

    def throttled(self, effect: Effect) -> RawResponse:
        return _error(429, "Too many requests.", **{"retry-after": "5"})

    def gateway(self, status: int = 502, seconds: float = 0.0) -> RawResponse:
        self._spend(seconds)
        page = f"<html><head><title>{status}</title></head><body>gateway</body></html>".encode()
        return RawResponse(status, {"content-type": "text/html"}, page)

    def refused(self, effect: Effect, draw: random.Random) -> RawResponse:
        path, choices = effect.path, _REFUSALS
        if effect.method == "GET" and path.count("/") == 2 and path.startswith(("/instances/", "/bare-metals/")):
            choices = (*_REFUSALS, *_DENIALS)
        return _error(*draw.choice(choices))

    def ignored(self, effect: Effect, do: Do, draw: random.Random) -> Any:
        return self._pretend(do) if effect.creates else RawResponse(204, {}, b"")

    def empty(self, answer: RawResponse) -> RawResponse:
        return replace(answer, status=200, body=b"")

    def wrong_shape(self, effect: Effect, answer: RawResponse, draw: random.Random) -> RawResponse:
        return replace(answer, body=b'{"result": []}')

    def late_list(self, effect: Effect, answer: RawResponse) -> RawResponse:
        key = _LISTS.get(effect.path)
        if key is None or answer.status != 200:
            return answer
        page: dict[str, Any] = json.loads(answer.body)
        shown = [each for each in page[key] if not self._is_fresh(each["id"])]
        page["meta"]["total"] -= len(page[key]) - len(shown)
        page[key] = shown
        return replace(answer, body=json.dumps(page).encode())

    def _is_fresh(self, thing_id: str) -> bool:
        created = self._created_at(thing_id)
        return created is not None and self._now() - created < LATE_LIST_SECONDS


def _error(status: int, text: str, **headers: str) -> RawResponse:
    content = json.dumps({"error": text, "status": status}).encode()
    return RawResponse(status, {"content-type": "application/json", **headers}, content)
