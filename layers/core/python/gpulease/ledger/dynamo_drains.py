"""Whether the deployment is being drained: one row of the ledger table, in no index. The last writer is right."""

from typing import Any

from gpulease.domain.drain import Drain
from gpulease.errors import LedgerUnavailable
from gpulease.ledger import codec, keys
from gpulease.ledger.dynamo_calls import TRIES, DynamoCalls, Item, Sleep

_KEY: Item = {keys.PK: {"S": keys.DEPLOYMENT}, keys.SK: {"S": keys.DRAIN_SK}}


class DynamoDrainStore:
    """`ports.DrainStore`. `client`: low-level DynamoDB client; `sleep`: pause between retries, in seconds."""

    def __init__(self, client: Any, table_name: str, *, sleep: Sleep, tries: int = TRIES) -> None:
        self._calls = DynamoCalls(client, table_name, sleep=sleep, tries=tries)

    def load(self) -> Drain:
        """See `ports.DrainStore.load`."""
        for row in self._calls.rows([_KEY]):
            return codec.decode(Drain, str(row["doc"]["S"]))
        return Drain()

    def save(self, drain: Drain) -> None:
        """See `ports.DrainStore.save`. Sent again after a lost answer it writes the same."""
        row = codec.encode(drain, "drain")
        if self._calls.update("put_item", Item=_KEY | {"doc": {"S": row.doc}}) is None:
            raise LedgerUnavailable("a write without a condition was refused")
