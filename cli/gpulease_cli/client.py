"""The HTTP API as a class; also the Python SDK: `Client("http://127.0.0.1:8765", token)`.

Invariants: the token is in no error, log or repr and is never sent on to another address (redirects are refused).
A POST is repeated only under one Idempotency-Key, so a lost answer cannot rent twice, or where twice does no harm.
Nothing is repeated that was refused.
"""

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from gpulease_cli import __version__
from gpulease_cli.cache_views import CacheView
from gpulease_cli.clock import Clock, WallClock
from gpulease_cli.doctor_views import DoctorView, SweepView
from gpulease_cli.drain_views import DrainView
from gpulease_cli.text import clean
from gpulease_cli.views import EventsPage, EventView, Json, LeaseView, OffersView, PlanView

Query = Sequence[tuple[str, str]]
Sign = Callable[[str, str, Mapping[str, str], bytes | None], Mapping[str, str]]
"""(method, url, headers, body) to the headers that prove who sends it; asked anew for every try."""

_PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""Before the second, third and fourth try of a POST or DELETE; a GET is tried twice, its caller can ask again."""
_LONGEST_PAUSE_SECONDS = 10.0
"""An API that asks for more patience than that is told to the caller at once."""
_TRANSIENT = frozenset({429, 502, 503, 504})
_PAGE = 100
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024


class ApiError(Exception):
    """Base of what a Client raises."""


class ApiUnreachable(ApiError):
    """No usable answer. `sent`: the request may have been carried out all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class FieldProblem:
    field: str
    message: str


class ApiProblem(ApiError):
    """The API answered with an error (problem+json). `code` is its stable name; `errors`: one entry per wrong field."""

    def __init__(
        self, status: int, title: str, detail: str, errors: tuple[FieldProblem, ...] = (), *, code: str = ""
    ) -> None:
        super().__init__(detail or title or f"HTTP {status}")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.errors = errors


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Client:
    """One API with one token or `sign`. Methods raise ApiProblem or ApiUnreachable. For one thread at a time."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        timeout_seconds: float = 30.0,
        clock: Clock | None = None,
        sign: Sign | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        if urlsplit(self.url).scheme not in {"http", "https"}:
            raise ValueError("url: must start with http:// or https://")
        self._token = token
        self._sign = sign
        self._timeout_seconds = timeout_seconds
        self._clock = clock or WallClock()
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if urlsplit(self.url).hostname in {"localhost", "127.0.0.1", "::1"}:
            # A proxy cannot reach this computer's own loopback.
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)
        self._ahead = timedelta(0)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def now(self) -> datetime:
        """The API's idea of the present, by the Date header of its last answer; its times are compared with it."""
        return self._clock.now() + self._ahead

    # --- leases -------------------------------------------------------------------------------------------------------

    def create_lease(self, request: Json, *, idempotency_key: str) -> LeaseView:
        """Ask for a machine. The same key and request again give the same lease."""
        headers = {"Idempotency-Key": idempotency_key}
        return LeaseView.read(self._object("POST", "/v1/leases", body=request, headers=headers))

    def preview(self, request: Json) -> OffersView:
        """The offers that `create_lease` would try, in order. Rents nothing."""
        return OffersView.read(self._object("POST", "/v1/leases", [("dry_run", "true")], body=request))

    def lease(self, lease_id: str) -> LeaseView:
        return LeaseView.read(self._object("GET", f"/v1/leases/{quote(lease_id, safe='')}"))

    def leases(self, *, states: Sequence[str] = (), name: str | None = None) -> Iterator[LeaseView]:
        """Newest first, all pages."""
        query = [("state", state) for state in states] + ([("name", name)] if name is not None else [])
        cursor: str | None = None
        while True:
            page = self._object("GET", "/v1/leases", [*query, *_page(cursor, _PAGE)])
            yield from (LeaseView.read(item) for item in page.get("leases") or ())
            cursor = _next(page, cursor)
            if cursor is None:
                return

    def release(self, lease_id: str, *, now: bool = False) -> LeaseView:
        """Give everything back. Accepted is not gone: ask for the lease until it is `released`.

        `now`: its cache is not saved first.
        """
        query = [("now", "true")] if now else []
        return LeaseView.read(self._object("DELETE", f"/v1/leases/{quote(lease_id, safe='')}", query))

    def pause(self, lease_id: str) -> LeaseView:
        """Stop the bill and keep what can be kept. Accepted is not done: ask for the lease until it is `paused`."""
        return LeaseView.read(self._object("POST", f"/v1/leases/{quote(lease_id, safe='')}/pause"))

    def resume(self, lease_id: str, *, on_no_capacity: str = "", wait_seconds: int | None = None) -> LeaseView:
        """Let it run again; ask for the lease until it is `running`, or `paused` again."""
        query = [("on_no_capacity", on_no_capacity)] if on_no_capacity else []
        query += [("wait_seconds", str(wait_seconds))] if wait_seconds is not None else []
        return LeaseView.read(self._object("POST", f"/v1/leases/{quote(lease_id, safe='')}/resume", query))

    def plan(self, lease_id: str, word: str) -> PlanView:
        """What `pause` or `resume` would do and cost. Changes nothing."""
        path = f"/v1/leases/{quote(lease_id, safe='')}/{word}"
        return PlanView.read(self._object("POST", path, [("dry_run", "true")]))

    def change(self, lease_id: str, patch: Json) -> LeaseView:
        """Change the policy of a living lease. What is not named stays as it is."""
        return LeaseView.read(self._object("PATCH", f"/v1/leases/{quote(lease_id, safe='')}", body=patch))

    def touch(self, lease_id: str) -> LeaseView:
        """Say that it is in use now."""
        return LeaseView.read(self._object("POST", f"/v1/leases/{quote(lease_id, safe='')}/touch"))

    def keep(self, lease_id: str, seconds: int) -> LeaseView:
        """Keep it for so long from now on, used or not."""
        path = f"/v1/leases/{quote(lease_id, safe='')}/keep"
        return LeaseView.read(self._object("POST", path, body={"seconds": seconds}))

    def events(self, lease_id: str, *, cursor: str | None = None, limit: int = _PAGE) -> EventsPage:
        """One page, oldest first."""
        page = self._object("GET", f"/v1/leases/{quote(lease_id, safe='')}/events", _page(cursor, limit))
        events = tuple(EventView.read(item) for item in page.get("events") or ())
        return EventsPage(events, _next(page, cursor))

    def all_events(self, lease_id: str) -> Iterator[EventView]:
        """All pages, oldest first."""
        cursor: str | None = None
        while True:
            page = self.events(lease_id, cursor=cursor)
            yield from page.events
            cursor = page.cursor
            if cursor is None:
                return

    # --- caches -------------------------------------------------------------------------------------------------------

    def create_cache(self, request: Json) -> CacheView:
        """Make a cache. The same request again gives the same cache."""
        return CacheView.read(self._object("POST", "/v1/caches", body=request))

    def plan_cache(self, request: Json) -> CacheView:
        """What `create_cache` would make, and its price. Makes nothing."""
        return CacheView.read(self._object("POST", "/v1/caches", [("dry_run", "true")], body=request))

    def cache(self, name: str) -> CacheView:
        return CacheView.read(self._object("GET", f"/v1/caches/{quote(name, safe='')}"))

    def caches(self, *, removed: bool = False) -> Iterator[CacheView]:
        """Newest first, all pages."""
        query = [("removed", "true")] if removed else []
        cursor: str | None = None
        while True:
            page = self._object("GET", "/v1/caches", [*query, *_page(cursor, _PAGE)])
            yield from (CacheView.read(item) for item in page.get("caches") or ())
            cursor = _next(page, cursor)
            if cursor is None:
                return

    def change_cache(self, name: str, patch: Json) -> CacheView:
        """Change when an unused cache is removed."""
        return CacheView.read(self._object("PATCH", f"/v1/caches/{quote(name, safe='')}", body=patch))

    def remove_cache(self, name: str) -> CacheView:
        """Remove it with all it holds. Accepted is not gone: ask for it until it is not found."""
        return CacheView.read(self._object("DELETE", f"/v1/caches/{quote(name, safe='')}"))

    # --- the rest -----------------------------------------------------------------------------------------------------

    def offers(self, query: Query = ()) -> OffersView:
        """What can be rented. `query`: fields of the lease's spec; a field may come several times."""
        return OffersView.read(self._object("GET", "/v1/offers", query))

    def doctor(self, *, live: bool = True) -> DoctorView:
        """Ledger and provider side by side. `live=False`: as the last sweep saw it."""
        return DoctorView.read(self._object("GET", "/v1/doctor", [] if live else [("live", "false")]))

    def sweep(self, *, dry_run: bool = False) -> SweepView:
        """Sweep now (admins). Safe to repeat."""
        return SweepView.read(self._object("POST", "/v1/sweep", [("dry_run", "true")] if dry_run else []))

    def drain(self) -> DrainView:
        """Refuse new leases and give back the open ones (admins). Ask again until it is done."""
        return DrainView.read(self._object("POST", "/v1/drain"))

    def drain_state(self) -> DrainView:
        """How far draining is (admins)."""
        return DrainView.read(self._object("GET", "/v1/drain"))

    def stop_draining(self) -> DrainView:
        """Take new leases again (admins)."""
        return DrainView.read(self._object("DELETE", "/v1/drain"))

    def health(self) -> Json:
        return self._object("GET", "/v1/health")

    def openapi(self) -> Json:
        return self._object("GET", "/openapi.json")

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _object(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One request, tried again while its answer gets lost or is "later". Raises ApiProblem, ApiUnreachable."""
        sent = False
        pauses = _PAUSES_SECONDS[:1] if method == "GET" else _PAUSES_SECONDS
        for pause in (*pauses, None):
            wait = pause
            try:
                return self._once(method, path, query, body, headers or {})
            except ApiProblem as problem:
                if problem.status not in _TRANSIENT or pause is None:
                    raise
            except _RetryLater as later:
                if pause is None or later.after_seconds > _LONGEST_PAUSE_SECONDS:
                    raise later.problem from None
                wait = max(pause, later.after_seconds)
            except ApiUnreachable as error:
                sent = sent or error.sent
                # Refused at once and never heard: nobody is there, and waiting would not make it start.
                if pause is None or not sent:
                    raise ApiUnreachable(str(error), sent=sent) from error
            self._clock.sleep(wait or 0.0)
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(
        self, method: str, path: str, query: Query, body: Json | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 - the scheme is checked above
        request.add_header("Accept", "application/json")
        request.add_header("User-Agent", f"gpulease-cli/{__version__}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        for name, value in headers.items():
            request.add_header(name, value)
        if self._sign is not None:
            for name, value in self._sign(method, url, request.headers, data).items():
                request.add_unredirected_header(name, value)
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                self._compare_clocks(answer.headers.get("Date"))
                return _parsed(answer.status, answer.read(_LARGEST_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise _problem(error) from None
        except urllib.error.URLError as error:
            raise ApiUnreachable(_why(error.reason), sent=_may_be_sent(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnreachable(_why(error), sent=True) from error

    def _compare_clocks(self, date: str | None) -> None:
        try:
            ahead = parsedate_to_datetime(date or "") - self._clock.now()
        except (TypeError, ValueError):
            return
        # The header has whole seconds; less than that is no difference.
        self._ahead = ahead if abs(ahead) > timedelta(seconds=2) else timedelta(0)


class _RetryLater(Exception):
    """An answer that names when to ask again."""

    def __init__(self, problem: ApiProblem, after_seconds: float) -> None:
        super().__init__(after_seconds)
        self.problem = problem
        self.after_seconds = after_seconds


def _page(cursor: str | None, limit: int) -> list[tuple[str, str]]:
    return [("limit", str(limit)), *([("cursor", cursor)] if cursor is not None else [])]


def _next(page: Json, cursor: str | None) -> str | None:
    following = page.get("cursor")
    if following is not None and following == cursor:
        raise ApiUnreachable("the API gave the same page twice; stopped reading the list", sent=True)
    return None if following is None else str(following)


def _parsed(status: int, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise ApiUnreachable(f"the answer (HTTP {status}) is not JSON; is this gpulease's API?", sent=True) from error
    if not isinstance(value, dict):
        raise ApiUnreachable(f"the answer (HTTP {status}) is not an object; is this gpulease's API?", sent=True)
    return value


def _problem(error: urllib.error.HTTPError) -> Exception:
    try:
        body = json.loads(error.read(_LARGEST_ANSWER_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        body = None
    if not isinstance(body, dict):
        body = {}
    errors = body.get("errors")
    problem = ApiProblem(
        error.code,
        clean(body.get("title") or error.reason or ""),
        clean(body.get("detail") or body.get("message") or ""),
        tuple(
            FieldProblem(clean(item.get("field") or ""), clean(item.get("message") or ""))
            for item in (errors if isinstance(errors, list) else ())
            if isinstance(item, dict)
        ),
        code=clean(body.get("code") or ""),
    )
    after = error.headers.get("Retry-After", "") if error.code in _TRANSIENT else ""
    return _RetryLater(problem, float(after)) if after.isdecimal() else problem


def _may_be_sent(reason: object) -> bool:
    """Whether the request may have arrived. A refused connection, unknown name or bad certificate never let it out."""
    return not isinstance(reason, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError)


def _why(reason: object) -> str:
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused"
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return clean(reason) or type(reason).__name__
