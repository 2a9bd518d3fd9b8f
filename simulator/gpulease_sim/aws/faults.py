"""Scripted misbehaviour of the API in front of the simulated account.

The first fault that matches a call acts on it; a fault that is out of its time window, its count or its luck does not
match and leaves the call to the next one. Luck is seeded by the fault's position and how often it was asked.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpulease_sim.aws.wire import Call
from gpulease_sim.vultr.draws import Draws

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


class _Rule:
    def __init__(self, fault: Fault, position: int, seed: int) -> None:
        self.fault = fault
        self._action = re.compile(fault.action)
        self._type = re.compile(fault.type) if fault.type else None
        self._params = re.compile(fault.params) if fault.params else None
        self._draws = Draws(seed, f"fault-{position}")
        self._asked = 0
        self._passed = 0
        self.acted = 0

    def acts_on(self, call: Call, concerned: Concerned) -> bool:
        fault = self.fault
        if fault.times is not None and self.acted >= fault.times:
            return False
        if fault.from_seconds is not None and call.now < fault.from_seconds:
            return False
        if fault.until_seconds is not None and call.now >= fault.until_seconds:
            return False
        if fault.service not in ("", call.service) or fault.region not in ("", call.region):
            return False
        if not self._action.fullmatch(call.action) or (fault.zone and fault.zone not in concerned.zones):
            return False
        if self._type is not None and not any(self._type.fullmatch(each) for each in concerned.types):
            return False
        if self._params is not None and not any(self._params.search(f"{k}={v}") for k, v in call.params.items()):
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

    def choose(self, call: Call, concerned: Concerned) -> Fault | None:
        """The fault that acts on this call, if any."""
        for rule in self._rules:
            if rule.acts_on(call, concerned):
                return rule.fault
        return None


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
