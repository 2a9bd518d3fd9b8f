"""Task DropNetwork: wiring only. The work is in `gpulease.steps.drop_network`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import drop_network
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return drop_network.run(StepCommand.model_validate(event), deps)
