"""While a function is imported in Lambda nothing looks for garbage; from its first call on everything is as usual."""

import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[3] / "layers" / "core" / "python"
CHILD = """
import gc, sys
sys.path.insert(0, {core!r})
import gpulease.runtime.deps
before = gc.isenabled()
from gpulease.runtime import handler
getattr(handler, {kind!r})(lambda event, context: None)
print(before, gc.isenabled(), gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize("kind", ["step", "scheduled", "api"])
@pytest.mark.parametrize(("name", "seen"), [("a-function", "False True True"), (None, "True True False")])
def test_garbage_is_looked_for_again_when_the_function_is_imported(kind: str, name: str | None, seen: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-I", "-c", CHILD.format(core=str(CORE), kind=kind)],
        env={"AWS_LAMBDA_FUNCTION_NAME": name} if name else {},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == seen
