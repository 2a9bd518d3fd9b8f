"""What functions may import before their first call: counted and listed, since milliseconds are not stable."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = sorted(file.parent.name for file in (ROOT / "functions").glob("*/app.py"))
STEPS = [name for name in FUNCTIONS if name not in {"api", "refresh_offers"}]
NEVER_IN_A_STEP = (
    "aws_lambda_powertools.event_handler",
    "aws_lambda_powertools.utilities.idempotency",
    "aws_lambda_powertools.utilities.parameters",
    "boto3.dynamodb",
    "gpuhunt",
    "requests",
)
NEVER_IN_THE_API = ("gpuhunt", "requests", "boto3.dynamodb")
MOST_MODULES = {"step": 230, "api": 460, "refresh_offers": 380}
"""Measured with Python 3.11, and a tenth more."""

_CHILD = """
import json, sys
sys.path[:0] = {paths!r}
before = set(sys.modules)
import app
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@cache
def imported(function: str) -> tuple[str, ...]:
    """The modules that importing a function's handler brings, in a fresh process without the test's own."""
    paths = [str(ROOT / "functions" / function), str(ROOT / "layers" / "core" / "python")]
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-I", "-c", _CHILD.format(paths=paths)], capture_output=True, text=True, check=True
    )
    return tuple(json.loads(done.stdout))


def banned(modules: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Those of `modules` that are one of `names` or below it."""
    return [each for each in modules if any(each == name or each.startswith(f"{name}.") for name in names)]


@pytest.mark.parametrize("function", STEPS)
def test_a_step_imports_nothing_heavy_before_its_first_call(function: str) -> None:
    modules = imported(function)

    assert banned(modules, NEVER_IN_A_STEP) == []
    assert len(modules) <= MOST_MODULES["step"]


def test_the_api_imports_no_provider_and_no_catalogue_before_its_first_call() -> None:
    modules = imported("api")

    assert banned(modules, NEVER_IN_THE_API) == []
    assert len(modules) <= MOST_MODULES["api"]


def test_the_catalogue_is_where_it_is_needed() -> None:
    modules = imported("refresh_offers")

    assert "gpuhunt" in modules
    assert len(modules) <= MOST_MODULES["refresh_offers"]
