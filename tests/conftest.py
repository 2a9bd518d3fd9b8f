"""What holds for every test: credentials that open nothing, and no network beyond this machine."""

import pytest

from tests.support.isolation import FAKE_ENVIRONMENT, REMOVED_ENVIRONMENT, loopback_only


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test fake AWS credentials and refuse connections that leave this machine."""
    for name in REMOVED_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in FAKE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    loopback_only(monkeypatch)
