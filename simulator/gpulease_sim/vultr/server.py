"""The simulated account over HTTP on loopback: Vultr's routes under /v2, the control routes under /_control.

A cut connection is really cut, and the time a call takes is really waited (divided by the time scale). Where the
cloud's clock is not a wall clock nothing is waited for.
"""

import contextlib
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from gpulease_sim.vultr.api import ConnectionCut, SimResponse
from gpulease_sim.vultr.cloud import VultrCloud
from gpulease_sim.vultr.control import control
from gpulease_sim.wall_clock import ScaledClock


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "nginx"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    cloud: VultrCloud
    clock: ScaledClock | None

    def log_message(self, format: str, *args: object) -> None:
        """No access log: the cloud records its calls itself."""

    def _serve(self) -> None:
        target = urlsplit(self.path)
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        try:
            if target.path.startswith("/_control/"):
                response = control(self.cloud, self.clock, self.command, target.path, query, body)
            else:
                response = self._ask(target.path, query, body)
        except ConnectionCut as cut:
            self._wait(cut.elapsed_seconds)
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client may have hung up first
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._wait(response.elapsed_seconds)
        self._write(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _ask(self, path: str, query: Mapping[str, str], body: bytes) -> SimResponse:
        headers = {"Authorization": self.headers.get("Authorization") or ""}
        headers["Content-Type"] = self.headers.get("Content-Type") or ""
        client = self.headers.get("X-Forwarded-For") or str(self.client_address[0])
        return self.cloud.handle(self.command, path, query, headers, body, client)

    def _wait(self, simulated_seconds: float) -> None:
        if self.clock is not None:
            self.clock.sleep(simulated_seconds)

    def _write(self, response: SimResponse) -> None:
        try:
            self.send_response_only(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if response.status != 204:
                self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if response.status != 204:
                self.wfile.write(response.body)
            self.wfile.flush()
        except OSError:  # the client stopped waiting; what the call did stays done
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    block_on_close = False


@dataclass(frozen=True)
class ServerHandle:
    """A running server; `url` is its origin, Vultr's base is `url + "/v2"`."""

    url: str
    _server: _Server
    _thread: threading.Thread

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "ServerHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(cloud: VultrCloud, host: str = "127.0.0.1", port: int = 0, clock: ScaledClock | None = None) -> ServerHandle:
    """Serve the account in threads of their own; port 0 picks a free one. `clock` is the one the cloud runs on, if
    that is a wall clock: it is needed to wait and to tell wall times."""
    handler = type("CloudHandler", (_Handler,), {"cloud": cloud, "clock": clock})
    server = _Server((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    return ServerHandle(f"http://{host}:{server.server_port}", server, thread)
