"""What agents told, in the ledger table: one row per lease, beside it and not among what a lease is read with.

It lives in the ledger table because the token's hash in it decides who may speak for a machine. It is in no index. A
report costs one read and one write of it, and nothing else. Each write carries a token of its own, so that one whose
answer was lost is known again, and two equal writes of two writers are not taken for one.
"""

from typing import Any

from gpulease.domain.agent import AgentRecord
from gpulease.errors import InputInvalid, LeaseConflict
from gpulease.ledger import codec, keys
from gpulease.ledger.dynamo_calls import TRIES, DynamoCalls, Item, Sleep
from gpulease.ports import Ids


class DynamoAgentStore:
    """`ports.AgentStore`. `client`: low-level DynamoDB client; `sleep`: pause between retries, in seconds."""

    def __init__(self, client: Any, table_name: str, *, ids: Ids, sleep: Sleep, tries: int = TRIES) -> None:
        self._calls = DynamoCalls(client, table_name, sleep=sleep, tries=tries)
        self._ids = ids

    def load(self, lease_id: str) -> AgentRecord | None:
        """See `ports.AgentStore.load`."""
        if not codec.is_key(lease_id):
            return None
        for row in self._calls.rows([_key(lease_id)]):
            return codec.decode(AgentRecord, str(row["doc"]["S"]))
        return None

    def save(self, agent: AgentRecord) -> AgentRecord:
        """See `ports.AgentStore.save`."""
        if not codec.is_key(agent.lease_id):
            raise InputInvalid("not a lease id", field="lease_id")
        row = codec.encode(agent.model_copy(update={"version": agent.version + 1}), "agent")
        token = self._ids.token()
        put: Item = {
            "TableName": self._calls.table,
            "Item": _key(agent.lease_id)
            | {"version": {"N": str(row.model.version)}, "token": {"S": token}, "doc": {"S": row.doc}},
            "ConditionExpression": "#version = :before",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": {":before": {"N": str(agent.version)}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if agent.version == 0:
            put["ConditionExpression"] = "attribute_not_exists(#pk)"
            put["ExpressionAttributeNames"] = {"#pk": keys.PK}
            del put["ExpressionAttributeValues"]
        refused = self._calls.write([{"Put": put}], token)
        if refused is not None:
            stored = refused.items[0][1]
            if stored is None or stored["token"]["S"] != token:
                raise LeaseConflict(f"agent of {agent.lease_id}: no longer version {agent.version}")
        return row.model


def _key(lease_id: str) -> Item:
    return {keys.PK: {"S": lease_id}, keys.SK: {"S": keys.AGENT_SK}}
