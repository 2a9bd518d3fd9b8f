"""Task SelectOffer: wiring only. The work is in `gpulease.steps.select_offer`."""

from typing import Any

from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import step
from gpulease.steps import select_offer
from gpulease.steps.base import Outcome, StepCommand

deps = LazyDeps()


@step
def handler(event: dict[str, Any], context: Any) -> Outcome:
    return select_offer.run(StepCommand.model_validate(event), deps)
