"""The HTTP API as a script, on a real loopback port: what the command line meets without anything behind it.

A lease is a list of views; each GET of it moves on by one and stays at the last. Faults are scripted per request.
"""

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-tests"  # noqa: S105

OFFER: dict[str, Any] = {
    "provider": "vultr",
    "region": "ewr",
    "plan": "vcg-a100-12c",
    "kind": "vm",
    "gpu_model": "A100",
    "gpu_count": 1,
    "gpu_memory_gib": 80.0,
    "vcpus": 12,
    "memory_gib": 120.0,
    "disk_gb": 1400,
    "price_per_hour_usd": "2.397",
    "spot": False,
    "cpu_arch": "x86_64",
    "private_network": True,
    "in_stock": None,
}
INSTANCE: dict[str, Any] = {
    "id": "l-aaaaaaaaaaaa.instance.1",
    "kind": "instance",
    "provider": "vultr",
    "account": "vultr",
    "region": "ewr",
    "plan": "vcg-a100-12c",
    "state": "held",
    "provider_id": "4f0f",
    "status": "active/running/ok",
    "address": "203.0.113.7",
    "price_per_hour_usd": "2.397",
    "cost_so_far_usd": "0.04",
    "billed": True,
}


def lease(lease_id: str = "l-aaaaaaaaaaaa", name: str = "train", state: str = "running", **more: Any) -> dict[str, Any]:
    """A LeaseView as the API sends it."""
    return {
        "id": lease_id,
        "name": name,
        "owner": "me",
        "state": state,
        "reason": None,
        "reason_detail": "",
        "epoch": 1,
        "created_at": "2026-01-05T12:00:00Z",
        "running_at": "2026-01-05T12:01:30Z" if state == "running" else None,
        "release_requested_at": None,
        "released_at": None,
        "spec": {"gpu": ["A100"], "gpu_count": 1, "ssh_keys": ["ssh-ed25519 AAAA"], "labels": {"team": "vision"}},
        "offer": OFFER,
        "attempts": [],
        "resources": [INSTANCE],
        "price_per_hour_usd": "2.397",
        "cost_so_far_usd": "0.04",
        "address": "203.0.113.7" if state == "running" else "",
        "ssh": "ssh root@203.0.113.7" if state == "running" else None,
        "waiting_for": "",
        "notices": [],
        "warnings": [],
        "next": {"text": "runs until it is given back", "at": None},
        **more,
    }


def released(view: dict[str, Any], reason: str = "user", detail: str = "") -> dict[str, Any]:
    """The same lease when everything is proven gone."""
    return {
        **view,
        "state": "released",
        "reason": reason,
        "reason_detail": detail,
        "released_at": "2026-01-05T12:30:00Z",
        "resources": [{**item, "state": "released", "billed": False} for item in view["resources"]],
        "price_per_hour_usd": "0.00",
        "address": "",
        "ssh": None,
    }


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Fault:
    """Instead of (or, with `carried_out`, after) the right answer: a status with a problem, or a cut connection."""

    method: str
    status: int | None = None
    problem: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    carried_out: bool = False
    raw: bytes | None = None


@dataclass
class FakeApi:
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    scripts: dict[str, deque[dict[str, Any]]] = field(default_factory=dict)
    created: deque[list[dict[str, Any]]] = field(default_factory=deque)
    """Scripts that the next POSTs begin."""
    after_release: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    caches: list[dict[str, Any]] = field(default_factory=list)
    offers: list[dict[str, Any]] = field(default_factory=lambda: [OFFER])
    faults: list[Fault] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    date: str | None = None
    page_size: int = 100
    health: dict[str, Any] | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    when_paused: str = ""
    """What a dry run of `POST /v1/leases` says of it."""
    """What a dry run of a pause or resume tells."""

    def add(self, *views: dict[str, Any]) -> str:
        """A lease that goes through these views."""
        self.scripts[views[0]["id"]] = deque(views)
        return str(views[0]["id"])

    def of(self, method: str) -> list[Seen]:
        return [item for item in self.seen if item.method == method]

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, request: Seen) -> tuple[int, dict[str, Any]]:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"title": "Unauthorized", "status": 401, "detail": "the token is not right"}
        match request.method, request.path.strip("/").split("/"):
            case "POST", ["v1", "leases"]:
                return self._post(request)
            case "GET", ["v1", "leases"]:
                return 200, self._list(request)
            case "GET", ["v1", "leases", lease_id] if lease_id in self.scripts:
                script = self.scripts[lease_id]
                return 200, script.popleft() if len(script) > 1 else script[0]
            case "POST", ["v1", "leases", lease_id, "pause" | "resume"] if lease_id in self.scripts:
                if request.query.get("dry_run") == ["true"]:
                    return 200, self.plan
                script = self.scripts[lease_id]
                while len(script) > 1 and script[0]["state"] in ("paused", "running"):
                    script.popleft()
                return 202, script[0]
            case "DELETE", ["v1", "leases", lease_id] if lease_id in self.scripts:
                script = self.scripts[lease_id]
                now = {**script[0], "state": "releasing", "reason": "user"}
                self.scripts[lease_id] = deque([*self.after_release.get(lease_id, []), released(now)])
                return 202, now
            case "GET", ["v1", "leases", lease_id, "events"] if lease_id in self.scripts:
                start = int(request.query.get("cursor", ["0"])[0])
                end = start + self.page_size
                more = str(end) if end < len(self.events) else None
                return 200, {"events": self.events[start:end], "cursor": more}
            case "GET", ["v1", "health"] if self.health is not None:
                return 200, self.health
            case "GET", ["v1", "caches"]:
                return 200, {"caches": self.caches, "cursor": None}
            case "GET", ["v1", "offers"]:
                return 200, self._offers()
        return 404, {"title": "Not Found", "status": 404, "detail": "there is nothing here", "code": "lease_not_found"}

    def _offers(self) -> dict[str, Any]:
        age = {"provider": "vultr", "as_of": "2026-01-05T11:00:00Z", "age_seconds": 3600}
        return {"offers": self.offers, "total": len(self.offers), "catalogue": [age]}

    def _post(self, request: Seen) -> tuple[int, dict[str, Any]]:
        if request.query.get("dry_run") == ["true"]:
            return 200, {"dry_run": True, "when_paused": self.when_paused, **self._offers()}
        key = request.headers.get("idempotency-key", "")
        if key not in self.keys:
            self.keys[key] = self.add(*self.created.popleft())
        return 202, self.scripts[self.keys[key]][0]

    def _list(self, request: Seen) -> dict[str, Any]:
        states, name = request.query.get("state"), request.query.get("name", [None])[0]
        now = [script[0] for script in self.scripts.values()]
        fitting = [
            view for view in now if (not states or view["state"] in states) and (name is None or view["name"] == name)
        ]
        start = int(request.query.get("cursor", ["0"])[0])
        end = start + self.page_size
        return {"leases": fitting[start:end], "cursor": str(end) if end < len(fitting) else None}


@contextmanager
def serving(api: FakeApi) -> Iterator[FakeApi]:
    """The API on a free port, until the block ends."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            content = self.rfile.read(length)
            request = Seen(
                self.command,
                parts.path,
                parse_qs(parts.query),
                {name.lower(): value for name, value in self.headers.items()},
                json.loads(content) if content else None,
            )
            with lock:
                api.seen.append(request)
                fault = next((item for item in api.faults if item.method == request.method), None)
                if fault is not None:
                    api.faults.remove(fault)
                if fault is None or fault.carried_out:
                    status, value = api.answer(request)
            if fault is not None:
                if fault.status is None:
                    self.close_connection = True
                    return
                status, value = fault.status, fault.problem
            body = fault.raw if fault is not None and fault.raw is not None else json.dumps(value).encode()
            self.send_response_only(status)
            if api.date:
                self.send_header("Date", api.date)
            for name, text in (fault.headers if fault is not None else {}).items():
                self.send_header(name, text)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _handle

        def log_message(self, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
