"""The provider contract against the simulated AWS account in this process."""

import pytest

from tests.support.aws_world import AwsWorld
from tests.support.provider_contract import ProviderContract, kind
from tests.support.stop_contract import StopContract
from tests.support.volume_contract import VolumeContract

__all__ = ["kind"]


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


class TestAws(ProviderContract, StopContract, VolumeContract):
    """All rules."""
