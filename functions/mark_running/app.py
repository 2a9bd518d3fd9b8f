"""Task MarkRunning: wiring only. The work is in `gpulease.steps.mark_running`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import mark_running
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return mark_running.run(StepCommand.model_validate(event), deps)
