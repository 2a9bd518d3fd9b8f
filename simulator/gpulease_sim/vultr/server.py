"""The simulated account over HTTP on loopback: Vultr's routes under /v2, the control routes under /_control."""

from urllib.parse import parse_qsl, urlsplit

from gpulease_sim.answers import SimResponse
from gpulease_sim.http_server import Request, ServerHandle, start
from gpulease_sim.vultr.cloud import VultrCloud
from gpulease_sim.vultr.control import control
from gpulease_sim.wall_clock import ScaledClock


def serve(cloud: VultrCloud, host: str = "127.0.0.1", port: int = 0, clock: ScaledClock | None = None) -> ServerHandle:
    """Serve the account; Vultr's base is `url + "/v2"`. `clock`: see `http_server.start`; it also tells wall times."""

    def reply(request: Request, body: bytes) -> SimResponse:
        target = urlsplit(request.path)
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        if target.path.startswith("/_control/"):
            return control(cloud, clock, request.command, target.path, query, body)
        headers = {"Authorization": request.headers.get("Authorization") or ""}
        headers["Content-Type"] = request.headers.get("Content-Type") or ""
        client = request.headers.get("X-Forwarded-For") or str(request.client_address[0])
        return cloud.handle(request.command, target.path, query, headers, body, client)

    return start(reply, name="nginx", host=host, port=port, clock=clock)
