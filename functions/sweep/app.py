"""Schedule, every five minutes: wiring only. The work is in `gpulease.steps.sweep`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import scheduled
from gpulease.steps import sweep

deps = LazyDeps()


@scheduled
def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    return sweep.run(deps).counts()
