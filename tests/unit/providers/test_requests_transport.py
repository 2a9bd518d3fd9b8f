"""The transport over sockets: no redirects, no repeats, a size limit, and which failures certainly sent nothing."""

import contextlib
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gpulease.providers.http import Fault, RawResponse, TransportError
from gpulease.providers.requests_transport import RequestsTransport

from tests.support.provider_world import KEY


@contextmanager
def server(reply: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answers each connection's first request with these bytes and closes."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def run() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):  # the client may hang up first
                    seen.append(connection.recv(65536))
                    connection.sendall(reply)
                    # An orderly end: closing with unread bytes would reset the connection.
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}", seen
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def transport() -> Iterator[RequestsTransport]:
    made = RequestsTransport(monotonic=lambda: 0.0, max_bytes=10_000)
    yield made
    made.close()


def send(transport: RequestsTransport, url: str, method: str = "POST", read_timeout: float = 5) -> RawResponse:
    return transport.send(
        method,
        url,
        headers={"Authorization": f"Bearer {KEY}"},
        body=b"{}",
        connect_timeout=2,
        read_timeout=read_timeout,
    )


def http(status: str, body: bytes, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def test_an_answer_comes_with_lower_case_headers(transport: RequestsTransport) -> None:
    with server(http("202 Accepted", b"{}", "X-Request-Id: r-1")) as (url, seen):
        raw = send(transport, url)

    assert (raw.status, raw.body, raw.headers["x-request-id"]) == (202, b"{}", "r-1")
    assert len(seen) == 1 and KEY.encode() in seen[0]


def test_a_redirect_is_not_followed(transport: RequestsTransport) -> None:
    with server(b"") as (elsewhere, visited), server(http("302 Found", b"", f"Location: {elsewhere}/")) as (url, _):
        assert send(transport, url, "GET").status == 302

    assert not visited


def test_an_answer_over_the_limit_is_dropped(transport: RequestsTransport) -> None:
    with server(http("200 OK", b"x" * 20_000)) as (url, _), pytest.raises(TransportError) as caught:
        send(transport, url)

    assert caught.value.fault is Fault.TOO_LARGE


@pytest.mark.parametrize("reply", [b"", http("200 OK", b"{}")[:-1], b"no http at all\r\n\r\n"])
def test_a_connection_that_breaks_off_means_a_lost_answer_and_one_call(
    transport: RequestsTransport, reply: bytes
) -> None:
    with server(reply) as (url, seen), pytest.raises(TransportError) as caught:
        send(transport, url)

    assert caught.value.fault is Fault.ANSWER_LOST
    assert len(seen) == 1


def test_an_answer_that_drips_in_is_given_up(transport: RequestsTransport) -> None:
    ticks = iter(range(0, 10_000, 10))
    slow = RequestsTransport(monotonic=lambda: float(next(ticks)))
    chunks = b"".join(b"190\r\n" + b"x" * 400 + b"\r\n" for _ in range(500))
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    with server(reply) as (url, _), pytest.raises(TransportError) as caught:
        send(slow, url)
    slow.close()

    assert caught.value.fault is Fault.ANSWER_LOST


def test_a_refused_connection_was_certainly_not_sent(transport: RequestsTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    with pytest.raises(TransportError) as caught:
        send(transport, f"http://127.0.0.1:{port}")

    assert caught.value.fault is Fault.NOT_SENT


def test_silence_until_the_timeout_means_a_lost_answer(transport: RequestsTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TransportError) as caught:
        send(transport, f"http://127.0.0.1:{silent.getsockname()[1]}", read_timeout=0.2)

    assert caught.value.fault is Fault.ANSWER_LOST


def test_a_failure_does_not_carry_the_request_that_holds_the_key(transport: RequestsTransport) -> None:
    with server(b"") as (url, _), pytest.raises(TransportError) as caught:
        send(transport, url)

    error = caught.value
    assert error.__context__ is None and error.__cause__ is None
    assert KEY not in "".join(traceback.format_exception(error)) + repr(vars(error))


def test_an_entry_in_a_netrc_file_does_not_replace_the_key(
    transport: RequestsTransport, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    with server(http("200 OK", b"{}")) as (url, seen):
        send(transport, url)

    assert f"Bearer {KEY}".encode() in seen[0] and b"Basic" not in seen[0]
