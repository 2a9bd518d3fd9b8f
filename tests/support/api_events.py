"""Requests as the gateway sends them (payload format 2.0), and answers as a client sees them."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode

ALICE = "arn:aws:iam::111122223333:user/alice"
BOB = "arn:aws:iam::111122223333:user/bob"


class Resolves(Protocol):
    def resolve(self, event: Any, context: Any) -> dict[str, Any]: ...


def api_event(
    method: str,
    path: str,
    body: object = None,
    *,
    query: str = "",
    pairs: Mapping[str, str] | None = None,
    owner: str | None = ALICE,
    headers: Mapping[str, str] | None = None,
    authorizer: Mapping[str, Any] | None = None,
    as_base64: bool = False,
    request_id: str = "request-1",
) -> dict[str, Any]:
    """One event. `body`: str and bytes go as they are, anything else as JSON. `owner` None = nobody.

    `query` is written as in a URL; `pairs` instead of it are names and values as they are.
    """
    sent = {"host": "api.test", "content-type": "application/json"}
    sent |= {name.lower(): value for name, value in (headers or {}).items()}
    if pairs is not None:
        query = urlencode(pairs)
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        given.setdefault(name, []).append(value)
    context: dict[str, Any] = {
        "accountId": "111122223333",
        "apiId": "api",
        "domainName": "api.test",
        "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "test"},
        "requestId": request_id,
        "routeKey": "$default",
        "stage": "$default",
    }
    if authorizer is not None:
        context["authorizer"] = dict(authorizer)
    elif owner is not None:
        context["authorizer"] = {"iam": {"userArn": owner}}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": sent,
        "requestContext": context,
        "isBase64Encoded": False,
    }
    if given:
        # The gateway joins what is repeated with commas.
        event["queryStringParameters"] = {name: ",".join(values) for name, values in given.items()}
    if body is not None:
        raw = body if isinstance(body, str | bytes) else json.dumps(body)
        if as_base64 or isinstance(raw, bytes):
            raw = raw.encode() if isinstance(raw, str) else raw
            event["body"], event["isBase64Encoded"] = base64.b64encode(raw).decode(), True
        else:
            event["body"] = raw
    return event


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """Calls an app as one user."""

    def __init__(self, app: Resolves, owner: str | None = ALICE) -> None:
        self.app = app
        self.owner = owner

    def __call__(self, method: str, path: str, body: object = None, **how: Any) -> Answer:
        raw = self.app.resolve(api_event(method, path, body, **{"owner": self.owner, **how}), None)
        text = raw["body"]
        if raw.get("isBase64Encoded"):
            text = base64.b64decode(text).decode()
        return Answer(raw["statusCode"], {k.lower(): v for k, v in raw["headers"].items()}, text)

    def post(self, body: object, **how: Any) -> Answer:
        return self("POST", "/v1/leases", body, **how)

    def get(self, path: str, **how: Any) -> Answer:
        return self("GET", path, **how)

    def delete(self, path: str, **how: Any) -> Answer:
        return self("DELETE", path, **how)
