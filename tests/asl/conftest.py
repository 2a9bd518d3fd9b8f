"""Each engine runs all cases, the written and the random ones, once for the whole session."""

import pytest

from tests.asl import engines
from tests.asl.machines import CASES, Outcome
from tests.asl.random_machines import random_cases
from tests.support.ministack import Ministack, ministack

__all__ = ["ministack"]

RANDOM = random_cases(40, seed=2026)


@pytest.fixture(scope="session")
def ours() -> dict[str, Outcome]:
    """What our engine makes of each case."""
    return engines.run_ours([*CASES, *RANDOM])


@pytest.fixture(scope="session")
def on_ministack(ministack: Ministack) -> dict[str, Outcome]:
    """What ministack makes of each case."""
    return engines.run_on_ministack([*CASES, *RANDOM], ministack)


@pytest.fixture(scope="session")
def on_moto() -> dict[str, Outcome]:
    """What moto makes of each case."""
    return engines.run_on_moto([*CASES, *RANDOM])
