"""When calls that keep failing are not sent any more: the circuit of one account and region, as a pure state machine.

closed ──failures in a row──► open ──its time is over──► half open ──one call is let through──► closed, or open again.

A call counts as failed when no answer came. Refusals, throttling included, are answers.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FAILURES_TO_OPEN = 5
WITHIN = timedelta(seconds=60)
"""Failures in a row count only when they came this close together."""
FIRST_OPEN = timedelta(seconds=15)
LONGEST_OPEN = timedelta(seconds=120)
PROBE_PATIENCE = timedelta(seconds=60)
"""A half-open circuit's one call that never came back (its process died) is forgotten after this."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """`open_until` None = closed. `open_for` is how long it was opened last."""

    failures: int = 0
    failing_since: datetime | None = None
    open_until: datetime | None = None
    open_for: timedelta = timedelta(0)
    probing_until: datetime | None = None


def closed_for(circuit: Circuit, now: datetime) -> timedelta:
    """How long no call may be sent; 0 = one may. A half-open circuit whose one call is out says a second."""
    if circuit.open_until is None:
        return timedelta(0)
    if now < circuit.open_until:
        # A clock that was set back must not keep a provider out for longer than a circuit is ever open.
        return min(circuit.open_until - now, LONGEST_OPEN)
    if circuit.probing_until is not None and now < circuit.probing_until:
        return timedelta(seconds=1)
    return timedelta(0)


def sending(circuit: Circuit, now: datetime) -> Circuit:
    """The circuit as a call that it lets through is sent."""
    return circuit if circuit.open_until is None else replace(circuit, probing_until=now + PROBE_PATIENCE)


def unsent(circuit: Circuit) -> Circuit:
    """The call that was let through turned out not to need the provider: nothing was learned of it."""
    return circuit if circuit.probing_until is None else replace(circuit, probing_until=None)


def answered(circuit: Circuit) -> Circuit:
    """An answer came: all is well."""
    return circuit if circuit == Circuit() else Circuit()


def failed(circuit: Circuit, now: datetime) -> Circuit:
    """No answer came."""
    if circuit.open_until is not None:
        open_for = min(max(circuit.open_for * 2, FIRST_OPEN), LONGEST_OPEN)
        return replace(circuit, open_until=now + open_for, open_for=open_for, probing_until=None)
    since = circuit.failing_since
    if since is None or not timedelta(0) <= now - since <= WITHIN:
        return Circuit(failures=1, failing_since=now)
    failures = circuit.failures + 1
    if failures < FAILURES_TO_OPEN:
        return replace(circuit, failures=failures)
    return Circuit(failures, since, open_until=now + FIRST_OPEN, open_for=FIRST_OPEN)
