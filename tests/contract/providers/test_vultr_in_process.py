"""The provider contract against the simulated Vultr in this process."""

import pytest

from tests.support.provider_contract import ProviderContract, kind
from tests.support.provider_world import VultrWorld
from tests.support.volume_contract import VolumeContract

__all__ = ["kind"]


@pytest.fixture
def world() -> VultrWorld:
    return VultrWorld()


class TestVultr(ProviderContract, VolumeContract):
    """All rules."""
