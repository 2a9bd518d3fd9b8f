"""The simulated account over HTTP on loopback: all services at one address, the control routes under /_control.

A cut connection is really cut, and the time a call takes is really waited (divided by the time scale). Where the
cloud's clock is not a wall clock nothing is waited for.
"""

import contextlib
import socket
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from gpulease_sim.aws.cloud import AwsCloud
from gpulease_sim.aws.control import control
from gpulease_sim.aws.wire import ConnectionCut, SimResponse
from gpulease_sim.wall_clock import ScaledClock


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "AmazonEC2"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    cloud: AwsCloud
    clock: ScaledClock | None

    def log_message(self, format: str, *args: object) -> None:
        """No access log: the cloud records its calls itself."""

    def _serve(self) -> None:
        target = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        try:
            if target.path.startswith("/_control/"):
                response = control(
                    self.cloud, self.clock, self.command, target.path, dict(parse_qsl(target.query)), body
                )
            else:
                response = self.cloud.handle(self.headers, body or target.query.encode())  # type: ignore[arg-type]  # its get ignores case
        except ConnectionCut as cut:
            self._wait(cut.elapsed_seconds)
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client may have hung up first
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._wait(response.elapsed_seconds)
        self._write(response)

    do_GET = do_POST = _serve

    def _wait(self, simulated_seconds: float) -> None:
        if self.clock is not None:
            self.clock.sleep(simulated_seconds)

    def _write(self, response: SimResponse) -> None:
        try:
            self.send_response_only(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
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
    """A running server; `url` is what boto3 takes as `endpoint_url`."""

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


def serve(cloud: AwsCloud, host: str = "127.0.0.1", port: int = 0, clock: ScaledClock | None = None) -> ServerHandle:
    """Serve the account in threads of their own; port 0 picks a free one. `clock` is the one the cloud runs on, if
    that is a wall clock: it is needed to wait and to tell wall times."""
    handler = type("CloudHandler", (_Handler,), {"cloud": cloud, "clock": clock})
    server = _Server((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    return ServerHandle(f"http://{host}:{server.server_port}", server, thread)
