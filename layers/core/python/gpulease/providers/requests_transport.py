"""The transport of real use: `requests`, imported at the first call, so that a step that calls nobody does not pay."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gpulease.providers.http import MAX_RESPONSE_BYTES, Fault, RawResponse, TransportError

if TYPE_CHECKING:
    import requests

_CHUNK_BYTES = 64 * 1024


class RequestsTransport:
    """Over the network, with connections kept alive. `monotonic` bounds the whole of an answer that drips in slowly.

    The environment is not asked for proxies, certificates or a netrc (whose entry would replace our header).
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        proxies: Mapping[str, str] | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._monotonic = monotonic
        self._proxies = dict(proxies or {})
        self._max_bytes = max_bytes
        self._session: requests.Session | None = None

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
        import requests
        from urllib3.exceptions import HTTPError

        deadline = self._monotonic() + connect_timeout + read_timeout
        # The error is raised after the except block, so that it has no context: those exceptions hold the request.
        try:
            with self._open().request(
                method,
                url,
                headers=dict(headers),
                data=body or None,
                timeout=(connect_timeout, read_timeout),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = self._read(response, deadline)
                if isinstance(content, bytes):
                    lower = {name.lower(): value for name, value in response.headers.items()}
                    return RawResponse(response.status_code, lower, content)
                error = content
        except (requests.RequestException, HTTPError, OSError) as exc:
            error = TransportError(_fault_of(exc), type(exc).__name__)
        raise error

    def close(self) -> None:
        """Close kept connections."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open(self) -> "requests.Session":
        if self._session is None:
            import requests

            self._session = requests.Session()
            self._session.trust_env = False
            self._session.proxies.update(self._proxies)
        return self._session

    def _read(self, response: "requests.Response", deadline: float) -> bytes | TransportError:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            content += chunk
            if len(content) > self._max_bytes:
                return TransportError(Fault.TOO_LARGE, f"over {self._max_bytes} bytes")
            if self._monotonic() > deadline:
                return TransportError(Fault.ANSWER_LOST, "not complete in time")
        return bytes(content)


def _fault_of(exc: Exception) -> Fault:
    """NOT_SENT only where it is certain."""
    import requests
    from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError

    if isinstance(exc, requests.ConnectTimeout | requests.exceptions.InvalidURL):
        return Fault.NOT_SENT
    cause: object = exc.args[0] if exc.args else None
    if isinstance(cause, MaxRetryError):
        cause = cause.reason
    # NameResolutionError is a NewConnectionError.
    return Fault.NOT_SENT if isinstance(cause, NewConnectionError | ConnectTimeoutError) else Fault.ANSWER_LOST
