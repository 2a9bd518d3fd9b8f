"""Who asks, and which leases he may see. Shared by all routes about leases.

Invariant: a lease that is somebody else's and one that does not exist look the same.
"""

import re
from typing import Annotated

from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Path

from gpulease.agent_facts import agent_to_show
from gpulease.api.caller import Caller, caller_of
from gpulease.api.ending import keeps_something
from gpulease.api.problems import not_found
from gpulease.api.schemas import LeaseView
from gpulease.api.shared_networks import shared_networks
from gpulease.api.views import lease_view
from gpulease.domain.lease import LeaseKind
from gpulease.domain.record import LeaseRecord
from gpulease.errors import LeaseNotFound
from gpulease.pause_facts import cache_part
from gpulease.ports import Deps

LEASE_ID = re.compile(r"l-[a-z2-7]{12}")
LeaseId = Annotated[str, Path(description="Such as l-4kq7c2mzx5ab")]


class Access:
    """The present request's caller, and leases as he may see them."""

    def __init__(self, deps: Deps, router: Router) -> None:
        self._deps, self._router = deps, router

    def caller(self) -> Caller:
        return caller_of(self._router.current_event.raw_event, self._deps.policy.admins)

    def owned(self, lease_id: str) -> LeaseRecord:
        """The record, if the caller may see it; else a 404 that does not tell which of the two it was."""
        if not LEASE_ID.fullmatch(lease_id):
            raise not_found(lease_id)
        try:
            record = self._deps.ledger.load(lease_id)
        except LeaseNotFound:
            raise not_found(lease_id) from None
        if record.lease.kind is not LeaseKind.MACHINE or not self.caller().may_see(record.lease.owner):
            raise not_found(lease_id)
        return record

    def view(self, record: LeaseRecord) -> LeaseView:
        deps, now = self._deps, self._deps.clock.now()
        shared = shared_networks(record, deps.ledger)
        cache = cache_part(record.lease, deps) if record.lease.pause is not None else None
        agent, keeps = agent_to_show(record.lease, deps), keeps_something(record, deps)
        return lease_view(record, now, deps.policy.ssh_port, shared, agent, cache, keeps_something=keeps)
