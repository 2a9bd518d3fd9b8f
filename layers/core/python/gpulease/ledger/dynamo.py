"""The ledger in DynamoDB. Keys and indexes: `keys.py`; retries and faults: `dynamo_calls.py`.

Invariants: every write is conditional and carries its commit's token, so whoever is refused can tell from the stored
row whether it was refused by its own earlier try. One row is written with PutItem, several with one transaction
(which costs twice as much). Rows of one transaction name each other (`peers`): a query may see half a transaction, and
then it is read again.

What the indexes find may be late by the time DynamoDB takes to update them (normally below a second); the rows
themselves are read strongly consistent. That holds for `leases_of` and for which resources `open_resources` lists.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from gpulease.domain.event import Event
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.resource import Resource, ResourceState
from gpulease.errors import LeaseConflict, LeaseExists, LeaseNotFound, LeaseSuperseded, LedgerUnavailable
from gpulease.ledger import codec, keys
from gpulease.ledger.codec import Rows, time_text
from gpulease.ledger.dynamo_calls import TRIES, DynamoCalls, Item, Refused, Sleep
from gpulease.ledger.dynamo_offers import DynamoOfferStore
from gpulease.ports import Change, Ids, LeaseRecord, Page

__all__ = ["DynamoLedger", "DynamoOfferStore"]

LISTING_QUERIES = 10
"""Of one page of a listing with states. A page may stay empty where few of many leases have the state."""
_FILTERED_ROWS = 200
_ALL_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


class DynamoLedger:
    """`ports.Ledger` in one table. `client`: low-level DynamoDB client. Safe for use from several threads."""

    def __init__(self, client: Any, table_name: str, *, ids: Ids, sleep: Sleep, tries: int = TRIES) -> None:
        self._calls = DynamoCalls(client, table_name, sleep=sleep, tries=tries)
        self._ids = ids
        self._tries = tries
        self._commits = count(1)

    def create_lease(self, lease: Lease, events: Iterable[Event] = (), start_script: bytes = b"") -> None:
        """See `ports.Ledger.create_lease`."""
        rows = codec.rows_of_new(lease, events, start_script)
        try:
            self._write(rows)
        except LeaseConflict as error:
            raise LeaseExists(lease.id) from error

    def load(self, lease_id: str) -> LeaseRecord:
        """See `ports.Ledger.load`."""
        if not codec.is_key(lease_id):
            raise LeaseNotFound(lease_id)
        for tried in range(self._tries):
            rows = self._record_rows(lease_id)
            if not _is_torn(rows):
                break
            self._calls.pause(tried)
        else:
            raise LedgerUnavailable(f"{lease_id}: read between two halves of a write, again and again")
        lease, resources = None, []
        for row in rows:
            if row[keys.SK]["S"] == keys.LEASE_SK:
                lease = codec.decode(Lease, _doc(row))
            else:
                resources.append(codec.decode(Resource, _doc(row)))
        if lease is None:
            raise LeaseNotFound(lease_id)
        return LeaseRecord(lease, tuple(sorted(resources, key=lambda r: (r.attempt, r.id))))

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        rows = codec.rows_of(change)
        if rows.count:
            self._write(rows)

    def start_script(self, lease_id: str) -> bytes:
        """See `ports.Ledger.start_script`. Empty when the lease has none; raises LeaseNotFound."""
        if not codec.is_key(lease_id):
            raise LeaseNotFound(lease_id)
        wanted = [_key(lease_id, keys.LEASE_SK), _key(lease_id, keys.SCRIPT_SK)]
        found = {row[keys.SK]["S"]: row for row in self._calls.rows(wanted)}
        if keys.LEASE_SK not in found:
            raise LeaseNotFound(lease_id)
        return bytes(found[keys.SCRIPT_SK]["script"]["B"]) if keys.SCRIPT_SK in found else b""

    def events(self, lease_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Event]:
        """See `ports.Ledger.events`."""
        codec.check_limit(limit)
        start: Item = {}
        if cursor is not None:
            position = codec.event_position(lease_id, cursor)
            start = {"ExclusiveStartKey": _key(lease_id, keys.EVENT_PREFIX + position)}
        if not codec.is_key(lease_id):
            return Page(())
        found: list[Item] = []
        pages = self._calls.pages(
            "query",
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": keys.PK, "#sk": keys.SK},
            ExpressionAttributeValues={":pk": {"S": lease_id}, ":prefix": {"S": keys.EVENT_PREFIX}},
            ConsistentRead=True,
            Limit=limit + 1,
            **start,
        )
        for page in pages:
            found += page["Items"]
            if len(found) > limit:
                break
        items = tuple(_event(row) for row in found[:limit])
        return Page(items, codec.event_cursor(lease_id, items[-1].seq) if len(found) > limit else None)

    def leases_of(
        self,
        owner: str | None,
        *,
        states: Sequence[LeaseState] = (),
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Lease]:
        """See `ports.Ledger.leases_of`. With states a page may be short or empty and still have a cursor."""
        codec.check_limit(limit)
        start = None if cursor is None else codec.lease_position(owner, cursor)
        if owner is not None and not codec.is_key(owner):
            return Page(())
        found: list[Item] = []
        last: str | None = None
        for queries, page in enumerate(self._listing(owner, states, start, limit), start=1):
            found += page["Items"]
            last = page["LastEvaluatedKey"]["created"]["S"] if page.get("LastEvaluatedKey") else None
            if len(found) > limit or queries == LISTING_QUERIES:
                break
        if len(found) > limit:
            found = found[:limit]
            last = found[-1]["created"]["S"]
        wanted = [{keys.PK: row[keys.PK], keys.SK: row[keys.SK]} for row in found]
        leases = {lease.id: lease for row in self._calls.rows(wanted) for lease in [codec.decode(Lease, _doc(row))]}
        listed = (leases[row[keys.PK]["S"]] for row in found if row[keys.PK]["S"] in leases)
        # The rows are newer than the index: what no longer has the state asked for is not shown.
        items = tuple(lease for lease in listed if not states or lease.state in states)
        return Page(items, None if last is None else codec.lease_cursor(owner, last))

    def due(self, now: datetime, *, limit: int = 100) -> list[str]:
        """See `ports.Ledger.due`."""
        codec.check_limit(limit)
        found: list[tuple[str, str]] = []
        for shard in keys.due_shards():
            of_shard: list[tuple[str, str]] = []
            pages = self._calls.pages(
                "query",
                IndexName=keys.DUE,
                KeyConditionExpression="#shard = :shard AND #at <= :now",
                ExpressionAttributeNames={"#shard": "due_shard", "#at": "next_check_at"},
                ExpressionAttributeValues={":shard": {"S": shard}, ":now": {"S": time_text(now)}},
                Limit=limit,
            )
            for page in pages:
                of_shard += [(row["next_check_at"]["S"], row[keys.PK]["S"]) for row in page["Items"]]
                if len(of_shard) >= limit:
                    break
            found += of_shard
        return [lease_id for _, lease_id in sorted(found)[:limit]]

    def open_resources(self, *, provider: str | None = None, region: str | None = None) -> Iterator[Resource]:
        """See `ports.Ledger.open_resources`. Which ones are listed comes from an index that may be a moment late."""
        request: Item = {"IndexName": keys.OPEN_RESOURCES}
        operation = "scan"  # of an index that holds open resources only
        if provider is not None and region is not None:
            operation = "query"
            request["KeyConditionExpression"] = "#place = :place"
            request["ExpressionAttributeNames"] = {"#place": "open_in"}
            request["ExpressionAttributeValues"] = {":place": {"S": keys.open_in(provider, region)}}
        for page in self._calls.pages(operation, **request):
            wanted = []
            for row in page["Items"]:
                its_provider, _, its_region = row["open_in"]["S"].partition("#")
                if provider in (None, its_provider) and region in (None, its_region):
                    wanted.append({keys.PK: row[keys.PK], keys.SK: row[keys.SK]})
            for row in self._calls.rows(wanted):
                resource = codec.decode(Resource, _doc(row))
                if resource.state is not ResourceState.RELEASED:
                    yield resource

    # --- inside -------------------------------------------------------------------------------------------------------

    def _record_rows(self, lease_id: str) -> list[Item]:
        pages = self._calls.pages(
            "query",
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": keys.PK, "#sk": keys.SK},
            ExpressionAttributeValues={
                ":pk": {"S": lease_id},
                ":first": {"S": keys.LEASE_SK},
                ":last": {"S": keys.LAST_OF_RECORD},
            },
            ConsistentRead=True,
        )
        return [row for page in pages for row in page["Items"]]

    def _listing(
        self, owner: str | None, states: Sequence[LeaseState], start: str | None, limit: int
    ) -> Iterator[Item]:
        index, attribute, value = (
            (keys.BY_AGE, "listing", keys.ALL_LEASES) if owner is None else (keys.BY_OWNER, "owner", owner)
        )
        request: Item = {
            "IndexName": index,
            "KeyConditionExpression": "#partition = :partition",
            "ExpressionAttributeNames": {"#partition": attribute},
            "ExpressionAttributeValues": {":partition": {"S": value}},
            "ScanIndexForward": False,
            "Limit": limit + 1,
        }
        if states:
            marks = [f":state{n}" for n in range(len(states))]
            request["FilterExpression"] = f"#state IN ({', '.join(marks)})"
            request["ExpressionAttributeNames"]["#state"] = "state"
            for mark, state in zip(marks, states, strict=True):
                request["ExpressionAttributeValues"][mark] = {"S": state.value}
            request["Limit"] = max(limit + 1, _FILTERED_ROWS)
        if start is not None:
            # Only the place in the listing comes from the cursor; the partition is always the caller's own.
            request["ExclusiveStartKey"] = {
                attribute: {"S": value},
                "created": {"S": start},
                **_key(start.partition("#")[2], keys.LEASE_SK),
            }
        return self._calls.pages("query", **request)

    def _write(self, rows: Rows) -> None:
        token = self._ids.token()
        refused = self._calls.write(self._operations(rows, token), token)
        if refused is not None:
            _raise_unless_ours(rows, refused, token)

    def _operations(self, rows: Rows, token: str) -> list[Item]:
        """One operation per row; what looks at the lease comes first."""
        versions = {keys.RESOURCE_PREFIX + row.model.id: row.model.version for row in rows.resources}
        if rows.lease is not None:
            versions[keys.LEASE_SK] = rows.lease.model.version
        operations = []
        if rows.lease is not None:
            item = _lease_item(rows.lease.model, rows.lease.doc, token, versions)
            operations.append(self._put(item, rows.lease.model.version, rows.epoch))
        elif rows.epoch is not None:
            condition = {
                "TableName": self._calls.table,
                "Key": _key(rows.lease_id, keys.LEASE_SK),
                "ConditionExpression": "#epoch = :epoch",
                "ExpressionAttributeNames": {"#epoch": "epoch"},
                "ExpressionAttributeValues": {":epoch": {"N": str(rows.epoch)}},
            }
            operations.append({"ConditionCheck": condition | _ALL_OLD})
        for row in rows.resources:
            item = _resource_item(row.model, row.doc, token, versions)
            operations.append(self._put(item, row.model.version))
        number = next(self._commits)
        for index, event in enumerate(rows.events):
            # Commits of one process keep their order within one microsecond; the token tells processes apart.
            seq = f"{time_text(event.model.at)}#{number:08x}#{token}{index:02x}"
            operations.append(self._put(_item(rows.lease_id, keys.EVENT_PREFIX + seq, token, event.doc), 1))
        if rows.script:
            item = _item(rows.lease_id, keys.SCRIPT_SK, token) | {"script": {"B": rows.script}}
            operations.append(self._put(item, 1))
        return operations

    def _put(self, item: Item, version: int, epoch: int | None = None) -> Item:
        """Put version 1 where nothing is, a later version in the place of the one before it."""
        names, values, conditions = {}, {}, []
        if version == 1:
            names["#pk"] = keys.PK
            conditions.append("attribute_not_exists(#pk)")
        else:
            names["#version"] = "version"
            values[":before"] = {"N": str(version - 1)}
            conditions.append("#version = :before")
        if epoch is not None:
            names["#epoch"] = "epoch"
            values[":epoch"] = {"N": str(epoch)}
            conditions.append("#epoch = :epoch")
        put: Item = {
            "TableName": self._calls.table,
            "Item": item,
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": names,
        }
        if values:
            put["ExpressionAttributeValues"] = values
        return {"Put": put | _ALL_OLD}


def _raise_unless_ours(rows: Rows, refused: Refused, token: str) -> None:
    """Raises what a refusal means; returns when an earlier try of this commit was written after all.

    All or nothing, so one row with our token is proof for the whole commit. When others have written over our only
    row since, this is a conflict to the caller, who reads again and finds its own work done.
    """
    if any(item is not None and item.get("token", {}).get("S") == token for _, item in refused.items):
        return
    place, item = refused.items[0]
    if rows.epoch is not None and place == 0:
        stored = None if item is None else int(item["epoch"]["N"])
        if stored != rows.epoch:
            raise LeaseSuperseded(f"{rows.lease_id}: epoch {rows.epoch} is over (now {stored})")
    raise LeaseConflict(f"{rows.lease_id}: changed since it was read")


def _is_torn(rows: list[Item]) -> bool:
    """Whether a row is there without what was written together with it."""
    versions = {row[keys.SK]["S"]: int(row["version"]["N"]) for row in rows}
    return any(
        versions.get(peer, 0) < int(version["N"])
        for row in rows
        for peer, version in row.get("peers", {}).get("M", {}).items()
    )


def _key(lease_id: str, sk: str) -> Item:
    return {keys.PK: {"S": lease_id}, keys.SK: {"S": sk}}


def _item(lease_id: str, sk: str, token: str, doc: str | None = None) -> Item:
    item = _key(lease_id, sk) | {"token": {"S": token}}
    return item if doc is None else item | {"doc": {"S": doc}}


def _versioned(item: Item, version: int, versions: dict[str, int]) -> Item:
    item["version"] = {"N": str(version)}
    peers = {sk: {"N": str(v)} for sk, v in versions.items() if sk != item[keys.SK]["S"]}
    if peers:
        item["peers"] = {"M": peers}
    return item


def _lease_item(lease: Lease, doc: str, token: str, versions: dict[str, int]) -> Item:
    item = _versioned(_item(lease.id, keys.LEASE_SK, token, doc), lease.version, versions)
    item["epoch"] = {"N": str(lease.epoch)}
    item["state"] = {"S": lease.state.value}
    item["owner"] = {"S": lease.owner}
    item["listing"] = {"S": keys.ALL_LEASES}
    item["created"] = {"S": f"{time_text(lease.created_at)}#{lease.id}"}
    if lease.next_check_at is not None:
        item["due_shard"] = {"S": keys.due_shard(lease.id)}
        item["next_check_at"] = {"S": time_text(lease.next_check_at)}
    return item


def _resource_item(resource: Resource, doc: str, token: str, versions: dict[str, int]) -> Item:
    item = _item(resource.lease_id, keys.RESOURCE_PREFIX + resource.id, token, doc)
    _versioned(item, resource.version, versions)
    item["state"] = {"S": resource.state.value}
    if resource.state is not ResourceState.RELEASED:
        item["open_in"] = {"S": keys.open_in(resource.provider, resource.region)}
    return item


def _doc(row: Item) -> str:
    return str(row["doc"]["S"])


def _event(row: Item) -> Event:
    seq = row[keys.SK]["S"].removeprefix(keys.EVENT_PREFIX)
    return codec.decode(Event, _doc(row)).model_copy(update={"seq": seq})
