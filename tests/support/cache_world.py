"""Caches in the virtual worlds of tests: made and watched through the API, judged by the provider's book."""

from collections.abc import Mapping
from typing import Any

from gpulease.domain.lease import LeaseState
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource
from gpulease_local.simulate.virtual import OWNER, VirtualStack
from gpulease_sim.vultr import BlockBehaviour, BookObject

STEADY_BLOCK = BlockBehaviour(
    active_seconds=(6, 6),
    list_lag_seconds=(0, 0),
    attach_seconds=(4, 4),
    detach_seconds=(3, 3),
    auto_detach_seconds=(5, 5),
    delete_seconds=(2, 2),
)
"""A block without luck."""
MODELS: Mapping[str, Any] = {"name": "models", "provider": "vultr", "region": "ewr", "size_gb": 50}
USES_MODELS: Mapping[str, Any] = {"cache": {"name": "models", "mounts": ["/root/.cache/huggingface"]}}


class Caches:
    """The caches of one stack."""

    def __init__(self, stack: VirtualStack) -> None:
        self.stack = stack

    def make(self, owner: str = OWNER, **more: Any) -> str:
        """A cache that can be used; its id."""
        made = self.stack.api("POST", "/v1/caches", {**MODELS, **more}, owner=owner)
        ready = self.stack.run_until(
            lambda: self.lease_state(made["id"]) is LeaseState.RUNNING, limit_seconds=600, step_seconds=2
        )
        assert ready, self.story(made["id"])
        return str(made["id"])

    def shown(self, name: str = "models", owner: str = OWNER) -> dict[str, Any]:
        """What its owner is told."""
        return self.stack.api("GET", f"/v1/caches/{name}", owner=owner)

    def remove(self, name: str = "models", owner: str = OWNER) -> None:
        """On its owner's word."""
        self.stack.api("DELETE", f"/v1/caches/{name}", owner=owner)

    def record(self, cache: str) -> LeaseRecord:
        """The ledger's record."""
        return self.stack.record(cache)

    def lease_state(self, cache: str) -> LeaseState:
        """Of the record."""
        return self.stack.lease(cache).state

    def volume(self, cache: str) -> Resource:
        """The newest volume of the cache."""
        return self.record(cache).resources[-1]

    def blocks(self, *, existing: bool = True) -> list[BookObject]:
        """By the provider's book."""
        found = [each for each in self.stack.cloud.book.objects() if each.kind == "block"]
        return [each for each in found if each.destroyed is None] if existing else found

    def attached_to(self, cache: str) -> str:
        """Which machine has the volume, by the provider, shown or not; empty = none."""
        block = self.stack.cloud.account.blocks[self.volume(cache).provider_id]
        hold = block.hold(self.stack.clock.time())
        return hold.instance_id if hold else ""

    def story(self, cache: str) -> str:
        """What happened to it, for people."""
        lines = [f"{each.at} {each.kind}: {each.text}" for each in self.stack.events(cache)]
        return "\n".join((f"{cache}: {self.stack.lease(cache).model_dump_json()}", *lines))
