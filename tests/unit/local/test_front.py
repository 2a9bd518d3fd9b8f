"""The HTTP front lets in whom it should, and hands requests on as API Gateway does."""

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from gpulease_local.front import Front, FrontServer

from tests.support.rude_requests import send

TOKEN = "0123456789abcdef" * 2
LIMIT = 1000


class Api:
    """Remembers the events it gets, and answers what it is told."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.errors: list[BaseException] = []
        self.answer: Any = {"statusCode": 200, "body": "{}"}

    def __call__(self, event: Mapping[str, Any]) -> Any:
        self.events.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def server(api: Api) -> Iterator[FrontServer]:
    def front(port: int) -> Front:
        return Front(
            api,
            port=port,
            token=TOKEN,
            user="kim",
            now=lambda: datetime(2026, 3, 1, 12, tzinfo=UTC),
            request_id=lambda: "r-1",
            on_error=api.errors.append,
            max_body_bytes=LIMIT,
        )

    started = FrontServer(0, front)
    yield started
    started.close()


def _ask(
    server: FrontServer, method: str = "GET", path: str = "/v1/leases", body: bytes | None = None, **headers: str
) -> tuple[int, Mapping[str, str], bytes]:
    given = {"Authorization": f"Bearer {TOKEN}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, body, {name: value for name, value in given.items() if value})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def _code(content: bytes) -> str:
    return str(json.loads(content)["code"])


@pytest.mark.parametrize("given", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"])
def test_a_request_without_the_token_is_refused(server: FrontServer, api: Api, given: str) -> None:
    status, headers, content = _ask(server, Authorization=given)

    assert (status, _code(content), headers["WWW-Authenticate"]) == (401, "not_authenticated", "Bearer")
    assert api.events == []


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"nonsense\xff\x00 x\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"POST /v1/leases HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 2\r\n\r\n{}", 400),
    ],
)
def test_what_is_no_http_is_refused_in_the_same_form(server: FrontServer, api: Api, raw: bytes, expected: int) -> None:
    heard = send(server.port, raw)

    assert (heard.status, heard.content_type) == (expected, "application/problem+json")
    assert json.loads(heard.text)["status"] == expected
    assert "werkzeug" not in heard.headers.lower()
    assert api.events == []


@pytest.mark.parametrize("path", ["/v1/health", "/openapi.json"])
def test_health_and_description_are_public_and_have_no_caller(server: FrontServer, api: Api, path: str) -> None:
    status, _, _ = _ask(server, path=path, Authorization="")

    assert status == 200
    assert "authorizer" not in api.events[0]["requestContext"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "localhost.:{port}"]
)
def test_another_host_name_is_refused_even_with_the_token(server: FrontServer, api: Api, host: str) -> None:
    status, _, content = _ask(server, Host=host.format(port=server.port))

    assert (status, _code(content)) == (421, "wrong_host")
    assert api.events == []


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_the_names_of_this_computer_are_let_in(server: FrontServer, host: str) -> None:
    assert _ask(server, Host=host.format(port=server.port))[0] == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "https://localhost:{port}", "http://localhost"]
)
def test_a_web_page_of_another_site_is_refused(server: FrontServer, api: Api, origin: str) -> None:
    status, _, content = _ask(server, "POST", body=b"{}", Origin=origin.format(port=server.port))

    assert (status, _code(content)) == (403, "foreign_origin")
    assert api.events == []


def test_a_page_of_our_own_is_let_in(server: FrontServer) -> None:
    assert _ask(server, Origin=f"http://localhost:{server.port}")[0] == 200


def test_a_body_is_refused_by_its_announced_size_before_it_is_read(server: FrontServer, api: Api) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("POST", "/v1/leases")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", str(10**12))
    connection.endheaders()  # and not one byte of it

    response = connection.getresponse()

    assert (response.status, _code(response.read())) == (413, "body_too_large")
    assert api.events == []
    connection.close()


def test_a_body_without_a_length_is_refused(server: FrontServer, api: Api) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    headers = {"Authorization": f"Bearer {TOKEN}", "Transfer-Encoding": "chunked"}
    connection.request("POST", "/v1/leases", iter([b"x"]), headers, encode_chunked=True)

    response = connection.getresponse()

    assert (response.status, _code(response.read())) == (411, "length_required")
    assert api.events == []
    connection.close()


def test_a_body_of_the_largest_size_passes(server: FrontServer, api: Api) -> None:
    assert _ask(server, "POST", body=b"x" * LIMIT)[0] == 200
    assert api.events[0]["body"] == "x" * LIMIT


def test_a_request_becomes_a_payload_v2_event(server: FrontServer, api: Api) -> None:
    _ask(server, "POST", "/v1/le%61ses?a=1&a=2&b=%20", b'{"n":1}', Cookie="x=1; y=2", Idempotency_Key="k")

    event = api.events[0]
    assert (event["version"], event["rawPath"], event["rawQueryString"]) == ("2.0", "/v1/leases", "a=1&a=2&b=%20")
    assert event["queryStringParameters"] == {"a": "1,2", "b": " "}
    assert (event["body"], event["isBase64Encoded"]) == ('{"n":1}', False)
    assert event["cookies"] == ["x=1", "y=2"]
    assert event["headers"]["idempotency-key"] == "k"
    assert "authorization" not in event["headers"]
    context = event["requestContext"]
    assert context["authorizer"] == {"lambda": {"principalId": "local:kim"}}
    assert (context["http"]["method"], context["http"]["sourceIp"]) == ("POST", "127.0.0.1")
    assert (context["requestId"], context["timeEpoch"]) == ("r-1", 1772366400000)


def test_bytes_that_are_no_text_travel_as_base64(server: FrontServer, api: Api) -> None:
    _ask(server, "POST", body=b"\xff\x00")

    assert api.events[0]["isBase64Encoded"] is True
    assert base64.b64decode(api.events[0]["body"]) == b"\xff\x00"


def test_status_headers_cookies_and_body_of_the_answer_are_sent(server: FrontServer, api: Api) -> None:
    api.answer = {
        "statusCode": 202,
        "headers": {"Location": "/v1/leases/l-1", "Content-Type": "text/plain"},
        "cookies": ["a=b"],
        "body": base64.b64encode(b"\xfe").decode(),
        "isBase64Encoded": True,
    }

    status, headers, content = _ask(server)

    assert (status, content) == (202, b"\xfe")
    assert (headers["Location"], headers["Content-Type"], headers["Set-Cookie"]) == (
        "/v1/leases/l-1",
        "text/plain",
        "a=b",
    )


def test_an_answer_without_status_is_the_body(server: FrontServer, api: Api) -> None:
    api.answer = {"hello": 1}

    status, headers, content = _ask(server)

    assert (status, headers["Content-Type"], json.loads(content)) == (200, "application/json", {"hello": 1})


def test_what_the_function_raises_is_logged_and_not_shown(server: FrontServer, api: Api) -> None:
    api.answer = ValueError("a secret")

    status, _, content = _ask(server)

    assert (status, _code(content)) == (500, "internal_error")
    assert b"secret" not in content
    assert [str(error) for error in api.errors] == ["a secret"]


# --- agents -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def agents() -> Api:
    return Api()


@pytest.fixture
def agent_front(api: Api, agents: Api) -> Iterator[FrontServer]:
    """A front with somebody who answers agents, which come under the name of a tunnel."""

    def front(port: int) -> Front:
        return Front(
            api,
            port=port,
            token=TOKEN,
            user="kim",
            now=lambda: datetime(2026, 3, 1, 12, tzinfo=UTC),
            request_id=lambda: "r-1",
            on_error=api.errors.append,
            agents=agents,
            agent_host="Tunnel.example",
        )

    started = FrontServer(0, front)
    yield started
    started.close()


@pytest.mark.parametrize("host", ["", "tunnel.example"])
def test_agents_show_a_token_of_their_own_and_are_nobody_else(
    agent_front: FrontServer, api: Api, agents: Api, host: str
) -> None:
    status, _, _ = _ask(agent_front, "POST", "/v1/agent/heartbeat", b"{}", Authorization="Bearer gla_x", Host=host)

    [event] = agents.events
    assert (status, api.events) == (200, [])
    assert event["headers"]["authorization"] == "Bearer gla_x"
    assert "authorizer" not in event["requestContext"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/agent/heartbeat", {"Host": "evil.example"}, 421),
        ("/v1/agent/heartbeat", {"Origin": "http://evil.example"}, 403),
        ("/v1/leases", {"Host": "tunnel.example"}, 421),
        ("/v1/agents", {"Authorization": "Bearer gla_x"}, 401),
    ],
)
def test_what_is_open_to_agents_is_open_to_nobody_else(
    agent_front: FrontServer, api: Api, agents: Api, path: str, headers: dict[str, str], status: int
) -> None:
    assert _ask(agent_front, "POST", path, b"{}", **headers)[0] == status
    assert api.events == [] and agents.events == []


def test_without_agents_their_paths_are_the_apis(server: FrontServer, api: Api) -> None:
    assert _ask(server, "POST", "/v1/agent/heartbeat", b"{}", Authorization="Bearer gla_x")[0] == 401
    assert api.events == []
