"""The guard that keeps tests on this machine does refuse, and lets loopback through."""

import os
import socket
from pathlib import Path

import pytest

import tests
from tests.support.isolation import NetworkForbidden, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", ""])
def test_loopback_addresses_stay_on_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "0.0.0.0", "2001:db8::1", "example.com"])  # noqa: S104
def test_other_hosts_do_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_connection_to_another_machine_is_refused() -> None:
    with socket.socket() as outside, pytest.raises(NetworkForbidden, match=r"192\.0\.2\.1"):
        outside.connect(("192.0.2.1", 443))

    with socket.socket() as outside, pytest.raises(NetworkForbidden):
        outside.connect_ex(("192.0.2.1", 443))

    with socket.socket(type=socket.SOCK_DGRAM) as outside, pytest.raises(NetworkForbidden):
        outside.sendto(b"x", ("192.0.2.1", 53))


def test_a_look_up_of_another_name_is_refused() -> None:
    with pytest.raises(NetworkForbidden, match=r"api\.vultr\.com"):
        socket.create_connection(("api.vultr.com", 443))


def test_loopback_is_let_through() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x")

        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(1) == b"x"


def test_credentials_open_nothing() -> None:
    assert os.environ["AWS_ACCESS_KEY_ID"] == "testing"
    assert "AWS_PROFILE" not in os.environ


def test_our_tests_package_is_not_shadowed_by_an_installed_one(pytestconfig: pytest.Config) -> None:
    assert tests.__file__ is not None
    assert Path(tests.__file__).parent == pytestconfig.rootpath / "tests"
