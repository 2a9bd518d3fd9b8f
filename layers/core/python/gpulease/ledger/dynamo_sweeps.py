"""What sweeps remember, in the ledger table: one item collection (`keys.SWEEPS`) with one item per account and region.

It lives in the ledger table and not in the Runtime table because the places in it say where we ever asked for
something: if that could expire, a forgotten machine would be one that nobody looks for. The items are in no index.
"""

from typing import Any

from gpulease.domain.sweep import SweepState
from gpulease.errors import LeaseConflict
from gpulease.ledger import codec, keys
from gpulease.ledger.dynamo_calls import TRIES, DynamoCalls, Item, Sleep


class DynamoSweepStore:
    """`ports.SweepStore`. `client`: low-level DynamoDB client; `sleep`: pause between retries, in seconds."""

    def __init__(self, client: Any, table_name: str, *, sleep: Sleep, tries: int = TRIES) -> None:
        self._calls = DynamoCalls(client, table_name, sleep=sleep, tries=tries)
        self._noted: set[tuple[str, str]] = set()

    def note_place(self, account: str, region: str) -> None:
        """See `ports.SweepStore.note_place`. One write per place in the life of a process."""
        if (account, region) in self._noted:
            return
        self._put(SweepState(account=account, region=region, version=1))
        self._noted.add((account, region))

    def states(self) -> list[SweepState]:
        """See `ports.SweepStore.states`. By account and region."""
        pages = self._calls.pages(
            "query",
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": keys.PK},
            ExpressionAttributeValues={":pk": {"S": keys.SWEEPS}},
            ConsistentRead=True,
        )
        return [codec.decode(SweepState, str(row["doc"]["S"])) for page in pages for row in page["Items"]]

    def load(self, account: str, region: str) -> SweepState:
        """See `ports.SweepStore.load`."""
        for row in self._calls.rows([_key(account, region)]):
            return codec.decode(SweepState, str(row["doc"]["S"]))
        return SweepState(account=account, region=region)

    def save(self, state: SweepState) -> SweepState:
        """See `ports.SweepStore.save`. A write whose answer was lost is recognised by reading it back."""
        new = state.model_copy(update={"version": state.version + 1})
        if not self._put(new) and self.load(state.account, state.region) != new:
            raise LeaseConflict(f"sweep of {state.account}/{state.region}: no longer version {state.version}")
        return new

    def _put(self, state: SweepState) -> bool:
        """Whether it was written: version 1 where nothing is, a later one in the place of the one before it."""
        row = codec.encode(state, "sweep")
        condition: Item = {
            "ConditionExpression": "#version = :before",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": {":before": {"N": str(state.version - 1)}},
        }
        if state.version == 1:
            condition = {
                "ConditionExpression": "attribute_not_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": keys.PK},
            }
        item = _key(state.account, state.region) | {"version": {"N": str(state.version)}, "doc": {"S": row.doc}}
        return self._calls.update("put_item", Item=item, **condition) is not None


def _key(account: str, region: str) -> Item:
    return {keys.PK: {"S": keys.SWEEPS}, keys.SK: {"S": f"{keys.SWEEP_PREFIX}{account}#{region}"}}
