"""Each case is played twice: with the provider's own texts, and with every text in other words."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.case_world import CaseWorld
from tests.support.cloud_world import CloudWorld

NewWorld = Callable[..., CaseWorld]
NewCloud = Callable[..., CloudWorld]


@pytest.fixture(params=[False, True], ids=["own-words", "reworded"])
def reworded(request: pytest.FixtureRequest) -> bool:
    """Whether the provider says everything in other words."""
    return bool(request.param)


@pytest.fixture
def new_world(reworded: bool) -> Iterator[NewWorld]:
    """Makes worlds with other settings than the usual ones; one at a time."""
    worlds: list[CaseWorld] = []

    def make(**settings: Any) -> CaseWorld:
        if worlds:
            worlds.pop().close()
        worlds.append(CaseWorld(reworded=reworded, **settings))
        return worlds[-1]

    yield make
    for each in worlds:
        each.close()


@pytest.fixture
def new_cloud(reworded: bool) -> Iterator[NewCloud]:
    """Makes one world of AWS, or of the named providers, with settings."""
    worlds: list[CloudWorld] = []

    def make(*providers: str, **settings: Any) -> CloudWorld:
        worlds.append(CloudWorld(*providers, reworded=reworded, **settings))
        return worlds[-1]

    yield make
    for each in worlds:
        each.close()


@pytest.fixture
def cloud(new_cloud: NewCloud) -> CloudWorld:
    """AWS without luck."""
    return new_cloud()


@pytest.fixture
def world(new_world: NewWorld) -> CaseWorld:
    """The usual world."""
    return new_world()
