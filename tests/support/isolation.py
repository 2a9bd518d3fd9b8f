"""Keeps a test on this machine, so that no test can rent, read or delete anything real.

Invariants: a connection to anything but loopback or a Unix socket raises before a packet is sent, and a host
name other than `localhost` is never looked up.
"""

import ipaddress
import socket
from typing import Any

import pytest

FAKE_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
# A developer's own profile or proxy would lead a test out of the fake account.
REMOVED_ENVIRONMENT = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ENDPOINT_URL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)


class NetworkForbidden(RuntimeError):
    """A test tried to reach an address outside this machine (not an OSError: retries must not swallow it)."""


def is_loopback(host: str) -> bool:
    """Say whether a host name or address stays on this machine."""
    if host in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse_outside(address: Any) -> None:
    # Unix sockets have a path or bytes for an address; Internet sockets a tuple that starts with the host.
    if isinstance(address, tuple) and not is_loopback(str(address[0])):
        raise NetworkForbidden(f"a test tried to connect to {address[0]}")


def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sockets refuse other machines and name look-ups refuse other names, until the test ends."""
    connect, connect_ex, sendto = socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto
    getaddrinfo = socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse_outside(address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_outside(address)
        return connect_ex(self, address)

    def guarded_sendto(self: socket.socket, data: Any, *rest: Any) -> int:
        _refuse_outside(rest[-1])
        return sendto(self, data, *rest)

    def guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and not is_loopback(str(name)):
            raise NetworkForbidden(f"a test tried to look up {name}")
        return getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    monkeypatch.setattr(socket.socket, "sendto", guarded_sendto)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
