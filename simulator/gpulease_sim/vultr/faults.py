"""Scripted misbehaviour of the API in front of the simulated account.

The first fault that matches a call acts on it; a fault that is out of its time window, its count or its luck does not
match and leaves the call to the next one. Luck is seeded by the fault's position and how often it was asked.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gpulease_sim.vultr.draws import Draws


@dataclass(frozen=True)
class Fault:
    """What happens to calls that meet all conditions."""

    method: str = ".*"
    """Regex of the whole method."""
    path: str = ".*"
    """Regex of the whole path after /v2, without query."""
    query: str = ""
    """Regex searched in the query string."""
    request_body: str = ""
    """Regex searched in the request's body."""
    region: str = ""
    """Only calls that concern this region: named in path, query or body, or home of the object in the path."""
    client: str = ""
    """Only calls from this client address."""
    from_seconds: float | None = None
    until_seconds: float | None = None
    """Window on the simulator's clock; the end is outside."""
    skip: int = 0
    """Let so many matching calls pass first."""
    times: int | None = None
    """Act on so many calls, then no more."""
    probability: float = 1.0

    execute: bool = True
    """Carry the call out, or not at all."""
    effect: Literal["", "ignore"] = ""
    """`ignore`: answer as if it had worked, and do nothing."""
    delay_seconds: float = 0.0
    status: int | None = None
    """None: the real answer."""
    error: str = "Internal error"
    html: bool = False
    """The error as a gateway's HTML page."""
    retry_after: float | None = None
    cut: bool = False
    """The answer never arrives: the connection is closed."""
    body: str | None = None
    """Raw text in place of the answer's body."""

    def __post_init__(self) -> None:
        for pattern in (self.method, self.path, self.query, self.request_body):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a call that faults look at; `region` is only asked for when a fault needs it."""

    method: str
    path: str
    query: str
    body: bytes
    client: str
    now: float
    region: Callable[[], str]


class _Rule:
    def __init__(self, fault: Fault, position: int, seed: int) -> None:
        self.fault = fault
        self._method = re.compile(fault.method)
        self._path = re.compile(fault.path)
        self._query = re.compile(fault.query) if fault.query else None
        self._body = re.compile(fault.request_body) if fault.request_body else None
        self._draws = Draws(seed, f"fault-{position}")
        self._asked = 0
        self._passed = 0
        self.acted = 0

    def acts_on(self, call: Asked) -> bool:
        fault = self.fault
        if fault.times is not None and self.acted >= fault.times:
            return False
        if fault.from_seconds is not None and call.now < fault.from_seconds:
            return False
        if fault.until_seconds is not None and call.now >= fault.until_seconds:
            return False
        if not self._method.fullmatch(call.method) or not self._path.fullmatch(call.path):
            return False
        if self._query is not None and not self._query.search(call.query):
            return False
        if self._body is not None and not self._body.search(call.body.decode(errors="replace")):
            return False
        if fault.client and fault.client != call.client:
            return False
        if fault.region and fault.region != call.region():
            return False
        if self._passed < fault.skip:
            self._passed += 1
            return False
        self._asked += 1
        if fault.probability < 1 and not self._draws.happens(fault.probability, str(self._asked)):
            return False
        self.acted += 1
        return True


class FaultPlan:
    """The ordered faults of one account."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._rules: list[_Rule] = []
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, *faults: Fault) -> None:
        """Append; earlier faults go first."""
        for fault in faults:
            self._rules.append(_Rule(fault, self._added, self._seed))
            self._added += 1

    def replace(self, faults: Iterable[Fault]) -> None:
        """These instead of the present ones."""
        rules = list(faults)
        self.clear()
        self.add(*rules)

    def clear(self) -> None:
        """No faults any more."""
        self._rules = []

    def faults(self) -> list[Fault]:
        """The present faults in order."""
        return [rule.fault for rule in self._rules]

    def acted(self) -> list[int]:
        """How many calls each fault acted on."""
        return [rule.acted for rule in self._rules]

    def choose(self, call: Asked) -> Fault | None:
        """The fault that acts on this call, if any."""
        for rule in self._rules:
            if rule.acts_on(call):
                return rule.fault
        return None


def outage(
    from_seconds: float | None,
    until_seconds: float | None,
    *,
    region: str = "",
    timeout_seconds: float = 60.0,
) -> Fault:
    """No call (of that region) is carried out or answered in that time."""
    return Fault(
        region=region,
        from_seconds=from_seconds,
        until_seconds=until_seconds,
        execute=False,
        cut=True,
        delay_seconds=timeout_seconds,
    )


def lost_answer(method: str, path: str, *, times: int | None = 1, delay_seconds: float = 30.0) -> Fault:
    """The call is carried out, and nobody hears of it."""
    return Fault(method=method, path=path, times=times, cut=True, delay_seconds=delay_seconds)
