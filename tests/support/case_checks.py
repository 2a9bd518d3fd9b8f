"""What holds at the end of every case. Each check gives its findings as sentences; none is good."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import Resource, ResourceState

from tests.support.stack_checks import broken, nameless_events

if TYPE_CHECKING:
    from tests.support.case_world import CaseWorld

CALLS_PER_MINUTE_AND_LEASE = 60
SHORTEST_PAUSE_SECONDS = 3.0
"""Between two calls that change one and the same thing."""
QUIET_READS = 100
"""In the quiet half hour. After everything has come to its end only a periodic inventory may read."""


def problems_of(
    world: "CaseWorld", *, since: int, twins: int, still: tuple[str, ...], may_log: tuple[str, ...]
) -> list[str]:
    """Everything that is wrong now. `since`: number of the first call of the quiet half hour."""
    return [
        *books_differ(world),
        *world.wrong_claims,
        *foreign_touched(world),
        *twins_of(world, twins),
        *not_ended(world, still),
        *calls_without_pause(world),
        *([] if still else calls_after_the_end(world, since)),
        *nameless_errors(world),
        *broken(world, may_log),
    ]


def books_differ(world: "CaseWorld") -> Iterator[str]:
    """The set of things billed at the provider against the set that the ledger lists as billed."""
    listed = {
        resource.provider_id or f"an intent, {resource.id}": resource
        for lease in world.stack.leases()
        for resource in world.record(lease.id).resources
        if resource.state is not ResourceState.RELEASED
    }
    billed = {each.id: each for each in world.billed()}
    # Of machines without any marker of ours in the account only the planted ones are not ours.
    known = {each.id for each in world.foreign} | set(billed)
    for each in world.cloud.book.billed():
        if each.id not in known:
            billed[each.id] = each
    for provider_id in sorted(set(billed) - set(listed)):
        yield f"billed and not listed: {billed[provider_id].kind} {provider_id} {billed[provider_id].markers}"
    for key in sorted(set(listed) - set(billed)):
        yield f"listed as billed and not there: {_name(listed[key])}"


def _name(resource: Resource) -> str:
    return f"{resource.id} ({resource.state}, {resource.provider_id or 'no id'})"


def foreign_touched(world: "CaseWorld") -> Iterator[str]:
    """Nothing that is not ours is changed, destroyed or joined."""
    for each in world.foreign:
        seen = world.cloud.book.get(each.id)
        if seen.destroyed is not None:
            yield f"a foreign {each.kind} was destroyed: {each.id}"
        elif (seen.tags, seen.label) != (each.tags, each.label) and each.kind == "instance":
            yield f"a foreign {each.kind} was changed: {each.id}"
        for call in world.calls(path=f"/.*{each.id}.*"):
            if call.method != "GET":
                yield f"a call on a foreign {each.kind}: {call.method} {call.path}"


def twins_of(world: "CaseWorld", allowed: int) -> Iterator[str]:
    """One intent, one creation; and nobody is handed a machine twice."""
    made = Counter((each.kind, marker) for each in world.ours() for marker in set(each.markers))
    extra = [f"{marker} ({count})" for (_, marker), count in made.items() for _ in range(count - 1)]
    if len(extra) > allowed:
        yield f"more than one creation for one intent: {', '.join(extra)}"


def not_ended(world: "CaseWorld", still: tuple[str, ...]) -> Iterator[str]:
    """Every lease has come to rest."""
    for lease in world.stack.leases():
        if lease.state not in (LeaseState.RUNNING, LeaseState.RELEASED) and lease.id not in still:
            yield f"{lease.id} is still {lease.state} ({lease.waiting_for})"


def calls_without_pause(world: "CaseWorld") -> Iterator[str]:
    """No loop without a pause: neither on one thing nor in all."""
    last: dict[tuple[str, str], float] = {}
    minutes: dict[int, int] = defaultdict(int)
    for call in world.calls():
        if not _is_catalogue(call.path):
            minutes[int(call.at // 60)] += 1
        key = (call.method, call.path)
        if call.method != "GET" and call.path.count("/") > 1:
            gap = call.at - last.get(key, -SHORTEST_PAUSE_SECONDS)
            if gap < SHORTEST_PAUSE_SECONDS:
                yield f"T+{call.at:.1f}: {call.method} {call.path} again after {gap:.1f} s"
            last[key] = call.at
    most = CALLS_PER_MINUTE_AND_LEASE * max(1, len(world.stack.leases()))
    for minute, calls in minutes.items():
        if calls > most:
            yield f"{calls} provider calls in minute {minute}, more than {most}"


def calls_after_the_end(world: "CaseWorld", since: int) -> Iterator[str]:
    """No loop without an end."""
    late = [call for call in world.calls()[since - world.calls_before :] if not _is_catalogue(call.path)]
    writes = [f"{call.method} {call.path}" for call in late if call.method != "GET"]
    if writes:
        yield f"changes after everything had ended: {writes[:5]}"
    if len(late) > QUIET_READS:
        yield f"{len(late)} provider calls in half an hour after everything had ended"


def _is_catalogue(path: str) -> bool:
    return path.split("/")[1] in ("plans", "plans-metal", "regions", "os", "applications")


def nameless_errors(world: "CaseWorld") -> Iterator[str]:
    """Every error names provider, region, resource, reason and, where the provider answered, its raw code."""
    yield from nameless_events(world)
    for lease in world.stack.leases():
        if lease.state is LeaseState.RELEASED and lease.reason is None:
            yield f"{lease.id} ended without a reason"
    for name, facts in world.stack.log.alarms:
        of_resource = ("resource_id",) if name == "ReleaseStuck" else ()
        missing = [key for key in ("provider", "region", "reason", *of_resource) if not facts.get(key)]
        if missing:
            yield f"alarm {name} does not name {', '.join(missing)}: {facts}"
