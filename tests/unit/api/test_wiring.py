"""The function behind the gateway: it holds the parts of its process and nothing else."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from gpulease.runtime import deps

from tests.support.api_events import ALICE, api_event
from tests.support.api_world import World

APP = Path(__file__).parents[3] / "functions" / "api" / "app.py"


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    deps.use(world)
    yield world
    deps.use(None)


@pytest.fixture
def function() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_function", APP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_handler_answers_a_gateway_event(world: World, function: ModuleType) -> None:
    answer = function.handler(api_event("POST", "/v1/leases", {"gpu": ["A100"]}), None)

    assert answer["statusCode"] == 202
    assert len(world.ledger.leases_of(ALICE).items) == 1


def test_the_handler_answers_nonsense_without_raising(world: World, function: ModuleType) -> None:
    answer = function.handler({}, None)

    assert answer["statusCode"] == 500
