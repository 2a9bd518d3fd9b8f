"""Checks that hold at the end of every case in any world of whole leases. Findings as sentences; none is good."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.stack_world import StackWorld

MUST_NAME = {
    "attempt_failed": ("provider", "region", "reason"),
    "delete_refused": ("provider", "region", "reason", "resource_id"),
    "release_stuck": ("provider", "region", "reason", "resource_id"),
}


def nameless_events(world: "StackWorld") -> Iterator[str]:
    """Every event about an error names provider, region, reason and, where there is one, the resource."""
    for lease in world.stack.leases():
        for event in world.events(lease.id):
            missing = [name for name in MUST_NAME.get(event.kind, ()) if not event.facts.get(name)]
            if missing:
                yield f"{event.kind} does not name {', '.join(missing)}: {event.text} {event.facts}"


def broken(world: "StackWorld", may_log: tuple[str, ...]) -> Iterator[str]:
    """No execution failed, and nothing was logged as an error that somebody must look at."""
    for each in world.stack.engine.executions():
        if each.status in ("FAILED", "TIMED_OUT") and each.error not in may_log:
            yield f"execution {each.name} {each.status}: {each.error} {each.cause}"
    for name, facts in world.stack.log.errors:
        if name not in may_log:
            yield f"logged as an error: {name} {facts}"
