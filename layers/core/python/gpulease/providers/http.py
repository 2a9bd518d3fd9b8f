"""The one way to a provider over HTTP: what is sent, what counts as an answer, and what is never repeated.

- POST, PUT, PATCH and DELETE are sent once. Only GET is repeated (twice), and any call once more after a 401 when the
  secret store has another key by then: a 401 proves that nothing was carried out.
- An answer is a status with a readable body. No answer, a gateway's page and a broken body are ProviderUnavailable, so
  that they are never read as "does not exist" or "nothing there".
- The key is in the request header and nowhere else: not in a repr, a log line, an error or the cause of one.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, NoReturn, Protocol
from urllib.parse import urlencode

from gpulease.errors import (
    ProviderAuthFailed,
    ProviderError,
    ProviderFacts,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 55.0
"""Of calls that change something; with the connect timeout, a create is on its way for at most a minute."""
GET_READ_TIMEOUT_SECONDS = 15.0
"""Reads answer within seconds or not at all; three tries must fit into one function's time."""
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""500 machines with their tags are about 1 MB; more than this is not an answer of an API."""
MAX_RETRY_AFTER_SECONDS = 60.0
MAX_MESSAGE_CHARACTERS = 500
GET_PAUSES_SECONDS = (0.5, 2.0)
"""Before the second and the third try of a GET."""
_REQUEST_ID_HEADERS = ("x-request-id", "x-amzn-requestid", "cf-ray")
_GATEWAY_STATUSES = frozenset({408, *range(502, 600)})
"""No word from the API itself: timeouts, gateways, and the 52x of a network in front of it."""

JsonObject = dict[str, Any]


class Fault(StrEnum):
    """How a call ended without an answer."""

    NOT_SENT = "could not connect"
    """The request did not leave."""
    ANSWER_LOST = "no answer"
    """It may have been carried out."""
    TOO_LARGE = "answer too large"


class TransportError(Exception):
    """No usable answer came. Never holds the request, whose headers have the key."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        super().__init__(f"{fault}: {detail}" if detail else str(fault))
        self.fault = fault


@dataclass(frozen=True, slots=True)
class RawResponse:
    """An answer as it came; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request once and follows no redirect. Raises TransportError, nothing else."""

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        read_timeout: float,
    ) -> RawResponse: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the API itself: 2xx, or a refusal with its text. `data` is kept out of the repr (passwords)."""

    status: int
    facts: ProviderFacts
    data: JsonObject | None = field(default=None, repr=False)
    """The body where it is a JSON object; None for an empty one and in refusals."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """What the provider said in a refusal, masked and cut."""
        return self.facts.message

    def value(self, *keys: str) -> Any:
        """The first of these keys of the body. Raises ProviderUnexpected when the body has none of them."""
        for key in keys:
            if self.data is not None and key in self.data:
                return self.data[key]
        self.unexpected(f"the answer has no {keys[0]!r}")

    def unexpected(self, why: str) -> NoReturn:
        """Raise ProviderUnexpected about this answer."""
        raise ProviderUnexpected(_with_message(self.facts, why))


class ApiClient:
    """JSON calls to one provider account.

    `key(fresh)` gives the API key; it is asked at every call, with `fresh=True` after a 401. `sleep` pauses between
    tries of a GET.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        provider: str,
        base_url: str,
        key: Callable[[bool], str],
        sleep: Callable[[float], None],
        connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
        read_timeout: float = READ_TIMEOUT_SECONDS,
        get_read_timeout: float = GET_READ_TIMEOUT_SECONDS,
    ) -> None:
        self._transport = transport
        self._provider = provider
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._sleep = sleep
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._get_read_timeout = get_read_timeout

    def __repr__(self) -> str:
        return f"ApiClient({self._provider}, {self._base_url})"

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Mapping[str, object] | None = None,
    ) -> Reply:
        """One call; answers with 2xx, or with a 4xx, 500 or 501 of the API for the adapter to read.

        Raises ProviderThrottled, ProviderAuthFailed (not carried out), ProviderUnavailable, ProviderUnexpected (it may
        have been).
        """
        if method != "GET":
            return self._once(method, path, query, body)
        for pause in GET_PAUSES_SECONDS:
            try:
                return self._once(method, path, query, body)
            except ProviderUnavailable:
                self._sleep(pause)
        return self._once(method, path, query, body)

    def _once(
        self, method: str, path: str, query: Sequence[tuple[str, str]], body: Mapping[str, object] | None
    ) -> Reply:
        key = self._checked_key(False, method, path)
        try:
            return self._exchange(method, path, query, body, key)
        except ProviderAuthFailed as refused:
            if refused.facts.status != 401:
                raise
            fresh = self._checked_key(True, method, path)
            if fresh == key:
                raise
        return self._exchange(method, path, query, body, fresh)

    def _checked_key(self, fresh: bool, method: str, path: str) -> str:
        key = self._key(fresh).strip()
        if not key or not key.isascii() or not key.isprintable():
            message = "the API key is empty or holds characters that no key has"
            raise ProviderAuthFailed(ProviderFacts(self._provider, message, method=method, path=path))
        return key

    def _exchange(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: Mapping[str, object] | None,
        key: str,
    ) -> Reply:
        facts = ProviderFacts(self._provider, "", method=method, path=path)
        url = self._base_url + path + (f"?{urlencode(query)}" if query else "")
        try:
            raw = self._transport.send(
                method,
                url,
                headers={
                    "Authorization": f"Bearer {key}",
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    "User-Agent": "gpulease",
                },
                body=b"" if body is None else json.dumps(body).encode(),
                connect_timeout=self._connect_timeout,
                read_timeout=self._get_read_timeout if method == "GET" else self._read_timeout,
            )
        except TransportError as exc:
            kind = ProviderUnexpected if exc.fault is Fault.TOO_LARGE else ProviderUnavailable
            raise kind(_with_message(facts, mask(str(exc), key))) from None
        return _reply(raw, facts, key)


def _reply(raw: RawResponse, facts: ProviderFacts, key: str) -> Reply:
    facts = replace(
        facts,
        status=raw.status,
        request_id=mask(next((raw.headers[h] for h in _REQUEST_ID_HEADERS if h in raw.headers), ""), key),
        retry_after_seconds=_retry_after(raw.headers),
    )
    if 200 <= raw.status < 300:
        return Reply(raw.status, facts, _object(raw.body, facts))
    facts = _with_message(facts, mask(_error_text(raw), key))
    if raw.status == 429:
        raise ProviderThrottled(facts)
    if raw.status in (401, 403):
        raise ProviderAuthFailed(facts)
    if raw.status in _GATEWAY_STATUSES:
        raise ProviderUnavailable(facts)
    if not 400 <= raw.status < 600:
        raise ProviderUnexpected(facts)
    return Reply(raw.status, facts)


def _object(body: bytes, facts: ProviderFacts) -> JsonObject | None:
    """The body of a 2xx. Its text never gets into an error: create answers hold passwords."""
    if not body.strip():
        return None
    data = _parsed(body)
    if data is None:
        raise ProviderUnavailable(_with_message(facts, f"{len(body)} bytes that are not JSON"))
    if not isinstance(data, dict):
        raise ProviderUnexpected(_with_message(facts, f"a JSON {type(data).__name__} where an object belongs"))
    return data


def _parsed(body: bytes) -> Any:
    """None for what is not JSON (and for JSON null, which is no answer either)."""
    try:
        return json.loads(body, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None


def _error_text(raw: RawResponse) -> str:
    data = _parsed(raw.body)
    if isinstance(data, dict):
        for name in ("error", "message"):
            if isinstance(data.get(name), str):
                return str(data[name])
    what = raw.headers.get("content-type", "no content type").partition(";")[0]
    return f"no error text ({what}, {len(raw.body)} bytes)"


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds, at most 60; 0 = none given. A date is read relative to the answer's own date."""
    given = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", given):
        return min(float(given), MAX_RETRY_AFTER_SECONDS)
    try:
        until, now = parsedate_to_datetime(given), parsedate_to_datetime(headers.get("date", ""))
        return min(max((until - now).total_seconds(), 0.0), MAX_RETRY_AFTER_SECONDS)
    except (TypeError, ValueError):
        return 0.0


def mask(text: str, key: str) -> str:
    """`text` without the key and without anything that looks like one, on one line and cut."""
    if key:
        text = text.replace(key, "***")
    text = re.sub(r"(?i)\bbearer\s+\S+", "Bearer ***", text)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text[:MAX_MESSAGE_CHARACTERS]


def _with_message(facts: ProviderFacts, message: str) -> ProviderFacts:
    return replace(facts, message=message[:MAX_MESSAGE_CHARACTERS])


def explained(error: ProviderError, kind: type[ProviderError], why: str) -> ProviderError:
    """The same failure as another class; what the provider said stays in front of the explanation."""
    return kind(_with_message(error.facts, f"{error.facts.message[:300]} [{why}]"))
