"""What holds at the end of every case that is played in `CloudWorld`, at whichever provider. Each check gives its
findings as sentences; none is good. The numbers are those of tests/cases/README.md."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulease.domain.lease import LeaseKind, LeaseState
from gpulease.domain.resource import ResourceState
from gpulease_local.simulate.audit import duplicates

from tests.support.case_checks import SHORTEST_PAUSE_SECONDS
from tests.support.stack_checks import broken, nameless_events

if TYPE_CHECKING:
    from tests.support.cloud_world import CloudWorld, Sent

CALLS_PER_MINUTE_AND_LEASE = 90
"""A look for a machine that nobody has seen yet is five calls at AWS, and there are fifteen looks in a minute."""
RESTS = (LeaseState.RUNNING, LeaseState.PAUSED, LeaseState.RELEASED)


def problems_of(world: "CloudWorld", *, quiet_from: float, twins: int, may_log: tuple[str, ...]) -> list[str]:
    """Everything that is wrong now. `quiet_from`: T+ after which nothing may change any more."""
    return [
        *books_differ(world),
        *world.wrong_claims,
        *strangers_touched(world),
        *twins_of(world, twins),
        *not_at_rest(world),
        *calls_without_pause(world),
        *changes_after(world, quiet_from),
        *nameless_errors(world),
        *broken(world, may_log),
    ]


def books_differ(world: "CloudWorld") -> Iterator[str]:
    """1: what exists at the providers against what the ledger lists; volumes of caches included."""
    now = world.stack.clock.time()
    open_ = [
        resource
        for lease in world.stack.leases()
        for resource in world.record(lease.id).resources
        if resource.state is not ResourceState.RELEASED
    ]
    listed = {resource.provider_id or f"an intent, {resource.id}" for resource in open_}
    there = [each for each in world.stack.clouds.things() if each.exists(now) and each.id not in world.strangers]
    whole = {resource.marker for resource in open_}
    apart = {each.id: each for each in there if each.part_of not in whole}
    for thing_id in sorted(set(apart) - listed):
        yield f"exists and is not listed: {apart[thing_id].kind} {thing_id} {apart[thing_id].markers}"
    for name in sorted(listed - {each.id for each in there}):
        yield f"listed and not there: {name}"


def strangers_touched(world: "CloudWorld") -> Iterator[str]:
    """2: nothing that is not ours is changed or destroyed."""
    now = world.stack.clock.time()
    for thing_id in sorted(world.strangers):
        thing = world.stack.clouds.find(thing_id)
        if thing is not None and not thing.exists(now):
            yield f"a stranger's {thing.kind} was destroyed: {thing_id}"
    for call in world.sent:
        if call.changes and world.strangers.intersection(call.params.values()):
            yield f"T+{call.at:.1f}: {call.action} on something of a stranger's: {dict(call.params)}"


def twins_of(world: "CloudWorld", allowed: int) -> Iterator[str]:
    """3: one intent, one creation."""
    ours = [each for each in world.stack.clouds.things() if each.id not in world.strangers]
    extra = duplicates(ours)
    if len(extra) > allowed:
        yield f"more than one creation for one intent: {', '.join(extra)}"


def not_at_rest(world: "CloudWorld") -> Iterator[str]:
    """6: every lease has come to rest, and none ended without a reason."""
    for lease in world.stack.leases():
        if lease.state not in RESTS:
            yield f"{lease.id} is still {lease.state} ({lease.waiting_for})"
        if lease.kind is LeaseKind.MACHINE and lease.state is LeaseState.RELEASED and lease.reason is None:
            yield f"{lease.id} ended without a reason"


def calls_without_pause(world: "CloudWorld") -> Iterator[str]:
    """4: no loop without a pause, neither on one thing nor in all."""
    last: dict[tuple[str, ...], float] = {}
    for call in world.sent:
        if not call.changes:
            continue
        key = _what(call)
        gap = call.at - last.get(key, -SHORTEST_PAUSE_SECONDS)
        if gap < SHORTEST_PAUSE_SECONDS and len(key) > 1:
            yield f"T+{call.at:.1f}: {' '.join(key)} again after {gap:.1f} s"
        last[key] = call.at
    most = CALLS_PER_MINUTE_AND_LEASE * max(1, len(world.stack.leases()))
    for minute, calls in Counter(int(call.at // 60) for call in world.sent).items():
        if calls > most:
            yield f"{calls} calls in minute {minute}, more than {most}"


def _what(call: "Sent") -> tuple[str, ...]:
    """A call and what it is about."""
    named = [v for k, v in call.params.items() if k.split(".")[0] in _NAMES]
    return (call.action, *named)


_NAMES = frozenset({"InstanceId", "VolumeId", "GroupId", "GroupName", "ClientToken", "SpotInstanceRequestId"})


def changes_after(world: "CloudWorld", quiet_from: float) -> Iterator[str]:
    """4: no loop without an end."""
    late = [f"{call.action} at T+{call.at:.0f}" for call in world.sent if call.changes and call.at > quiet_from]
    if late:
        yield f"changes after everything had come to rest: {late[:5]}"


def nameless_errors(world: "CloudWorld") -> Iterator[str]:
    """5: every error names provider, region, resource and reason."""
    yield from nameless_events(world)
    for name, facts in world.stack.log.alarms:
        if name in _OF_A_LEASE:
            missing = [key for key in ("lease_id",) if not facts.get(key)]
        else:
            missing = [key for key in ("provider", "region", "reason") if not facts.get(key)]
        if missing:
            yield f"alarm {name} does not name {', '.join(missing)}: {facts}"


_OF_A_LEASE = frozenset({"BudgetNearlySpent", "PauseStuck"})
"""Alarms about a lease's money or time, which are no errors of a provider."""
