"""Scripted misbehaviour of the API in front of the simulated account; how one is chosen: `fault_plan.py`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpulease_sim.fault_plan import Plan


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


def _matcher(fault: Fault) -> Callable[[Asked], bool]:
    method, path = re.compile(fault.method), re.compile(fault.path)
    query = re.compile(fault.query) if fault.query else None
    body = re.compile(fault.request_body) if fault.request_body else None

    def matches(call: Asked) -> bool:
        if not method.fullmatch(call.method) or not path.fullmatch(call.path):
            return False
        if query is not None and not query.search(call.query):
            return False
        if body is not None and not body.search(call.body.decode(errors="replace")):
            return False
        if fault.client and fault.client != call.client:
            return False
        return not fault.region or fault.region == call.region()

    return matches


class FaultPlan(Plan[Fault, Asked]):
    """The ordered faults of one account."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(_matcher, seed)

    def choose(self, call: Asked) -> Fault | None:
        """The fault that acts on this call, if any."""
        return self.first(call, call.now)


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
