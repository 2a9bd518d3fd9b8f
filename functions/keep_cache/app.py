"""Task KeepCache: wiring only. The work is in `gpulease.steps.keep_cache`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import keep_cache
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return keep_cache.run(StepCommand.model_validate(event), deps)
