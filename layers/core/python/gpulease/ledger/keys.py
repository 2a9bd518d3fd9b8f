"""Names and keys of the DynamoDB tables: what `template.yaml` has to declare, said once for code and tests.

Ledger table, one item collection per lease (`pk` = lease id):

    sk                        holds
    agent                     what the agent on its machine told
    event#<seq>               one event
    lease                     the lease
    resource#<resource id>    one resource
    script                    the start script

and one of its own (`pk` = "sweep", which no lease id is) for what sweeps remember, `sweep#<account>#<region>`, and
one (`pk` = "deployment") for the switch `drain`.

`lease` and `resource#` are neighbours, so one query reads a lease with its resources and nothing else. Every row has
`token` (of the commit that wrote it last) and `doc` (the model as JSON); agent, lease and resource have `version`.
The other attributes are there for conditions and indexes. All indexes but the two listings are sparse: a row is in
them only while there is something to find. Indexes hold keys (listings also `state`); the rows are then read from the
table.

    index            partition                   sort                    finds
    by_owner         owner                       created                 leases of one owner, by age
    by_age           listing ("all")             created                 leases of everybody, by age
    due              due_shard ("due#0"…"3")     next_check_at           leases that must be looked at
    open_resources   open_in (provider#region)   sk                      resources that are not released

Runtime table: `id` alone; `expiration` is its TTL attribute. The ledger table has no TTL: an expiry must never reach
what says who owns a machine.
"""

import zlib
from typing import Any

PK, SK = "pk", "sk"
AGENT_SK = "agent"
LEASE_SK = "lease"
RESOURCE_PREFIX = "resource#"
EVENT_PREFIX = "event#"
SCRIPT_SK = "script"
SWEEPS = "sweep"
DEPLOYMENT, DRAIN_SK = "deployment", "drain"
SWEEP_PREFIX = "sweep#"
LAST_OF_RECORD = RESOURCE_PREFIX + "\U0010ffff"
"""Sorts after every resource: `lease` to here is a lease with its resources."""

BY_OWNER, BY_AGE, DUE, OPEN_RESOURCES = "by_owner", "by_age", "due", "open_resources"
ALL_LEASES = "all"
DUE_SHARDS = 4
"""More than one, so that a burst of checks is not one partition's."""

RUNTIME_KEY = "id"
RUNTIME_TTL = "expiration"


def _index(name: str, partition: str, sort: str, *included: str) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": "KEYS_ONLY"}
    if included:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(included)}
    return {"IndexName": name, "KeySchema": _schema(partition, sort), "Projection": projection}


def _schema(partition: str, *sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        *({"AttributeName": name, "KeyType": "RANGE"} for name in sort),
    ]


def _strings(*names: str) -> list[dict[str, str]]:
    return [{"AttributeName": name, "AttributeType": "S"} for name in names]


TABLE_SPEC: dict[str, Any] = {
    "AttributeDefinitions": _strings(PK, SK, "owner", "listing", "created", "due_shard", "next_check_at", "open_in"),
    "KeySchema": _schema(PK, SK),
    "GlobalSecondaryIndexes": [
        _index(BY_OWNER, "owner", "created", "state"),
        _index(BY_AGE, "listing", "created", "state"),
        _index(DUE, "due_shard", "next_check_at"),
        _index(OPEN_RESOURCES, "open_in", SK),
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
"""Of the ledger table, in the words of CreateTable and CloudFormation alike."""

RUNTIME_TABLE_SPEC: dict[str, Any] = {
    "AttributeDefinitions": _strings(RUNTIME_KEY),
    "KeySchema": _schema(RUNTIME_KEY),
    "BillingMode": "PAY_PER_REQUEST",
}


def due_shard(lease_id: str) -> str:
    """The lease's partition of the `due` index; the same in every process and version of Python."""
    return f"due#{zlib.crc32(lease_id.encode()) % DUE_SHARDS}"


def due_shards() -> list[str]:
    """All partitions of the `due` index."""
    return [f"due#{number}" for number in range(DUE_SHARDS)]


def open_in(provider: str, region: str) -> str:
    """A partition of the `open_resources` index. Names of providers have no `#`."""
    return f"{provider}#{region}"
