"""Task GiveUp: wiring only. The work is in `gpulease.steps.give_up`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import give_up
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return give_up.run(StepCommand.model_validate(event), deps)
