"""Task ReleaseAttempt: wiring only. The work is in `gpulease.steps.release_attempt`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import release_attempt
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return release_attempt.run(StepCommand.model_validate(event), deps)
