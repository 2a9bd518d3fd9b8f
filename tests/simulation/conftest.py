"""Virtual worlds for tests of whole histories; one at a time, since handlers know one stack per process."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.network_world import NetworkWorld

NewWorld = Callable[..., NetworkWorld]


@pytest.fixture
def new_world() -> Iterator[NewWorld]:
    """Makes worlds; the one before is closed."""
    worlds: list[NetworkWorld] = []

    def make(**settings: Any) -> NetworkWorld:
        if worlds:
            worlds.pop().close()
        worlds.append(NetworkWorld(**settings))
        return worlds[-1]

    yield make
    for each in worlds:
        each.close()
