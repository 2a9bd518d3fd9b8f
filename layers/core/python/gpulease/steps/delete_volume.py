"""One turn of giving a volume back. See `steps/giving_back.py`."""

from gpulease.domain.resource import ResourceKind
from gpulease.ports import Deps
from gpulease.steps.base import Outcome, StepCommand
from gpulease.steps.giving_back import take_turns

OUTCOMES = frozenset({"done", "superseded"})


def run(command: StepCommand, deps: Deps) -> Outcome:
    return take_turns(command, deps, ResourceKind.VOLUME)
