"""Schedule, every minute: wiring only. The work is in `gpulease.steps.check_leases`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import scheduled
from gpulease.steps import check_leases

deps = LazyDeps()


@scheduled
def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    return check_leases.run(deps)
