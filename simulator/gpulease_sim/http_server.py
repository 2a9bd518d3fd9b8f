"""A simulated account over HTTP on loopback, whatever its provider's routes are.

A cut connection is really cut, and the time a call takes is really waited (divided by the time scale). Where the
cloud's clock is not a wall clock nothing is waited for.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gpulease_sim.answers import ConnectionCut, SimResponse
from gpulease_sim.wall_clock import ScaledClock

NO_BODY = 204


class Request(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    clock: ScaledClock | None

    def reply(self, body: bytes) -> SimResponse:
        """What the account answers; given by `start`."""
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        """No access log: the cloud records its calls itself."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        try:
            response = self.reply(body)
        except ConnectionCut as cut:
            self._wait(cut.elapsed_seconds)
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client may have hung up first
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._wait(response.elapsed_seconds)
        self._write(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _wait(self, simulated_seconds: float) -> None:
        if self.clock is not None:
            self.clock.sleep(simulated_seconds)

    def _write(self, response: SimResponse) -> None:
        try:
            self.send_response_only(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if response.status != NO_BODY:
                self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if response.status != NO_BODY:
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
    """A running server; `url` is its origin."""

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


def start(
    reply: Callable[[Request, bytes], SimResponse], *, name: str, host: str, port: int, clock: ScaledClock | None
) -> ServerHandle:
    """Serve in threads of their own; port 0 picks a free one. `name`: what the server says it is. `clock` is the one
    the cloud runs on, if that is a wall clock: it is needed to wait."""
    handler = type("CloudRequest", (Request,), {"reply": reply, "clock": clock, "server_version": name})
    server = _Server((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    return ServerHandle(f"http://{host}:{server.server_port}", server, thread)
