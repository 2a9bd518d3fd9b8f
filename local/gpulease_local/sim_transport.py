"""A transport that ends in a simulated Vultr in this process, without sockets.

A call that takes longer than the caller waits is answered too late, as over a network: carried out, answer lost.
"""

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlsplit

from gpulease.providers.http import Fault, RawResponse, TransportError
from gpulease_sim.answers import ConnectionCut
from gpulease_sim.vultr.cloud import DEFAULT_ADDRESS, VultrCloud


class SimTransport:
    """`gpulease.providers.http.Transport` on a `VultrCloud`.

    `passed(seconds)` is told how long each call took on the simulator's clock; a virtual clock may be moved by it.
    """

    def __init__(
        self,
        cloud: VultrCloud,
        *,
        passed: Callable[[float], None] | None = None,
        client: str = DEFAULT_ADDRESS,
    ) -> None:
        self._cloud = cloud
        self._passed = passed or (lambda seconds: None)
        self._client = client

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        read_timeout: float,
    ) -> RawResponse:
        """One call. Raises TransportError(ANSWER_LOST) when the connection was cut or the answer came too late."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            answer = self._cloud.handle(method, parts.path, query, headers, body, self._client)
        except ConnectionCut as cut:
            self._passed(min(cut.elapsed_seconds, read_timeout))
            raise TransportError(Fault.ANSWER_LOST, "connection closed") from None
        self._passed(min(answer.elapsed_seconds, read_timeout))
        if answer.elapsed_seconds > read_timeout:
            raise TransportError(Fault.ANSWER_LOST, f"nothing within {read_timeout:g} s")
        return RawResponse(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.body)


class NoTransport:
    """A transport for accounts that are not reached by it."""

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        read_timeout: float,
    ) -> RawResponse:
        """Raises TransportError: there is nothing at the other end."""
        raise TransportError(Fault.NOT_SENT, f"no transport for {url}")
