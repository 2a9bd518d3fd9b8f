"""Task DetachVolume: wiring only. The work is in `gpulease.steps.detach_volume`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import detach_volume
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return detach_volume.run(StepCommand.model_validate(event), deps)
