"""Task NextToRelease: wiring only. The work is in `gpulease.steps.next_to_release`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import next_to_release
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return next_to_release.run(StepCommand.model_validate(event), deps)
