"""The ordered faults of a simulated account: which one acts on a call, if any.

The first fault that matches a call acts on it; a fault that is out of its time window, its count or its luck does not
match and leaves the call to the next one. Luck is seeded by the fault's position and how often it was asked.
"""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from gpulease_sim.draws import Draws


class Limits(Protocol):
    """What all faults have, whatever their provider's calls look like."""

    @property
    def from_seconds(self) -> float | None: ...
    @property
    def until_seconds(self) -> float | None: ...
    @property
    def skip(self) -> int: ...
    @property
    def times(self) -> int | None: ...
    @property
    def probability(self) -> float: ...


F = TypeVar("F", bound=Limits)
C = TypeVar("C")
Matches = Callable[[C], bool]


class _Rule(Generic[F, C]):
    def __init__(self, fault: F, matches: Matches[C], draws: Draws) -> None:
        self.fault, self._matches, self._draws = fault, matches, draws
        self._asked = 0
        self._passed = 0
        self.acted = 0

    def acts_on(self, call: C, now: float) -> bool:
        fault = self.fault
        if fault.times is not None and self.acted >= fault.times:
            return False
        if fault.from_seconds is not None and now < fault.from_seconds:
            return False
        if fault.until_seconds is not None and now >= fault.until_seconds:
            return False
        if not self._matches(call):
            return False
        if self._passed < fault.skip:
            self._passed += 1
            return False
        self._asked += 1
        if fault.probability < 1 and not self._draws.happens(fault.probability, str(self._asked)):
            return False
        self.acted += 1
        return True


class Plan(Generic[F, C]):
    """The faults of one account. `matcher` makes of a fault the question whether a call meets its own conditions."""

    def __init__(self, matcher: Callable[[F], Matches[C]], seed: int = 0) -> None:
        self._matcher = matcher
        self._seed = seed
        self._rules: list[_Rule[F, C]] = []
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, *faults: F) -> None:
        """Append; earlier faults go first."""
        for fault in faults:
            self._rules.append(_Rule(fault, self._matcher(fault), Draws(self._seed, f"fault-{self._added}")))
            self._added += 1

    def replace(self, faults: Iterable[F]) -> None:
        """These instead of the present ones."""
        rules = list(faults)
        self.clear()
        self.add(*rules)

    def clear(self) -> None:
        """No faults any more."""
        self._rules = []

    def faults(self) -> list[F]:
        """The present faults in order."""
        return [rule.fault for rule in self._rules]

    def acted(self) -> list[int]:
        """How many calls each fault acted on."""
        return [rule.acted for rule in self._rules]

    def first(self, call: C, now: float) -> F | None:
        """The fault that acts on this call, if any."""
        return next((rule.fault for rule in self._rules if rule.acts_on(call, now)), None)
