"""Task MarkPaused: wiring only. The work is in `gpulease.steps.mark_paused`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import mark_paused
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return mark_paused.run(StepCommand.model_validate(event), deps)
