"""Schedule, every six hours: wiring only. The work is in `gpulease.runtime.refreshing`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import scheduled
from gpulease.runtime.refreshing import refresh

deps = LazyDeps()


@scheduled
def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    return refresh(deps)
