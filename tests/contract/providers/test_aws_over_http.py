"""The provider contract against the simulated AWS account over real HTTP on loopback."""

from collections.abc import Iterator

import pytest

from tests.support.aws_world import AwsWorld, aws_over_http
from tests.support.provider_contract import ProviderContract, kind
from tests.support.stop_contract import StopContract
from tests.support.volume_contract import VolumeContract

__all__ = ["kind"]


@pytest.fixture
def world() -> Iterator[AwsWorld]:
    with aws_over_http() as world:
        yield world


class TestAwsOverHttp(ProviderContract, StopContract, VolumeContract):
    """All rules."""
