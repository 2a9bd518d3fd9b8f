"""The provider contract against the simulated Vultr over real HTTP on loopback."""

from collections.abc import Iterator

import pytest
from gpulease.providers.requests_transport import RequestsTransport

from tests.support.provider_contract import ProviderContract, kind
from tests.support.provider_world import VultrWorld, vultr_over_http
from tests.support.volume_contract import VolumeContract

__all__ = ["kind"]


@pytest.fixture
def world() -> Iterator[VultrWorld]:
    transport = RequestsTransport(monotonic=lambda: 0.0)
    with vultr_over_http(transport) as world:
        yield world
    transport.close()


class TestVultrOverHttp(ProviderContract, VolumeContract):
    """All rules."""
