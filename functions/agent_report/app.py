"""What agents on machines ask: wiring only. The work is in `gpulease.steps.agent_report`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import api
from gpulease.runtime.sts import FederatedKeys
from gpulease.steps import agent_report

deps = LazyDeps()
keys = FederatedKeys(deps)


@api
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return agent_report.run(event, deps, keys)
