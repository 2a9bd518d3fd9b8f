"""The API in a world of its own, and somebody who calls it."""

import pytest

from tests.support.api_events import Client
from tests.support.api_world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()
