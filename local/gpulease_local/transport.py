"""Brings a provider adapter's HTTP requests to a simulated cloud in the same process.

Invariant: to the adapter it looks like the network. A cut connection and an answer slower than the read timeout are
answers lost; the time a call takes passes on the world's clock.
"""

from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from gpulease.providers.http import Fault, RawResponse, TransportError
from gpulease_sim.vultr import ConnectionCut, SimResponse


class Cloud(Protocol):
    """A simulated provider."""

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> SimResponse:
        """Answer one call; raises ConnectionCut where no answer arrives."""
        ...


class SimulatedTransport:
    """`providers.http.Transport` on a simulated cloud. `sleep` lets the call's seconds pass."""

    def __init__(self, cloud: Cloud, sleep: Callable[[float], None]) -> None:
        self._cloud = cloud
        self._sleep = sleep

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
        """Send one request once."""
        parts = urlsplit(url)
        try:
            answer = self._cloud.handle(method, parts.path, dict(parse_qsl(parts.query)), headers, body)
        except ConnectionCut as cut:
            self._pass(min(cut.elapsed_seconds, read_timeout))
            raise TransportError(Fault.ANSWER_LOST, "connection cut") from None
        self._pass(min(answer.elapsed_seconds, read_timeout))
        if answer.elapsed_seconds > read_timeout:
            raise TransportError(Fault.ANSWER_LOST, f"no answer in {read_timeout:g} s")
        return RawResponse(answer.status, {key.lower(): value for key, value in answer.headers.items()}, answer.body)

    def _pass(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep(seconds)
