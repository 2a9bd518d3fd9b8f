"""The simulated account over HTTP on loopback: all services at one address, the control routes under /_control."""

from urllib.parse import parse_qsl, urlsplit

from gpulease_sim.answers import SimResponse
from gpulease_sim.aws.cloud import AwsCloud
from gpulease_sim.aws.control import control
from gpulease_sim.http_server import Request, ServerHandle, start
from gpulease_sim.wall_clock import ScaledClock


def serve(cloud: AwsCloud, host: str = "127.0.0.1", port: int = 0, clock: ScaledClock | None = None) -> ServerHandle:
    """Serve the account; `url` is what boto3 takes as `endpoint_url`. `clock`: see `http_server.start`; it also tells
    wall times."""

    def reply(request: Request, body: bytes) -> SimResponse:
        target = urlsplit(request.path)
        if target.path.startswith("/_control/"):
            return control(cloud, clock, request.command, target.path, dict(parse_qsl(target.query)), body)
        return cloud.handle(request.headers, body or target.query.encode())  # type: ignore[arg-type]  # its get ignores case

    return start(reply, name="AmazonEC2", host=host, port=port, clock=clock)
