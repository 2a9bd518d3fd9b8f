"""HTTP on loopback in front of the API function, as API Gateway stands in front of it in AWS (payload format 2.0).

Invariants: a web page in the user's browser cannot rent machines. Everything but the public paths wants the token from
a file that only the user can read; the Host must be ours (a rebound name is not) and an Origin, if any, ours as well; a
body is refused by its size before it is read. Agents' paths go to a function of their own, which checks their tokens;
they and nothing else may also come under the name by which machines reach this computer.
"""

import base64
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.http import http_date
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

HOST = "127.0.0.1"
MAX_BODY_BYTES = 1024 * 1024
IDLE_SECONDS = 30.0
"""How long a connection may say nothing."""
PROBLEM_TYPE = "application/problem+json"
PUBLIC_PATHS = frozenset({"/v1/health", "/openapi.json"})
AGENT_PATHS = "/v1/agent/"
_NAMES = (HOST, "localhost", "[::1]")
_BACKLOG = 128
_POLL_SECONDS = 0.05

ApiHandler = Callable[[Mapping[str, Any]], Any]


class Front:
    """A WSGI application over one API handler. `user` becomes the caller `local:<user>`.

    `agents`: who answers agents; `agent_host`: the name under which machines come, where that is not ours.
    """

    def __init__(
        self,
        api: ApiHandler,
        *,
        port: int,
        token: str,
        user: str,
        now: Callable[[], datetime],
        request_id: Callable[[], str],
        on_error: Callable[[BaseException], None],
        route_key: str = "$default",
        max_body_bytes: int = MAX_BODY_BYTES,
        agents: ApiHandler | None = None,
        agent_host: str = "",
    ) -> None:
        self._api = api
        self._agents = agents
        self._agent_host = agent_host.lower()
        self._hosts = frozenset(f"{name}:{port}" for name in _NAMES)
        self._token = token.encode()
        self._user = user
        self.now = now
        self._request_id = request_id
        self._on_error = on_error
        self._route_key = route_key
        self._max_body_bytes = max_body_bytes

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        return self._respond(request)(environ, start_response)

    def _respond(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        if "Transfer-Encoding" in request.headers:
            return _problem(411, "length_required", "send the body with a Content-Length, not in chunks")
        request.max_content_length = self._max_body_bytes
        try:
            body = request.get_data()
        except RequestEntityTooLarge:
            return _problem(413, "body_too_large", f"a body may have {self._max_body_bytes} bytes")
        except (ClientDisconnected, OSError):
            return _problem(400, "body_cut_off", "the body ended before its Content-Length")
        try:
            if self._is_agents(request) and self._agents is not None:
                event = self._event(request, body)
                event["headers"]["authorization"] = request.headers.get("Authorization", "")
                event["requestContext"].pop("authorizer", None)
                return _response(self._agents(event))
            return _response(self._api(self._event(request, body)))
        except Exception as error:
            self._on_error(error)
            return _problem(500, "internal_error", "something went wrong here; see the log")

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("Host", "").lower()
        if self._is_agents(request) and host and host in (*self._hosts, self._agent_host):
            return None
        if host not in self._hosts:
            return _problem(421, "wrong_host", "this server answers to 127.0.0.1 and localhost only")
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower().removeprefix("http://") not in self._hosts:
            return _problem(403, "foreign_origin", "other web sites may not use this server")
        if request.path in PUBLIC_PATHS or self._authorized(request):
            return None
        refusal = _problem(401, "not_authenticated", "send `Authorization: Bearer <token>`; see api.json")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    def _is_agents(self, request: Request) -> bool:
        return self._agents is not None and request.path.startswith(AGENT_PATHS) and "Origin" not in request.headers

    def _authorized(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)

    def _event(self, request: Request, body: bytes) -> dict[str, Any]:
        """The request as API Gateway hands it on.

        https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
        """
        now = self.now()
        text, encoded = _text(body)
        query = {key: ",".join(values) for key, values in request.args.to_dict(flat=False).items()}
        cookies = [part.strip() for part in request.headers.get("Cookie", "").split(";") if part.strip()]
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": self._route_key,
            "rawPath": request.path,
            "rawQueryString": request.query_string.decode("latin-1"),
            "headers": _headers(request),
            "requestContext": {
                "accountId": "000000000000",
                "apiId": "local",
                "domainName": HOST,
                "domainPrefix": "local",
                "http": {
                    "method": request.method,
                    "path": request.path,
                    "protocol": request.environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
                    "sourceIp": request.remote_addr or HOST,
                    "userAgent": request.headers.get("User-Agent", ""),
                },
                "requestId": self._request_id(),
                "routeKey": self._route_key,
                "stage": "$default",
                "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
                "timeEpoch": int(now.timestamp() * 1000),
            },
            "isBase64Encoded": encoded,
        }
        if self._authorized(request):
            event["requestContext"]["authorizer"] = {"lambda": {"principalId": f"local:{self._user}"}}
        if self._route_key.endswith("/{proxy+}"):
            event["pathParameters"] = {"proxy": request.path.removeprefix("/")}
        if query:
            event["queryStringParameters"] = query
        if cookies:
            event["cookies"] = cookies
        if body:
            event["body"] = text
        return event


class FrontServer:
    """The front on a loopback port, in threads of its own; port 0 picks a free one. Raises OSError when it is taken."""

    def __init__(self, port: int, front: Callable[[int], Front]) -> None:
        self._socket = socket.create_server((HOST, port), backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        application = front(self.port)

        class Handler(_Quiet):
            now = staticmethod(application.now)

        self._server: BaseWSGIServer = make_server(
            HOST, self.port, application, threaded=True, request_handler=Handler, fd=self._socket.fileno()
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="front", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://{HOST}:{self.port}"

    def close(self) -> None:
        """Take no more requests."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._socket.close()


class _Quiet(WSGIRequestHandler):
    """No line on the terminal per request, and no connection that waits for ever."""

    timeout = IDLE_SECONDS
    now: Callable[[], datetime]

    def parse_request(self) -> bool:
        """Refuse also a body of two lengths: which of them is read depends on the reader."""
        if not super().parse_request():
            return False
        if len(self.headers.get_all("Content-Length", ())) > 1:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no HTTP is refused in the API's own form too, without repeating it."""
        self.close_connection = True
        if (
            self.request_version == "HTTP/0.9"
        ):  # not known yet; an answer of that version has neither status nor headers
            self.request_version = "HTTP/1.0"
        status = HTTPStatus(code)
        body = _problem_text(status, status.name.lower(), "this is no request that the server could read")
        self.send_response(status)
        self.send_header("Content-Type", PROBLEM_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body.encode())

    def version_string(self) -> str:
        """The Server header names no versions."""
        return "gpulease"

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header: clients count the ages of our times from it, and a simulated cloud's clock may run fast."""
        return http_date(self.now())

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing: requests that matter are in the lease's own events."""


def _headers(request: Request) -> dict[str, str]:
    """Lower case, several of one name joined. The token has done its work and is not handed on."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        if key in ("authorization", "cookie"):
            continue
        headers[key] = f"{headers[key]},{value}" if key in headers else value
    return headers


def _text(body: bytes) -> tuple[str, bool]:
    try:
        return body.decode("utf-8"), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii"), True


def _response(answer: Any) -> Response:
    """What a function returned, as API Gateway reads it: without a statusCode the whole value is the body."""
    if not isinstance(answer, dict) or "statusCode" not in answer:
        return Response(json.dumps(answer), status=200, content_type="application/json")
    body = answer.get("body") or ""
    content = base64.b64decode(body) if answer.get("isBase64Encoded") else str(body).encode()
    response = Response(content, status=int(answer["statusCode"]))
    given = answer.get("headers") or {}
    if not any(name.lower() == "content-type" for name in given):
        response.headers["Content-Type"] = "application/json"
    for name, value in given.items():
        response.headers[name] = str(value)
    for cookie in answer.get("cookies") or ():
        response.headers.add("Set-Cookie", cookie)
    return response


def _problem(status: int, code: str, detail: str) -> Response:
    return Response(_problem_text(status, code, detail), status=status, content_type=PROBLEM_TYPE)


def _problem_text(status: int, code: str, detail: str) -> str:
    return json.dumps({"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail})
