"""Task StartInstance: wiring only. The work is in `gpulease.steps.start_instance`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import start_instance
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return start_instance.run(StepCommand.model_validate(event), deps)
