"""Requests no client sends by mistake, byte by byte: too big, too deep, wrongly encoded, tricks in path and headers.

Each must be refused in words (problem details) by a server that goes on; none may rent anything. They are written as
raw bytes, because every HTTP library mends or refuses half of them itself.
"""

import gzip
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from gpulease.api.problems import CONTENT_TYPE, ProblemDetails
from pydantic import ValidationError

TIMEOUT_SECONDS = 20.0
TRACE_SIGNS = ("Traceback (most recent", 'File "/', "site-packages/")
JSON_TYPE = "Content-Type: application/json"
_LEASES = "POST /v1/leases HTTP/1.1"
_LIST = "GET /v1/leases HTTP/1.1"


@dataclass(frozen=True)
class Rude:
    """`raw` as sent; `statuses` are right answers."""

    name: str
    raw: bytes
    statuses: tuple[int, ...]


@dataclass(frozen=True)
class Heard:
    status: int
    content_type: str
    text: str
    headers: str


def rude_requests(port: int, token: str) -> Iterator[Rude]:
    """All of them, for a server on this port."""
    make = _Maker(port, token)
    yield from _bodies(make)
    yield from _paths(make)
    yield from _headers(make)
    yield from _framing(make)


def send(port: int, raw: bytes) -> Heard:
    """Send these bytes and read what comes back. Raises OSError, or ValueError when it is no HTTP answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # Refused before all of it was read; the answer may be there nevertheless.
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"no HTTP answer: {answer[:100]!r}")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return Heard(int(rest[:3]), fields.get("content-type", ""), body.decode("utf-8", "replace"), "\n".join(lines))


def complaint(rude: Rude, heard: Heard) -> str:
    """What is wrong with the answer; empty when nothing is."""
    if heard.status not in rude.statuses:
        return f"{rude.name}: answered {heard.status}, not {rude.statuses}: {heard.text[:200]}"
    if any(sign in heard.text or sign in heard.headers for sign in TRACE_SIGNS):
        return f"{rude.name}: the answer shows a stack trace: {heard.text[:200]}"
    if heard.status < 400:
        return ""
    if heard.content_type != CONTENT_TYPE:
        return f"{rude.name}: refused as {heard.content_type or 'nothing'}, not as problem details"
    try:
        problem = ProblemDetails.model_validate_json(heard.text)
    except ValidationError as error:
        return f"{rude.name}: no problem details ({error.error_count()} faults): {heard.text[:200]}"
    return "" if problem.status == heard.status else f"{rude.name}: says {problem.status} in the body"


class _Maker:
    def __init__(self, port: int, token: str) -> None:
        self.host = f"Host: 127.0.0.1:{port}"
        self.auth = f"Authorization: Bearer {token}"
        self.token = token

    def raw(self, line: str, *headers: str, body: bytes | None = None) -> bytes:
        """A request with exactly these headers, and the length of the body if there is one."""
        length = () if body is None else (f"Content-Length: {len(body)}",)
        return "\r\n".join((line, *headers, *length, "Connection: close", "", "")).encode("latin-1") + (body or b"")

    def known(self, line: str, *headers: str, body: bytes | None = None) -> bytes:
        """The same from an authorised caller."""
        return self.raw(line, self.host, self.auth, *headers, body=body)

    def lease(self, body: bytes, *headers: str) -> bytes:
        return self.known(_LEASES, *(headers or (JSON_TYPE,)), body=body)


def _bodies(make: _Maker) -> Iterator[Rude]:
    script = json.dumps({"start_script": "x" * 300_000}).encode()
    yield Rude("over the API's limit", make.lease(script), (413,))
    yield Rude("over the limit in escapes", make.lease(b'{"name":"' + b"\\u0061" * 50_000 + b'"}'), (413,))
    yield Rude("over the front's limit", make.lease(b'{"name":"' + b"a" * 1_100_000 + b'"}'), (413,))
    yield Rude("2 GiB announced", make.known(_LEASES, JSON_TYPE, "Content-Length: 2147483648"), (413,))
    yield Rude("a script of 33 KiB", make.lease(json.dumps({"start_script": "x" * 33_000}).encode()), (422,))
    yield Rude("100,000 brackets", make.lease(b"[" * 100_000), (400,))
    yield Rude("20,000 objects in each other", make.lease(b'{"a":' * 20_000 + b"1" + b"}" * 20_000), (400, 422))
    yield Rude("900 objects in a label", make.lease(b'{"labels":' * 900 + b"1" + b"}" * 900), (400, 422))
    yield Rude("200,000 labels", make.lease(b'{"gpu":[' + b"1," * 100_000 + b"1]}"), (422,))
    bad = {
        "a byte of no UTF-8": b'{"name":"\xff"}',
        "an overlong slash": b'{"name":"\xc0\xaf"}',
        "a surrogate in UTF-8": b'{"name":"\xed\xa0\x80"}',
        "UTF-16": '{"name":"a"}'.encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf{}",
        "NUL bytes": b'{"name":"a"}\x00\x00',
        "an empty body": b"",
        "blanks": b"   \r\n ",
        "half a document": b'{"name":"a',
        "a name twice": b'{"gpu_count":1,"gpu_count":8}',
        "NaN": b'{"min_memory_gib":NaN}',
        "infinity": b'{"min_memory_gib":1e999}',
        "5,000 digits": b'{"gpu_count":' + b"9" * 5_000 + b"}",
        "a list": b"[]",
        "null": b"null",
        "two documents": b"{}{}",
        "gzip": gzip.compress(b"{}", mtime=0),
    }
    for name, body in bad.items():
        yield Rude(name, make.lease(body), (400,))
    yield Rude("gzip by name", make.lease(bad["gzip"], JSON_TYPE, "Content-Encoding: gzip"), (400, 415))
    wrong = {
        "a lone surrogate": b'{"name":"\\ud800"}',
        "a NUL in a name": b'{"name":"a\\u0000b"}',
        "a line break in a name": b'{"name":"box\\n"}',
        "a line break in a label": b'{"labels":{"a":"b\\nc: d"}}',
        "a line break after a key": b'{"ssh_keys":["ssh-ed25519 AAAA\\nssh-rsa BBBB"]}',
        "a marker of ours for an image": b'{"image":"gpulease:x;rm -rf /"}',
        "a class's attribute": b'{"__class__":"x"}',
        "an owner": b'{"owner":"somebody"}',
        "a price of 10 to the 400th": b'{"max_price_per_hour_usd":"1e400000000"}',
        "a negative price": b'{"max_price_per_hour_usd":"-1"}',
    }
    for name, body in wrong.items():
        yield Rude(name, make.lease(body), (422,))
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application",
    ):
        yield Rude(f"a body of type {kind or 'nothing'}", make.lease(b"{}", f"Content-Type: {kind}"), (415,))


def _paths(make: _Maker) -> Iterator[Rude]:
    lease = "/v1/leases/l-aaaaaaaaaaaa"
    for path in (
        "/v1/leases/../../etc/passwd",
        "/v1/leases/%2e%2e/%2e%2e/etc/passwd",
        "/v1/leases/..%2f..%2fetc%2fpasswd",
        "/v1/leases/%252e%252e",
        "/v1/leases/l-aaaaaaaaaaa%C0%AF",
        f"{lease}%00",
        f"{lease}%0d%0aX-Evil:%201",
        f"{lease}%0a",
        f"{lease}/events/../../x",
        "/v1/leases/%ff%fe",
        "/v1/leases/<script>alert(1)</script>",
        "/v1/leases/' OR 1=1 --".replace(" ", "%20"),
        "/v1/leases/" + "a" * 5_000,
        "/v1/leases/\xe4\xf6",
        "/v1//leases",
        "/v1/leases;x=1",
        "/V1/LEASES",
        "/v1\\leases",
        "/.env",
        "*",
    ):
        yield Rude(f"path {path[:40]!r}", make.known(f"GET {path} HTTP/1.1"), (404,))
    for path in (
        "/v1/health/../leases",
        "/v1/health%2f..%2fleases",
        "/v1/health;/../leases",
        "/%76%31/leases",
        "/v1/leases?x=/v1/health",
        "/v1/leases#/v1/health",
        "/openapi.json/../v1/leases",
        f"/v1/leases?token={make.token}",
        f"/v1/leases?access_token={make.token}",
    ):
        yield Rude(f"nobody at {path[:40]!r}", make.raw(f"GET {path} HTTP/1.1", make.host), (401,))
    yield Rude(
        "another host in the target", make.raw("GET http://evil.example/v1/leases HTTP/1.1", make.host), (401, 421)
    )
    yield Rude("a path of 70,000 letters", make.known(f"GET /{'a' * 70_000} HTTP/1.1"), (414,))
    yield Rude(
        "1,000 parameters",
        make.known("GET /v1/leases?" + "&".join(f"p{n}=1" for n in range(1000)) + " HTTP/1.1"),
        (422,),
    )
    yield Rude("bytes of no UTF-8 in a parameter", make.known("GET /v1/leases?name=%ff%fe HTTP/1.1"), (200, 422))
    yield Rude("a forged cursor", make.known("GET /v1/leases?cursor=eyJvd25lciI6ImV2ZSJ9 HTTP/1.1"), (422,))
    yield Rude("a misspelt dry run", make.known("POST /v1/leases?dryrun=true HTTP/1.1", JSON_TYPE, body=b"{}"), (422,))


def _headers(make: _Maker) -> Iterator[Rude]:
    for host in (
        "evil.example",
        f"evil.example:{make.host.rpartition(':')[2]}",
        "127.0.0.1:1",
        f"x@{make.host[6:]}",
        "",
    ):
        yield Rude(f"host {host!r}", make.raw(_LIST, f"Host: {host}", make.auth), (421,))
    yield Rude("no host", make.raw(_LIST, make.auth), (421,))
    yield Rude("two hosts", make.raw(_LIST, make.host, "Host: evil.example", make.auth), (400, 421))
    yield Rude("a foreign page", make.known(_LIST, "Origin: https://evil.example"), (403,))
    yield Rude("a page of no origin", make.known(_LIST, "Origin: null"), (403,))
    for header in (
        "X-Original-URL: /v1/health",
        "X-Rewrite-URL: /v1/health",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Prefix: /v1/health",
        "X-Amzn-Request-Context: {}",
        "Authorization: Bearer",
        "Authorization: Bearer \xff\xfe",
        "Authorization: Basic " + "QUFB" * 50,
        f"Authorization: Bearer {make.token}x",
        f"Authorization: {make.token}",
        f"Cookie: token={make.token}",
        f"Proxy-Authorization: Bearer {make.token}",
    ):
        yield Rude(f"nobody with {header[:30]!r}", make.raw(_LIST, make.host, header), (401,))
    for key in ("", "a b", "a" * 256, "\xe9", "a\tb", "\x7f"):
        yield Rude(f"idempotency key {key[:10]!r}", make.lease(b"{}", JSON_TYPE, f"Idempotency-Key: {key}"), (422,))
    yield Rude(
        "one method for another",
        make.known("GET /v1/leases/l-aaaaaaaaaaaa HTTP/1.1", "X-HTTP-Method-Override: DELETE"),
        (404,),
    )
    yield Rude("a header of 70,000 bytes", make.known(_LIST, "X-Long: " + "a" * 70_000), (431,))
    yield Rude("300 headers", make.known(_LIST, *(f"X-Many-{n}: 1" for n in range(300))), (431,))


def _framing(make: _Maker) -> Iterator[Rude]:
    chunks = b"2\r\n{}\r\n0\r\n\r\n"
    chunked = make.known(_LEASES, JSON_TYPE, "Transfer-Encoding: chunked") + chunks
    yield Rude("in chunks", chunked, (411,))
    both = make.known(_LEASES, JSON_TYPE, "Transfer-Encoding: chunked", f"Content-Length: {len(chunks)}") + chunks
    yield Rude("in chunks and with a length", both, (400, 411))
    for length in ("-1", "+2", "0x2", "2,2", "two", "9" * 400):
        raw = make.known(_LEASES, JSON_TYPE, f"Content-Length: {length}") + b"{}"
        yield Rude(f"length {length[:12]!r}", raw, (400, 411, 413))
    twice = make.known(_LEASES, JSON_TYPE, "Content-Length: 0", "Content-Length: 2") + b"{}"
    yield Rude("two lengths", twice, (400,))
    yield Rude("a body that ends early", make.known(_LEASES, JSON_TYPE, "Content-Length: 100") + b"{}", (400,))
    for method in ("TRACE", "CONNECT", "BREW", "PROPFIND"):
        yield Rude(f"method {method}", make.known(f"{method} /v1/leases HTTP/1.1"), (404, 405, 501))
    yield Rude("PUT on the list", make.known("PUT /v1/leases HTTP/1.1", JSON_TYPE, body=b"{}"), (405,))
    yield Rude("a version of the future", make.known("GET /v1/leases HTTP/7.1"), (400, 505))
    yield Rude("no version's number", make.known("GET /v1/leases HTTP/x"), (400,))
    yield Rude("garbage", bytes(range(1, 9)) * 20 + b"\r\n\r\n", (400,))
    yield Rude("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60 + b"\r\n\r\n", (400,))
