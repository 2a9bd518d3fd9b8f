"""Caches in simulations: who has a block by the provider's own word, and one cache's life around a lease's."""

from collections.abc import Callable, Mapping
from typing import Any

from gpulease.domain.lease import LeaseKind, LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind

from gpulease_local.simulate.clouds import VOLUME
from gpulease_local.simulate.virtual import OWNER, ApiRefused, VirtualStack

MOUNTS = ("/root/.cache/huggingface",)


def caches(stack: VirtualStack) -> list[LeaseRecord]:
    """All caches of all users, oldest first, in the ledger past any faults."""
    return [stack.record(lease.id) for lease in stack.leases() if lease.kind is LeaseKind.CACHE]


def others_ended(stack: VirtualStack) -> bool:
    """Whether all that is no cache is released, and there was something."""
    leases = [lease for lease in stack.leases() if lease.kind is not LeaseKind.CACHE]
    return bool(leases) and all(lease.state is LeaseState.RELEASED for lease in leases)


def not_surviving(stack: VirtualStack) -> list[str]:
    """Caches that were available once and have ended, or whose volume the provider does not bill any more.

    To be asked when all leases have ended, before any cache is removed.
    """
    now = stack.clock.time()
    billed = {each.id for each in stack.clouds.things() if each.role == VOLUME and each.exists(now)}
    wrong = []
    for record in caches(stack):
        if record.lease.running_at is None:
            # It could not be made.
            continue
        if record.lease.state is not LeaseState.RUNNING:
            wrong.append(f"{record.lease.id}: is {record.lease.state} ({record.lease.reason})")
            continue
        held = [volume.provider_id for volume in record.resources if volume.released_at is None]
        if not billed.intersection(held):
            wrong.append(f"{record.lease.id}: its volume {held} is gone")
    return wrong


def not_at_its_machine(stack: VirtualStack, lease_id: str) -> list[str]:
    """Of a lease that is written as running: its cache's volume, where the book does not have it at its machine."""
    record = stack.record(lease_id)
    attempt = record.lease.attempt
    machines = record.of_kind(ResourceKind.INSTANCE, attempt.number if attempt is not None else 0)
    here = {machine.provider_id for machine in machines}
    volumes = [
        volume for cache in caches(stack) for volume in cache.resources if cache.lease.id == record.lease.cache_id
    ]
    held = [volume.provider_id for volume in volumes if volume.released_at is None]
    users = {each: stack.clouds.user_of(each) for each in held}
    return [f"runs_without_cache: {each} is at {user or 'nobody'}" for each, user in users.items() if user not in here]


class CacheLife:
    """One cache: made before its lease, removed after it. Calls may be cut off and are safe to repeat."""

    def __init__(self, request: Mapping[str, Any] | None, stack: Callable[[], VirtualStack]) -> None:
        self.request = request
        self._stack = stack
        self._asked = self._ready = False
        self.removed = False

    def is_ready(self) -> bool:
        """Whether the lease may be asked for; makes the cache at first."""
        if self.request is None:
            return True
        if self.removed or self._ready:
            return self._ready
        if not self._asked:
            self._stack().api("POST", "/v1/caches", self.request)
            self._asked = True
        self._ready = self._stack().api("GET", f"/v1/caches/{self.request['name']}")["state"] == "available"
        return self._ready

    def for_lease(self) -> dict[str, Any]:
        """What the lease's request says of it."""
        return {} if self.request is None else {"cache": {"name": self.request["name"], "mounts": list(MOUNTS)}}

    def remove(self) -> None:
        """On its user's word. Raises ApiRefused where it is in use."""
        if self.request is None:
            return
        try:
            self._stack().api("DELETE", f"/v1/caches/{self.request['name']}", owner=OWNER)
        except ApiRefused as refused:
            if refused.status != 404:
                raise
        self.removed = True


class SharedCaches:
    """The caches that wishes name: made when first needed, looked at when all leases have ended, then removed."""

    def __init__(self, stack: Callable[[], VirtualStack]) -> None:
        self._stack = stack
        self.made: dict[tuple[str, str], Mapping[str, Any]] = {}
        """(owner, name) to its request."""

    def is_ready(self, owner: str, request: Mapping[str, Any]) -> bool:
        """Whether a lease may name it; asks for it until it is there. Raises ApiRefused."""
        answer = self._stack().api("POST", "/v1/caches", request, owner=owner)
        self.made[(owner, str(request["name"]))] = request
        return answer["state"] in ("available", "in_use")

    def remove_all(self) -> bool:
        """Remove what is left. False: some calls failed, come again. Raises ApiRefused where one is in use."""
        done = True
        for owner, name in sorted(self.made):
            try:
                self._stack().api("DELETE", f"/v1/caches/{name}", owner=owner)
            except ApiRefused as refused:
                if refused.status >= 500:
                    done = False
                elif refused.status != 404:
                    raise
        return done
