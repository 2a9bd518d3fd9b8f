"""The one transport: what is repeated, what counts as an answer, and that the key stays where it belongs."""

import json
import traceback
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from gpulease.errors import (
    ProviderAuthFailed,
    ProviderError,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.providers.http import (
    GET_PAUSES_SECONDS,
    MAX_MESSAGE_CHARACTERS,
    ApiClient,
    Fault,
    RawResponse,
    Reply,
    TransportError,
    mask,
)

from tests.support.provider_world import KEY, OneKey

Answer = RawResponse | TransportError
WRITES = ["POST", "PUT", "PATCH", "DELETE"]


class Scripted:
    """Gives these answers in order, the last one for ever, and keeps what was sent."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, Mapping[str, str], bytes]] = []
        self.timeouts: list[tuple[float, float]] = []

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
        self.sent.append((method, url, headers, body))
        self.timeouts.append((connect_timeout, read_timeout))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, TransportError):
            raise answer
        return answer


def answer(status: int, body: Any = None, **headers: str) -> RawResponse:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return RawResponse(status, {"content-type": "application/json", **names}, raw)


def client(transport: Scripted, secrets: OneKey | None = None, slept: list[float] | None = None) -> ApiClient:
    store = secrets or OneKey()
    return ApiClient(
        transport,
        provider="vultr",
        base_url="https://api.example/v2/",
        key=lambda fresh: store.provider_key("vultr", fresh=fresh),
        sleep=(slept if slept is not None else []).append,
    )


def test_a_call_carries_the_key_and_json() -> None:
    transport = Scripted(answer(200, {"a": 1.10}))

    reply = client(transport).call("POST", "/x", query=[("tag", "a:b c&d")], body={"k": "ü"})

    method, url, headers, body = transport.sent[0]
    assert (method, url) == ("POST", "https://api.example/v2/x?tag=a%3Ab+c%26d")
    assert headers["Authorization"] == f"Bearer {KEY}" and headers["Content-Type"] == "application/json"
    assert json.loads(body) == {"k": "ü"}
    assert reply.value("a") == Decimal("1.1")


LOST = TransportError(Fault.ANSWER_LOST, "x")
UNREACHED = TransportError(Fault.NOT_SENT, "x")


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize(
    "trouble",
    [LOST, UNREACHED, answer(500), answer(502, b"<html>"), answer(503), answer(504), answer(429), answer(200, b"{")],
)
def test_a_call_that_changes_something_is_sent_once(method: str, trouble: Answer) -> None:
    transport, slept = Scripted(trouble), list[float]()

    try:
        client(transport, slept=slept).call(method, "/x", body={})
    except ProviderError:
        pass
    else:
        assert trouble is not LOST and isinstance(trouble, RawResponse) and trouble.status == 500

    assert len(transport.sent) == 1 and not slept


@pytest.mark.parametrize("trouble", [LOST, UNREACHED, answer(502, b"<html>"), answer(504), answer(200, b"{")])
def test_a_read_is_tried_three_times(trouble: Answer) -> None:
    transport, slept = Scripted(trouble, trouble, answer(200, {"ok": 1})), list[float]()

    assert client(transport, slept=slept).call("GET", "/x").value("ok") == 1

    assert len(transport.sent) == 3 and slept == list(GET_PAUSES_SECONDS)
    with pytest.raises(ProviderUnavailable):
        client(Scripted(trouble)).call("GET", "/x")


def test_reads_wait_less_long_than_writes_and_a_write_less_than_a_minute() -> None:
    transport = Scripted(answer(200, {}))

    client(transport).call("GET", "/x")
    client(transport).call("POST", "/x", body={})

    (_, read), (connect, write) = transport.timeouts
    assert read < write and connect + write <= 60


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (answer(200, b"<html>502 Bad Gateway</html>"), ProviderUnavailable),
        (answer(200, b'{"a": '), ProviderUnavailable),
        (answer(200, b"\xff\xfe"), ProviderUnavailable),
        (answer(200, b"[" * 100_000), ProviderUnavailable),
        (answer(200, b"null"), ProviderUnavailable),
        (answer(200, [1]), ProviderUnexpected),
        (answer(200, "text"), ProviderUnexpected),
        (answer(301, b"", location="https://elsewhere/"), ProviderUnexpected),
        (answer(101), ProviderUnexpected),
        (answer(408, {"error": "x"}), ProviderUnavailable),
        (answer(522, b"<html>"), ProviderUnavailable),
        (answer(429, {"error": "x"}), ProviderThrottled),
        (answer(401, {"error": "Invalid API token."}), ProviderAuthFailed),
        (answer(403, {"error": "x"}), ProviderAuthFailed),
    ],
)
def test_what_is_no_answer_of_the_api_is_an_error(raw: RawResponse, kind: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        client(Scripted(raw)).call("GET", "/x")

    assert type(caught.value) is kind
    assert caught.value.facts.status == raw.status and caught.value.facts.path == "/x"


def test_an_empty_answer_has_no_values() -> None:
    reply = client(Scripted(answer(200))).call("GET", "/x")

    with pytest.raises(ProviderUnexpected, match="instance"):
        reply.value("instance")


def test_a_too_large_answer_is_unexpected() -> None:
    with pytest.raises(ProviderUnexpected):
        client(Scripted(TransportError(Fault.TOO_LARGE))).call("GET", "/x")


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_a_refusal_keeps_its_text_status_and_request_id(status: int) -> None:
    reply = client(Scripted(answer(status, {"error": "No such box.", "status": status}, x_request_id="r-1"))).call(
        "DELETE", "/x"
    )

    assert not reply.ok and reply.text == "No such box."
    assert (reply.facts.status, reply.facts.request_id, reply.facts.method) == (status, "r-1", "DELETE")


@pytest.mark.parametrize("body", [b"", b"<html>long page</html>", b"[]", b'{"error": 7}', b'{"error"'])
def test_a_refusal_without_a_text_says_so(body: bytes) -> None:
    assert client(Scripted(answer(404, body))).call("DELETE", "/x").text.startswith("no error text")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "7.5"}, 7.5),
        ({"retry_after": "100000"}, 60),
        ({"retry_after": "-3"}, 0),
        ({"retry_after": "nan"}, 0),
        ({"retry_after": "soon"}, 0),
        ({}, 0),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10),
        ({"retry_after": "Wed, 21 Oct 2026 08:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 60),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:10 GMT"}, 0),
    ],
)
def test_retry_after_is_read_and_capped(headers: dict[str, str], seconds: float) -> None:
    with pytest.raises(ProviderThrottled) as caught:
        client(Scripted(answer(429, {"error": "x"}, **headers))).call("POST", "/x", body={})

    assert caught.value.facts.retry_after_seconds == seconds


def test_after_a_401_a_rotated_key_is_read_and_used_once() -> None:
    secrets = OneKey("OLDKEY-0000000000")
    secrets.stored = "NEWKEY-0000000000"
    transport = Scripted(answer(401, {"error": "Invalid API token."}), answer(202, {"a": 1}))

    assert client(transport, secrets).call("POST", "/x", body={}).ok

    assert [h["Authorization"] for _, _, h, _ in transport.sent] == [
        "Bearer OLDKEY-0000000000",
        "Bearer NEWKEY-0000000000",
    ]
    assert secrets.fresh_reads == 1


def test_after_a_401_with_the_same_key_nothing_is_sent_again() -> None:
    transport = Scripted(answer(401, {"error": "Invalid API token."}))

    with pytest.raises(ProviderAuthFailed):
        client(transport).call("GET", "/x")

    assert len(transport.sent) == 1


def test_a_403_does_not_read_the_key_again() -> None:
    secrets = OneKey()

    with pytest.raises(ProviderAuthFailed):
        client(Scripted(answer(403, {"error": "x"})), secrets).call("GET", "/x")

    assert secrets.fresh_reads == 0


@pytest.mark.parametrize("key", ["", "  ", "with\nnewline", "ключ", "tab\tkey"])
def test_a_key_that_cannot_be_one_is_not_sent(key: str) -> None:
    transport = Scripted(answer(200, {}))

    with pytest.raises(ProviderAuthFailed) as caught:
        client(transport, OneKey(key)).call("GET", "/x")

    assert not transport.sent
    assert not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize(
    "trouble",
    [
        answer(401, {"error": f"Invalid token {KEY}"}, x_request_id=KEY),
        answer(403, {"error": f"Authorization: Bearer {KEY}x"}),
        answer(429, {"error": KEY}),
        answer(502, f"<html>{KEY}</html>".encode()),
        answer(200, f'"{KEY}"'.encode()),
        answer(200, f"<{KEY}>".encode()),
        TransportError(Fault.ANSWER_LOST, f"headers {KEY}"),
    ],
)
def test_the_key_is_in_no_error_and_no_traceback(trouble: Answer) -> None:
    with pytest.raises(ProviderError) as caught:
        client(Scripted(trouble)).call("POST", "/x", body={})

    shown = "".join(traceback.format_exception(caught.value, chain=False)) + repr(caught.value.facts)
    assert KEY not in shown


def test_neither_client_nor_reply_shows_key_or_data() -> None:
    api = client(Scripted(answer(200, {"default_password": "hunter2"})))

    reply = api.call("POST", "/x", body={})

    assert KEY not in repr(api)
    assert "hunter2" not in repr(reply)
    assert isinstance(reply, Reply)


def test_masked_text_is_short_and_on_one_line() -> None:
    assert mask(f"a\n\x1b[31m{KEY}{KEY} bearer abc.def", KEY) == "a  [31m****** Bearer ***"
    assert len(mask("x" * 900, KEY)) == MAX_MESSAGE_CHARACTERS
