"""boto3 clients that end in a simulated account in this process, without sockets.

A `before-send` hook hands the signed request to the account and gives the answer back as botocore's own response, so
everything above the socket is the real client: serialization, signing, parsing, waiters, paginators, retries.
"""

import io
from collections.abc import Callable
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from moto.core.models import botocore_stubber

from gpulease_sim.answers import ConnectionCut
from gpulease_sim.aws.cloud import AwsCloud


def connect(client: Any, cloud: AwsCloud, *, passed: Callable[[float], None] | None = None) -> None:
    """Make all calls of this client end in `cloud`.

    `passed(seconds)` is told how long each call took on the simulator's clock; a virtual clock may be moved by it. What
    takes longer than the client's read timeout is carried out and raises ReadTimeoutError; a cut connection raises
    ConnectionClosedError (or ReadTimeoutError when that much time went by).
    """
    timeout = float(client.meta.config.read_timeout or 60)
    tell = passed or (lambda seconds: None)

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        body: Any = request.body or b""
        headers = {name: _text(value) for name, value in request.headers.items()}
        try:
            answer = cloud.handle(headers, body.encode() if isinstance(body, str) else bytes(body))
        except ConnectionCut as cut:
            tell(min(cut.elapsed_seconds, timeout))
            if cut.elapsed_seconds >= timeout:
                raise ReadTimeoutError(endpoint_url=request.url, error="simulated") from None
            raise ConnectionClosedError(endpoint_url=request.url, error="simulated") from None
        tell(min(answer.elapsed_seconds, timeout))
        if answer.elapsed_seconds > timeout:
            raise ReadTimeoutError(endpoint_url=request.url, error="simulated")
        return AWSResponse(request.url, answer.status, answer.headers, _Raw(answer.body))  # type: ignore[arg-type]

    # Where moto was told to intercept all calls of this process, it would carry these out in its own account too.
    client.meta.events.unregister("before-send", botocore_stubber)
    client.meta.events.register_first("before-send", send)


class _Raw(io.BytesIO):
    """What botocore expects of urllib3's response."""

    def stream(self, **_: Any) -> Any:
        """The whole body in one piece."""
        yield self.read()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
