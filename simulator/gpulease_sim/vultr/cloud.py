"""The simulated account behind one function: `VultrCloud.handle`.

Order of a call: rate limit, key, faults, content type, route. A fault therefore sees every call that a real gateway
would let pass, and may replace the answer after the call was carried out or keep it from being carried out.
"""

import dataclasses
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from gpulease_sim.answers import ConnectionCut, SimResponse
from gpulease_sim.draws import Draws
from gpulease_sim.guests import GuestHost
from gpulease_sim.vultr import (
    account_routes,
    block_routes,
    block_snapshot_routes,
    catalog_routes,
    machine_routes,
    network_routes,
    object_routes,
    vfs_routes,
)
from gpulease_sim.vultr.account import OWNER_EMAIL, TABLES, Account
from gpulease_sim.vultr.api import ApiError, Call, NotFound, Reply, Routes
from gpulease_sim.vultr.book import Book, BookObject
from gpulease_sim.vultr.faults import Asked, Fault, FaultPlan
from gpulease_sim.vultr.guest_events import GuestEvents
from gpulease_sim.vultr.limits import RateLimit
from gpulease_sim.vultr.machines import Machine
from gpulease_sim.vultr.settings import Settings
from gpulease_sim.vultr.texts import text

if TYPE_CHECKING:
    from gpulease_sim.vultr.state_file import StateFile

DEFAULT_ADDRESS = "192.0.2.1"
"""The client's address where the caller gives none."""
RECORDED_CALLS = 100_000
_RESET_STEP = 1_000_003
"""Far more than anybody tries seeds in a row."""

_HEADERS = {
    "Content-Type": "application/json",
    "Server": "nginx",
    "X-Robots-Tag": "noindex",
    "X-User": OWNER_EMAIL,  # the real one sends it too: clients must keep it out of their logs
}


def _routes() -> Routes:
    routes = Routes()
    machine_routes.add_routes(routes)
    network_routes.add_routes(routes)
    object_routes.add_routes(routes)
    block_routes.add_routes(routes)
    block_snapshot_routes.add_routes(routes)
    vfs_routes.add_routes(routes)
    account_routes.add_routes(routes)
    catalog_routes.add_routes(routes)
    return routes


ROUTES = _routes()


class SeenCall(NamedTuple):
    """A call as the provider saw it."""

    at: float
    method: str
    path: str
    status: int
    """0: no answer was given."""


class VultrCloud:
    """One account, thread-safe; every state is computed from `clock` (Unix seconds) when it is asked for."""

    def __init__(
        self,
        clock: Callable[[], float],
        seed: int = 0,
        settings: Settings | None = None,
        state: "StateFile | None" = None,
        guests: GuestHost | None = None,
    ) -> None:
        self.clock = clock
        self._guests = guests
        self._seed = seed
        self._state = state
        self._initial = settings or Settings()
        self._lock = threading.RLock()
        self._resets = 0
        self.calls: deque[SeenCall] = deque(maxlen=RECORDED_CALLS)
        """The latest calls, oldest first."""
        kept = state.read_settings() if state is not None else None
        self._start(settings or kept or self._initial)
        if state is not None:
            state.read_into(self.account)
            state.write_settings(self.settings)

    def reset(self, settings: Settings | None = None) -> None:
        """An empty account without faults, with the settings of the beginning unless others are given.

        Ids are new ones: a client that still works on what it had before must not meet it in the new account.
        """
        with self._lock:
            self._resets += 1
            self.account.guests.tell(self.clock())
            self.account.guests.end_all(self.clock())
            self._start(settings or self._initial)
            if self._state is not None:
                self._state.clear()
                self._state.write_settings(self.settings)

    def _start(self, settings: Settings) -> None:
        seed = self._seed + self._resets * _RESET_STEP
        self.account = Account(self.clock, seed, settings, GuestEvents(self._guests))
        self.faults = FaultPlan(self._seed)
        self._limit = RateLimit()
        self._suspended: set[str] = set()
        self._refused: Counter[str] = Counter()
        self._handled = 0
        self.calls_total = 0
        self.calls.clear()

    def now(self) -> float:
        """The simulator's clock."""
        return self.clock()

    @property
    def settings(self) -> Settings:
        """How account and API behave; assign a changed copy (`dataclasses.replace`)."""
        return self.account.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        with self._lock:
            self.account.settings = settings
            if self._state is not None:
                self._state.write_settings(settings)

    def replace_faults(self, faults: Iterable[Fault]) -> None:
        """These faults instead of the present ones, while calls go on."""
        with self._lock:
            self.faults.replace(faults)

    def book_objects(self) -> list[BookObject]:
        """The book as of now, while calls go on."""
        with self._lock:
            return self.book.objects()

    @property
    def book(self) -> Book:
        """The record of every paid object ever created."""
        return self.account.book

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        client: str = DEFAULT_ADDRESS,
    ) -> SimResponse:
        """Answer one call; raises ConnectionCut where no answer arrives. `path` with or without /v2."""
        with self._lock:
            self.calls_total += 1
            now = self.clock()
            self.account.guests.tell(now)
            if path.startswith("/v2/"):
                path = path[3:]
            try:
                response = self._answer(method, path, query or {}, headers or {}, body, client, now)
            except ConnectionCut:
                self.calls.append(SeenCall(now, method, path, 0))
                raise
            finally:
                self._keep()
            self.calls.append(SeenCall(now, method, path, response.status))
            return response

    def machine(self, machine_id: str) -> Machine:
        """A machine's inner state, for tests; KeyError where it does not exist (any more)."""
        return self.account.machines[machine_id]

    def tell_guests(self) -> None:
        """Let the `GuestHost` know all that happened until now; every call to the API does it as well."""
        with self._lock:
            self.account.guests.tell(self.clock())

    def next_guest_event(self) -> float | None:
        """When there will be something to tell the `GuestHost` next, as things are now."""
        with self._lock:
            return self.account.guests.next_at()

    def remove_by_hand(self, object_id: str) -> None:
        """The owner deletes a machine or a block in the provider's console: gone at once."""
        with self._lock:
            now = self.clock()
            self.account.guests.tell(now)
            if object_id in self.account.blocks:
                block_routes.remove(self.account, self.account.blocks[object_id], now, now)
            else:
                self.account.machines[object_id].end(now)
                self.account.machine_changed(self.account.machines[object_id])
            self._keep()

    def ssh_open(self, address: str, port: int = 22) -> bool:
        """Whether the host with that public address accepts TCP now."""
        with self._lock:
            machine = self.account.machines.get(self.account.by_address.get(address, ""))
            if machine is None or port != 22:
                return False
            now = self.clock()
            return machine.shown_address(now) == address and machine.accepts_ssh(now)

    def _keep(self) -> None:
        if not self.account.touched:
            return
        if self._state is None:
            self.account.touched.clear()
        else:
            self._state.write_changes(self.account)

    # One call

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        client: str,
        now: float,
    ) -> SimResponse:
        account = self.account
        settings = account.settings
        elapsed = self._latency(method, path)
        wait = self._limit.wait(settings, client, now)
        if wait is not None:
            extra = {"Retry-After": str(wait)} if settings.retry_after_header else {}
            return self._refusal(ApiError(429, "rate_limit"), elapsed, extra)
        try:
            call = Call(method, path, query, body, now, client, self._key(headers, path, client))
            account.settle(now)
            fault = self._choose_fault(call) if self.faults else None
            if fault is None:
                _check_content_type(settings, headers, body)
                return self._encode(self._run(call), elapsed)
            return self._faulty(fault, call, headers, elapsed)
        except ApiError as refusal:
            return self._refusal(refusal, elapsed)

    def _run(self, call: Call) -> Reply:
        handler, ids = ROUTES.find(call.method, call.path)
        try:
            return handler(self.account, call, ids)
        except ApiError as refusal:
            if refusal.key == "already_destroying":
                self._count_refused_delete(call)
            raise

    def _faulty(self, fault: Fault, call: Call, headers: Mapping[str, str], elapsed: float) -> SimResponse:
        elapsed += fault.delay_seconds
        response = SimResponse(204, {}, b"", elapsed)
        if fault.effect == "ignore":
            response = self._pretend(call, elapsed)
        elif fault.execute:
            try:
                _check_content_type(self.settings, headers, call.body)
                response = self._encode(self._run(call), elapsed)
            except ApiError as refusal:
                response = self._refusal(refusal, elapsed)
        if fault.cut:
            raise ConnectionCut(elapsed, fault.execute and fault.effect != "ignore")
        extra = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        if fault.status is not None:
            error = text("internal", True) if self.settings.reworded else fault.error
            content = json.dumps({"error": error, "status": fault.status}).encode()
            response = SimResponse(fault.status, dict(_HEADERS), content, elapsed)
            if fault.html:
                page = f"<html><head><title>{fault.status}</title></head><body>{error}</body></html>"
                response = SimResponse(fault.status, {**_HEADERS, "Content-Type": "text/html"}, page.encode(), elapsed)
        elif not fault.execute and fault.effect != "ignore" and fault.body is not None:
            response = SimResponse(200, dict(_HEADERS), b"", elapsed)
        if fault.body is not None:
            response = response._replace(body=fault.body.encode(), headers=dict(_HEADERS))
        return response._replace(headers={**response.headers, **extra}) if extra else response

    def _pretend(self, call: Call, elapsed: float) -> SimResponse:
        """The answer of a call that did nothing."""
        if call.method in ("GET", "HEAD"):
            return self._encode(self._run(call), elapsed)
        if call.method == "POST" and call.path.count("/") == 1:
            reply = self._run(call)
            for object_id in call.created:
                self._uncreate(object_id)
            return self._encode(reply, elapsed)
        if call.method == "PATCH":
            reader = dataclasses.replace(call, method="GET", body=b"")
            return self._encode(self._run(reader)._replace(status=202), elapsed)
        return SimResponse(204, {"Server": "nginx"}, b"", elapsed)

    def _uncreate(self, object_id: str) -> None:
        account = self.account
        account.book.remove(object_id)
        for name in TABLES:
            if account.table(name).pop(object_id, None) is not None:
                account.touch(name, object_id)
        account.touch("book", object_id)

    def _key(self, headers: Mapping[str, str], path: str, client: str) -> str:
        settings = self.settings
        given = _header(headers, "Authorization")
        key = given[7:].strip() if given[:7].lower() == "bearer " else ""
        if not key and not catalog_routes.needs_key(path):
            return ""
        accepted = bool(key) if settings.api_keys is None else key in settings.api_keys
        if not accepted or key in self._suspended:
            raise ApiError(401, "bad_key")
        if settings.allowed_addresses is not None and client not in settings.allowed_addresses:
            raise ApiError(401, "bad_address", address=client)
        return key

    def _count_refused_delete(self, call: Call) -> None:
        limit = self.settings.suspend_key_after_refused_deletes
        self._refused[call.key] += 1
        if limit is not None and self._refused[call.key] >= limit:
            self._suspended.add(call.key)

    def _choose_fault(self, call: Call) -> Fault | None:
        def region() -> str:
            return self._region(call)

        query = urlencode(call.query)
        return self.faults.choose(Asked(call.method, call.path, query, call.body, call.client, call.now, region))

    def _region(self, call: Call) -> str:
        parts = call.path.strip("/").split("/")
        if parts[0] == "regions" and len(parts) > 1:
            return parts[1]
        if "region" in call.query:
            return call.query["region"]
        if len(parts) > 1:
            for table in map(self.account.table, ("machines", "vpcs", "reserved_ips", "blocks", "file_systems")):
                found = table.get(parts[1])
                if found is not None:
                    return str(getattr(found, "region", ""))
        if call.body:
            try:
                return str(call.json().get("region", ""))
            except ApiError:
                return ""
        return ""

    def _latency(self, method: str, path: str) -> float:
        settings = self.settings
        self._handled += 1
        bounds = settings.latency_seconds
        if method == "GET" and path.count("/") == 1 and settings.list_latency_seconds[1] > 0:
            bounds = settings.list_latency_seconds
        return Draws(self._seed, f"call-{self._handled}").between(bounds, "latency") if bounds[1] > 0 else 0.0

    def _encode(self, reply: Reply, elapsed: float) -> SimResponse:
        if reply.payload is None:
            return SimResponse(reply.status, {"Server": "nginx"}, b"", elapsed)
        return SimResponse(reply.status, dict(_HEADERS), json.dumps(reply.payload).encode(), elapsed)

    def _refusal(self, refusal: ApiError, elapsed: float, extra: Mapping[str, str] | None = None) -> SimResponse:
        status, reworded = refusal.status, self.settings.reworded
        words = text(refusal.key, reworded, **refusal.values)
        if isinstance(refusal, NotFound) and refusal.key in self.settings.not_found:
            status, known = self.settings.not_found[refusal.key]
            words = words if reworded else known
        body: dict[str, Any] = {"error": words, "status": status}
        return SimResponse(status, {**_HEADERS, **(extra or {})}, json.dumps(body).encode(), elapsed)


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if value is None:
        value = headers.get(name.lower())
    if value is None:
        value = next((each for key, each in headers.items() if key.lower() == name.lower()), "")
    return value


def _check_content_type(settings: Settings, headers: Mapping[str, str], body: bytes) -> None:
    if body and settings.require_content_type:
        given = _header(headers, "Content-Type").split(";")[0].strip().lower()
        if given != "application/json":
            raise ApiError(400, "content_type")
