"""Scripted misbehaviour of the API in front of the simulated account; how one is chosen: `fault_plan.py`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpulease_sim.aws.wire import Call
from gpulease_sim.fault_plan import Plan

MUTATING = "(?!Describe|Get|List).*"
"""Regex of all calls that change something."""


@dataclass(frozen=True)
class Fault:
    """What happens to calls that meet all conditions."""

    action: str = ".*"
    """Regex of the whole action: `RunInstances`, `Describe.*`, `MUTATING`."""
    service: str = ""
    """`ec2`, `sts` or `ssm`; empty: any."""
    region: str = ""
    zone: str = ""
    """Only calls that name this zone, or a subnet, volume or instance in it."""
    type: str = ""
    """Regex of the whole instance type, of RunInstances or of the named instances."""
    params: str = ""
    """Regex searched in `name=value` of each parameter, e.g. `InstanceId.*=i-123`."""
    from_seconds: float | None = None
    until_seconds: float | None = None
    """Window on the simulator's clock; the end is outside."""
    skip: int = 0
    """Let so many matching calls pass first."""
    times: int | None = None
    """Act on so many calls, then no more."""
    probability: float = 1.0

    code: str = ""
    """The error that is answered; empty: the real answer."""
    text: str = ""
    """Its message; empty: the usual one."""
    status: int | None = None
    """Its HTTP status; None: the usual one of the code."""
    execute: bool | None = None
    """Whether the call is carried out; None: only where there is no error code."""
    twice: bool = False
    """Carried out twice, as if the provider repeated it without its token; the second one's answer counts."""
    empty: bool = False
    """A list is answered empty (a stale read)."""
    cut: bool = False
    """The answer never arrives: the connection is closed."""
    delay_seconds: float = 0.0
    html: bool = False
    """The error as a gateway's HTML page with the given status (default 503)."""

    def __post_init__(self) -> None:
        for pattern in (self.action, self.type, self.params):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from None

    @property
    def executes(self) -> bool:
        """Whether the call is carried out."""
        return not (self.code or self.html) if self.execute is None else self.execute


@dataclass(frozen=True, slots=True)
class Concerned:
    """Zones and instance types that a call is about."""

    zones: frozenset[str]
    types: frozenset[str]


def _matcher(fault: Fault) -> Callable[[tuple[Call, Concerned]], bool]:
    action = re.compile(fault.action)
    kind = re.compile(fault.type) if fault.type else None
    params = re.compile(fault.params) if fault.params else None

    def matches(asked: tuple[Call, Concerned]) -> bool:
        call, concerned = asked
        if fault.service not in ("", call.service) or fault.region not in ("", call.region):
            return False
        if not action.fullmatch(call.action) or (fault.zone and fault.zone not in concerned.zones):
            return False
        if kind is not None and not any(kind.fullmatch(each) for each in concerned.types):
            return False
        return params is None or any(params.search(f"{k}={v}") for k, v in call.params.items())

    return matches


class FaultPlan(Plan[Fault, tuple[Call, Concerned]]):
    """The ordered faults of one account."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(_matcher, seed)

    def choose(self, call: Call, concerned: Concerned) -> Fault | None:
        """The fault that acts on this call, if any."""
        return self.first((call, concerned), call.now)


def outage(
    from_seconds: float | None = None,
    until_seconds: float | None = None,
    *,
    region: str = "",
    timeout_seconds: float = 60.0,
) -> Fault:
    """A dark region: no call is carried out or answered in that time."""
    return Fault(
        region=region,
        from_seconds=from_seconds,
        until_seconds=until_seconds,
        execute=False,
        cut=True,
        delay_seconds=timeout_seconds,
    )


def lost_answer(action: str, *, times: int | None = 1, delay_seconds: float = 30.0) -> Fault:
    """The call is carried out, and nobody hears of it."""
    return Fault(action=action, times=times, cut=True, delay_seconds=delay_seconds)


def error_after(action: str, *, code: str = "InternalError", times: int | None = 1) -> Fault:
    """The call is carried out, and the answer is a server's error."""
    return Fault(action=action, times=times, code=code, execute=True)


def no_capacity(*, region: str = "", zone: str = "", type: str = "", status: int = 500, **more: object) -> Fault:
    """RunInstances and StartInstances find no room; `more` are other fields of `Fault` (times, probability, …)."""
    return Fault(
        action="RunInstances|StartInstances",
        region=region,
        zone=zone,
        type=type,
        code="InsufficientInstanceCapacity",
        status=status,
        **more,  # type: ignore[arg-type]
    )


def auth_lost(
    from_seconds: float | None = None, until_seconds: float | None = None, code: str = "ExpiredToken"
) -> Fault:
    """Every call is refused as unauthorised."""
    return Fault(from_seconds=from_seconds, until_seconds=until_seconds, code=code)


def throttling_storm(
    from_seconds: float | None = None, until_seconds: float | None = None, *, region: str = "", probability: float = 0.9
) -> Fault:
    """Most calls are throttled."""
    return Fault(
        service="ec2",
        region=region,
        from_seconds=from_seconds,
        until_seconds=until_seconds,
        code="RequestLimitExceeded",
        probability=probability,
    )
