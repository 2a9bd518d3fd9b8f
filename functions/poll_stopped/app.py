"""Task PollStopped: wiring only. The work is in `gpulease.steps.poll_stopped`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import poll_stopped
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return poll_stopped.run(StepCommand.model_validate(event), deps)
