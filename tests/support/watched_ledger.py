"""A ledger between the steps and the real one: it shows each write to a watcher and misbehaves as told."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpulease.domain.event import Event
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.resource import Resource
from gpulease.ports import Change, LeaseRecord, Ledger, Page


@dataclass
class CommitFault:
    """What happens to writes that `when` picks: `action` is done first, then `fail` raises, before or after the write
    was carried out."""

    when: Callable[[Change], bool]
    fail: Callable[[], BaseException] | None
    carried_out: bool
    times: int = 1
    action: Callable[[], object] | None = None


class WatchedLedger:
    """`ports.Ledger` on another one. `committed` is told of every change after it was written."""

    def __init__(self, inner: Ledger, committed: Callable[[Change], None]) -> None:
        self._inner = inner
        self._committed = committed
        self.faults: list[CommitFault] = []
        self.filters_after_reading = False
        """As DynamoDB does: pages may come out empty and have a cursor all the same."""

    def commit(self, change: Change) -> None:
        fault = next((each for each in self.faults if each.times > 0 and each.when(change)), None)
        if fault is not None:
            fault.times -= 1
            if fault.action is not None:
                fault.action()
            if fault.fail is not None and not fault.carried_out:
                raise fault.fail()
        self._inner.commit(change)
        self._committed(change)
        if fault is not None and fault.fail is not None:
            raise fault.fail()

    def create_lease(self, lease: Lease, events: Iterable[Event] = (), start_script: bytes = b"") -> None:
        self._inner.create_lease(lease, events, start_script)

    def load(self, lease_id: str) -> LeaseRecord:
        return self._inner.load(lease_id)

    def start_script(self, lease_id: str) -> bytes:
        return self._inner.start_script(lease_id)

    def events(self, lease_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Event]:
        return self._inner.events(lease_id, cursor=cursor, limit=limit)

    def leases_of(
        self,
        owner: str | None,
        *,
        states: Sequence[LeaseState] = (),
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Lease]:
        if self.filters_after_reading:
            page = self._inner.leases_of(owner, cursor=cursor, limit=limit)
            return Page(tuple(each for each in page.items if not states or each.state in states), page.cursor)
        return self._inner.leases_of(owner, states=states, cursor=cursor, limit=limit)

    def due(self, now: datetime, *, limit: int = 100) -> list[str]:
        return self._inner.due(now, limit=limit)

    def open_resources(self, *, provider: str | None = None, region: str | None = None) -> Iterator[Resource]:
        return self._inner.open_resources(provider=provider, region=region)
