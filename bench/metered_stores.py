"""The stores of a simulated stack, counted as DynamoDB would count them.

The simulation keeps its rows in SQLite. Each write is handed to the DynamoDB ledger as well, on a client that keeps the
rows it is given and sends nothing, so sizes and transactions are those of the real request. Index writes are counted
from the rows before and after. Reads are counted by the rows they return. Nothing here changes what happens.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from gpulease.domain.agent import AgentRecord
from gpulease.domain.event import Event
from gpulease.domain.lease import Lease
from gpulease.domain.offer import OfferSnapshot
from gpulease.domain.resource import Resource
from gpulease.domain.sweep import SweepState
from gpulease.errors import GpuleaseError, LeaseConflict
from gpulease.ledger import codec, keys
from gpulease.ledger.dynamo import DynamoLedger
from gpulease.ledger.dynamo_agents import DynamoAgentStore
from gpulease.ports import AgentStore, Change, Ledger, OfferStore, SharedReads, SharedValue, SweepStore
from gpulease_local.world import SeededIds

from bench.metering import Meter
from bench.prices import item_bytes, read_units, write_units

_INDEXES = {
    index["IndexName"]: [
        *(part["AttributeName"] for part in index["KeySchema"]),
        *index["Projection"].get("NonKeyAttributes", ()),
    ]
    for index in keys.TABLE_SPEC["GlobalSecondaryIndexes"]
}
_BATCH = 100
Item = dict[str, Any]


class Rows:
    """A low-level DynamoDB client that keeps what is put and counts what it would cost; conditions are not looked at:
    the ledger beside it has decided already. `refused`: count, keep nothing."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.items: dict[str, dict[str, Item]] = {}
        self.refused = False

    def put_item(self, **request: Any) -> Item:
        """One row."""
        self._meter.wrote(self._put(request["Item"], transaction=False))
        return {}

    def transact_write_items(self, **request: Any) -> Item:
        """Several."""
        units = 0
        for operation in request["TransactItems"]:
            if "Put" in operation:
                units += self._put(operation["Put"]["Item"], transaction=True)
            else:
                key = operation["ConditionCheck"]["Key"]
                units += write_units(_size(self._before(key)), transaction=True)
        self._meter.wrote(units)
        return {}

    def batch_get_item(self, **request: Any) -> Item:
        """Rows by their keys."""
        answers: dict[str, list[Item]] = {}
        for table, wanted in request["RequestItems"].items():
            found = [self._before(key) for key in wanted["Keys"]]
            consistent = wanted.get("ConsistentRead", False)
            self._meter.read(sum(read_units(_size(row), consistent=consistent) for row in found))
            answers[table] = [row for row in found if row is not None]
        return {"Responses": answers}

    def of(self, lease_id: str, prefixes: tuple[str, ...]) -> int:
        """Bytes of a lease's rows whose sort key starts so."""
        rows = self.items.get(lease_id, {})
        return sum(_size(row) for sort, row in rows.items() if sort.startswith(prefixes))

    def row(self, partition: str, sort: str) -> int:
        """Bytes of one row; 0 = there is none."""
        return _size(self.items.get(partition, {}).get(sort))

    def _before(self, key: Item) -> Item | None:
        return self.items.get(key[keys.PK]["S"], {}).get(key[keys.SK]["S"])

    def _put(self, item: Item, *, transaction: bool) -> int:
        before = self._before(item)
        units = write_units(max(_size(before), _size(item)), transaction=transaction)
        if self.refused:
            return units
        self.items.setdefault(item[keys.PK]["S"], {})[item[keys.SK]["S"]] = item
        return units + index_units(before, item)


def index_units(before: Item | None, after: Item) -> int:
    """Write units that a put causes in the indexes: one for a new, changed or removed entry, two for one that moves.
    Indexes are brought up to date after the fact, so a transaction does not double them."""
    units = 0
    for attributes in _INDEXES.values():
        old, new = _entry(before, attributes), _entry(after, attributes)
        if old == new:
            continue
        moved = old is not None and new is not None and any(old[a] != new[a] for a in attributes[:2])
        units += 2 if moved else 1
    return units


def _entry(item: Item | None, attributes: list[str]) -> Item | None:
    if item is None or any(name not in item for name in attributes[:2]):
        return None
    return {name: item.get(name) for name in attributes}


def _size(item: Item | None) -> int:
    return 0 if item is None else item_bytes(item)


class MeteredLedger:
    """`ports.Ledger` that is counted as the one in DynamoDB would be."""

    def __init__(self, meter: Meter, inner: Ledger) -> None:
        self._meter = meter
        self._inner = inner
        self.rows = Rows(meter)
        self._dynamo = DynamoLedger(self.rows, "ledger", ids=SeededIds(0), sleep=lambda seconds: None)

    def create_lease(self, lease: Lease, events: Iterable[Event] = (), start_script: bytes = b"") -> None:
        """See `ports.Ledger.create_lease`."""
        told = list(events)
        mirrored = self._counting(lambda: self._dynamo.create_lease(lease, told, start_script))
        with self._meter.outside(), mirrored:
            self._inner.create_lease(lease, told, start_script)

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        with self._meter.outside(), self._counting(lambda: self._dynamo.commit(change)):
            self._inner.commit(change)

    @contextmanager
    def _counting(self, mirrored: Callable[[], None]) -> Iterator[None]:
        try:
            yield
        except GpuleaseError:
            self.rows.refused = True
            try:
                mirrored()
            finally:
                self.rows.refused = False
            raise
        mirrored()

    def load(self, lease_id: str) -> Any:
        """See `ports.Ledger.load`: one query over the lease and its resources."""
        with self._meter.outside():
            size = self.rows.of(lease_id, (keys.LEASE_SK, keys.RESOURCE_PREFIX))
            self._meter.read(read_units(size, consistent=True))
            return self._inner.load(lease_id)

    def start_script(self, lease_id: str) -> bytes:
        """See `ports.Ledger.start_script`: two rows by key."""
        with self._meter.outside():
            sizes = [self.rows.row(lease_id, sort) for sort in (keys.LEASE_SK, keys.SCRIPT_SK)]
            self._meter.read(sum(read_units(size, consistent=True) for size in sizes))
            return self._inner.start_script(lease_id)

    def events(self, lease_id: str, *, cursor: str | None = None, limit: int = 100) -> Any:
        """See `ports.Ledger.events`: one query."""
        with self._meter.outside():
            page = self._inner.events(lease_id, cursor=cursor, limit=limit)
            size = self.rows.of(lease_id, (keys.EVENT_PREFIX,))
            self._meter.read(read_units(size, consistent=True))
            return page

    def leases_of(self, owner: str | None, **how: Any) -> Any:
        """See `ports.Ledger.leases_of`: a query of an index, then the rows."""
        with self._meter.outside():
            page = self._inner.leases_of(owner, **how)
            sizes = [self.rows.row(lease.id, keys.LEASE_SK) for lease in page.items]
            self._by_index(sizes, entry_bytes=300)
            return page

    def due(self, now: datetime, *, limit: int = 100) -> list[str]:
        """See `ports.Ledger.due`: one query of each part of the index."""
        with self._meter.outside():
            found = self._inner.due(now, limit=limit)
            per_shard = -(-len(found) * 100 // keys.DUE_SHARDS)
            self._meter.read(keys.DUE_SHARDS * read_units(per_shard, consistent=False), keys.DUE_SHARDS)
            return found

    def open_resources(self, *, provider: str | None = None, region: str | None = None) -> Iterator[Resource]:
        """See `ports.Ledger.open_resources`: a query of an index, then the rows."""
        with self._meter.outside():
            found = list(self._inner.open_resources(provider=provider, region=region))
            sizes = [self.rows.row(row.lease_id, keys.RESOURCE_PREFIX + row.id) for row in found]
            self._by_index(sizes, entry_bytes=150)
        return iter(found)

    def _by_index(self, sizes: list[int], *, entry_bytes: int) -> None:
        self._meter.read(read_units(entry_bytes * len(sizes), consistent=False))
        if sizes:
            self._meter.read(sum(read_units(size, consistent=True) for size in sizes), -(-len(sizes) // _BATCH))


class MeteredSweeps:
    """`ports.SweepStore`, likewise."""

    def __init__(self, meter: Meter, inner: SweepStore) -> None:
        self._meter = meter
        self._inner = inner

    def note_place(self, account: str, region: str) -> None:
        """See `ports.SweepStore.note_place`. Counted as if by a new process each time."""
        with self._meter.outside():
            self._inner.note_place(account, region)
            self._meter.wrote(1)

    def states(self) -> list[SweepState]:
        """See `ports.SweepStore.states`: one query."""
        with self._meter.outside():
            found = self._inner.states()
            self._meter.read(read_units(sum(map(_state_bytes, found)), consistent=True))
            return found

    def load(self, account: str, region: str) -> SweepState:
        """See `ports.SweepStore.load`."""
        with self._meter.outside():
            state = self._inner.load(account, region)
            self._meter.read(read_units(_state_bytes(state), consistent=True))
            return state

    def save(self, state: SweepState) -> SweepState:
        """See `ports.SweepStore.save`."""
        with self._meter.outside():
            self._meter.wrote(write_units(_state_bytes(state)))
            return self._inner.save(state)


def _state_bytes(state: SweepState) -> int:
    return len(codec.encode(state, "sweep").doc.encode()) + 60


class MeteredAgents:
    """`ports.AgentStore`, likewise. What it takes to encode and decode rows is the function's own work here."""

    def __init__(self, meter: Meter, inner: AgentStore) -> None:
        self._meter = meter
        self._inner = inner
        self._rows = Rows(meter)
        self._dynamo = DynamoAgentStore(self._rows, "ledger", ids=SeededIds(0), sleep=lambda seconds: None)

    def load(self, lease_id: str) -> AgentRecord | None:
        """See `ports.AgentStore.load`: one row by its key."""
        self._dynamo.load(lease_id)
        with self._meter.outside():
            return self._inner.load(lease_id)

    def save(self, agent: AgentRecord) -> AgentRecord:
        """See `ports.AgentStore.save`: one row; a refused write costs as much."""
        try:
            with self._meter.outside():
                saved = self._inner.save(agent)
        except LeaseConflict:
            self._rows.refused = True
            raise
        finally:
            self._dynamo.save(agent)
            self._rows.refused = False
        size = self._rows.row(agent.lease_id, keys.AGENT_SK)
        self._meter.detail["agent_row_bytes"] = max(self._meter.detail["agent_row_bytes"], size)
        return saved


class MeteredShared:
    """`ports.SharedReads`, likewise: a value is one compressed row, a queue a small one."""

    def __init__(self, meter: Meter, inner: SharedReads) -> None:
        self._meter = meter
        self._inner = inner
        self._sizes: Counter[str] = Counter()

    def read(self, key: str) -> SharedValue | None:
        """See `ports.SharedReads.read`."""
        with self._meter.outside():
            self._meter.read(read_units(self._sizes[key], consistent=True))
            return self._inner.read(key)

    def claim(self, key: str, now: datetime, lease_seconds: float) -> bool:
        """See `ports.SharedReads.claim`. A refused one costs as much."""
        with self._meter.outside():
            self._meter.wrote(write_units(self._sizes[key] + 60))
            return self._inner.claim(key, now, lease_seconds)

    def publish(self, key: str, value: str, as_of: datetime) -> None:
        """See `ports.SharedReads.publish`."""
        with self._meter.outside():
            size = len(zlib.compress(value.encode(), 6)) + len(key) + 120
            self._meter.wrote(write_units(max(size, self._sizes[key])))
            self._sizes[key] = size
            self._inner.publish(key, value, as_of)

    def reserve(
        self, key: str, now: datetime, spacing_seconds: float, within_seconds: float | None = None
    ) -> datetime | None:
        """See `ports.SharedReads.reserve`: one update behind others, two when nobody waits."""
        with self._meter.outside():
            slot = self._inner.reserve(key, now, spacing_seconds, within_seconds)
            updates = 1 if slot is not None and slot > now else 2
            self._meter.wrote(updates, updates)
            return slot


class MeteredOffers:
    """`ports.OfferStore`, likewise: the list of providers, a head and compressed parts."""

    def __init__(self, meter: Meter, inner: OfferStore) -> None:
        self._meter = meter
        self._inner = inner

    def load(self) -> list[OfferSnapshot]:
        """See `ports.OfferStore.load`."""
        with self._meter.outside():
            found = self._inner.load()
            self._meter.read(1)
            for snapshot in found:
                self._meter.read(1 + read_units(_snapshot_bytes(snapshot), consistent=True), 2)
            return found

    def save(self, snapshot: OfferSnapshot) -> None:
        """See `ports.OfferStore.save`: a part, the head, the list; the part before it is deleted."""
        with self._meter.outside():
            size = _snapshot_bytes(snapshot)
            self._meter.read(1)
            self._meter.wrote(2 * write_units(size) + 2, 4)
            self._inner.save(snapshot)


def _snapshot_bytes(snapshot: OfferSnapshot) -> int:
    return len(zlib.compress(snapshot.model_dump_json().encode(), 6)) + 80


def metered_ledger(meter: Meter) -> Callable[[Ledger], Ledger]:
    """For `VirtualStack.wrap_ledger`."""
    return lambda inner: cast(Ledger, MeteredLedger(meter, inner))
