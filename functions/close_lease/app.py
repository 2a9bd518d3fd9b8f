"""Task CloseLease: wiring only. The work is in `gpulease.steps.close_lease`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import close_lease
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return close_lease.run(StepCommand.model_validate(event), deps)
