"""The last offers per provider, in the Runtime table: they can be fetched again, so they are no ledger rows.

A snapshot of a large provider has megabytes, an item 400 KB: it is compressed, and cut where that is not enough. Parts
are named after their content and written before the head that names them, so a reader sees one snapshot or the other,
never half of each. The provider names are a set in one item, since the table has no sort key to list by.
"""

import hashlib
import zlib
from typing import Any

from gpulease.domain.offer import OfferSnapshot
from gpulease.errors import LedgerUnavailable
from gpulease.ledger import codec
from gpulease.ledger.dynamo_calls import TRIES, DynamoCalls, Item, Sleep
from gpulease.ledger.keys import RUNTIME_KEY

PART_BYTES = 350_000
_LIST = "offers"


def _at_once(seconds: float) -> None:
    """Retries without a pause; for callers that have no clock to wait by."""


class DynamoOfferStore:
    """`ports.OfferStore` in the Runtime table. `sleep`: pause between retries, in seconds."""

    def __init__(
        self,
        client: Any,
        runtime_table_name: str,
        *,
        sleep: Sleep = _at_once,
        tries: int = TRIES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._calls = DynamoCalls(client, runtime_table_name, sleep=sleep, tries=tries)
        self._tries = tries
        self._part_bytes = part_bytes

    def save(self, snapshot: OfferSnapshot) -> None:
        """Keep the snapshot as its provider's last, unless a later one is kept already."""
        row = codec.encode(snapshot, "offers", max_bytes=None)
        packed = zlib.compress(row.doc.encode(), 6)
        digest = hashlib.sha256(packed).hexdigest()[:24]
        starts = range(0, len(packed), self._part_bytes)
        parts = [f"{_LIST}#{snapshot.provider}#{digest}#{n}" for n in range(len(starts))]
        for part, start in zip(parts, starts, strict=True):
            body = packed[start : start + self._part_bytes]
            self._calls.update("put_item", Item={RUNTIME_KEY: {"S": part}, "body": {"B": body}})
        as_of = {"S": codec.time_text(row.model.as_of)}
        head = {
            RUNTIME_KEY: {"S": f"{_LIST}#{snapshot.provider}"},
            "as_of": as_of,
            "parts": {"L": [{"S": part} for part in parts]},
        }
        before = self._rows([f"{_LIST}#{snapshot.provider}"])
        answer = self._calls.update(
            "put_item",
            Item=head,
            ConditionExpression="attribute_not_exists(#as_of) OR #as_of <= :as_of",
            ExpressionAttributeNames={"#as_of": "as_of"},
            ExpressionAttributeValues={":as_of": as_of},
        )
        if answer is None:
            self._delete(parts)
            return
        self._calls.update(
            "update_item",
            Key={RUNTIME_KEY: {"S": _LIST}},
            UpdateExpression="ADD #providers :provider",
            ExpressionAttributeNames={"#providers": "providers"},
            ExpressionAttributeValues={":provider": {"SS": [snapshot.provider]}},
        )
        self._delete([part for row in before.values() for part in _parts(row) if part not in parts])

    def load(self) -> list[OfferSnapshot]:
        """The last snapshot of each provider, by name."""
        listed = next(iter(self._rows([_LIST]).values()), {})
        providers = sorted(listed.get("providers", {}).get("SS", []))
        return [snapshot for name in providers if (snapshot := self._snapshot(name)) is not None]

    def _snapshot(self, provider: str) -> OfferSnapshot | None:
        for tried in range(self._tries):
            head = self._rows([f"{_LIST}#{provider}"])
            if not head:
                return None
            parts = _parts(next(iter(head.values())))
            found = self._rows(parts)
            if len(found) == len(parts):
                packed = b"".join(bytes(found[part]["body"]["B"]) for part in parts)
                return codec.decode(OfferSnapshot, zlib.decompress(packed).decode())
            self._calls.pause(tried)  # replaced between the two reads
        raise LedgerUnavailable(f"offers of {provider}: parts are missing")

    def _rows(self, names: list[str]) -> dict[str, Item]:
        rows = self._calls.rows([{RUNTIME_KEY: {"S": name}} for name in names])
        return {row[RUNTIME_KEY]["S"]: row for row in rows}

    def _delete(self, names: list[str]) -> None:
        for name in names:
            self._calls.update("delete_item", Key={RUNTIME_KEY: {"S": name}})


def _parts(head: Item) -> list[str]:
    return [part["S"] for part in head.get("parts", {}).get("L", [])]
