"""What a cut is, what came of one run with cuts, and the report over all of them."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Way(StrEnum):
    """How a function is cut off at an effect."""

    BEFORE = "killed_before"
    AFTER = "killed_after"
    ABORTED = "aborted"
    """The execution is aborted there and the function dies with it: nobody but the schedule goes on."""
    TWIN = "twin"
    """The same call runs from beginning to end in the middle of itself."""
    GIVEN_BACK = "given_back"
    """Its user gives the lease back in the middle of the call."""


WAYS = (Way.BEFORE, Way.AFTER, Way.ABORTED)


@dataclass(frozen=True, slots=True)
class Point:
    """One cut: at the so-manieth effect of the run."""

    effect: int
    way: Way

    def __str__(self) -> str:
        return f"{self.way}@{self.effect}"


@dataclass
class Ran:
    """What came of one run."""

    workflow: str
    points: tuple[Point, ...]
    effects: int
    hit: tuple[str, ...]
    """The effects at which it was cut, in words."""
    in_execution: tuple[bool, ...]
    """Of each effect, by number: whether an execution had it."""
    problems: tuple[str, ...]
    counts: dict[str, int]
    timeline: tuple[str, ...] = ()


@dataclass
class CrashReport:
    """The JSON object of `--crash-points`. `points`: all cuts that were made, one run each."""

    seed: int
    workflows: dict[str, int] = field(default_factory=dict)
    """Effects of each, counted in a plain run."""
    points: int = 0
    pairs: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    not_reached: int = 0
    """Second cuts of pairs at effects that the cut run no longer had."""
    orphans: int = 0
    duplicates: int = 0
    stuck: int = 0
    closed_while_billed: int = 0
    wrong_reason: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    max_unowned_seconds: int = 0
    wall_seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every run ended as it must."""
        return not self.failures and not self.violations

    def as_json(self) -> str:
        """One line-broken JSON object."""
        return json.dumps(asdict(self), indent=2)

    def add(self, ran: Ran) -> None:
        """Count one run."""
        self.orphans += ran.counts["orphan"]
        self.duplicates += ran.counts["duplicate"]
        self.stuck += ran.counts["stuck"]
        self.closed_while_billed += ran.counts["closed_while_billed"]
        self.wrong_reason += sum(problem.startswith("wrong_reason") for problem in ran.problems)
        self.max_unowned_seconds = max(self.max_unowned_seconds, ran.counts["unowned"])
        self.not_reached += len(ran.points) - len(ran.hit)
        for problem in ran.problems:
            rule = problem.partition(":")[0]
            self.violations[rule] = self.violations.get(rule, 0) + 1
        if ran.problems:
            replay = f"workflow={ran.workflow},cut={'+'.join(map(str, ran.points))},seed={self.seed}"
            self.failures.append({"replay": replay, "at": list(ran.hit), "problems": list(ran.problems)})
