"""`ports.SharedReads` in the Runtime table, whose rows may expire.

A value is one item, compressed; a claim is an attribute of the same item. A queue is one number that conditional
updates move on. Each update may be carried out twice (an answer was lost): then a claim is lost until it expires, or a
slot stays empty, which costs a moment and nothing else.
"""

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from gpulease.errors import LedgerUnavailable
from gpulease.ledger.codec import time_text
from gpulease.ledger.dynamo_calls import TRIES, DynamoCalls, Item, Sleep
from gpulease.ledger.keys import RUNTIME_KEY, RUNTIME_TTL
from gpulease.ledger.shared import KEPT, LATEST_SLOT, LONGEST_CLAIM, WRONG_CLOCK, micros, micros_of, moment
from gpulease.ports import SharedValue

_TRIES = 8
"""Of a reservation: each failure means that another worker moved the queue on."""


class DynamoSharedReads:
    """See `ports.SharedReads`. `sleep`: pause between retries, in seconds."""

    def __init__(self, client: Any, runtime_table_name: str, *, sleep: Sleep, tries: int = TRIES) -> None:
        self._calls = DynamoCalls(client, runtime_table_name, sleep=sleep, tries=tries)

    def read(self, key: str) -> SharedValue | None:
        """See `ports.SharedReads.read`."""
        row = next(self._calls.rows([_key("shared", key)]), {})
        if "as_of" not in row:
            return None
        value = zlib.decompress(bytes(row["body"]["B"])).decode()
        return SharedValue(value, datetime.fromisoformat(row["as_of"]["S"]).astimezone(UTC))

    def claim(self, key: str, now: datetime, lease_seconds: float) -> bool:
        """See `ports.SharedReads.claim`."""
        answer = self._update(
            _key("shared", key),
            "SET claimed_until = :until, #ttl = :ttl",
            "attribute_not_exists(claimed_until) OR claimed_until <= :now OR claimed_until > :latest",
            {
                ":until": {"S": time_text(now + timedelta(seconds=lease_seconds))},
                ":now": {"S": time_text(now)},
                ":latest": {"S": time_text(now + LONGEST_CLAIM)},
            },
            now,
        )
        return answer is not None

    def publish(self, key: str, value: str, as_of: datetime) -> None:
        """See `ports.SharedReads.publish`."""
        self._update(
            _key("shared", key),
            "SET body = :body, as_of = :as_of, #ttl = :ttl REMOVE claimed_until",
            "attribute_not_exists(as_of) OR as_of <= :as_of OR as_of > :latest",
            {
                ":body": {"B": zlib.compress(value.encode(), 6)},
                ":as_of": {"S": time_text(as_of)},
                ":latest": {"S": time_text(as_of + WRONG_CLOCK)},
            },
            as_of,
        )

    def reserve(
        self, key: str, now: datetime, spacing_seconds: float, within_seconds: float | None = None
    ) -> datetime | None:
        """See `ports.SharedReads.reserve`."""
        start, spacing = micros(now), round(spacing_seconds * 1_000_000)
        implausible = start + micros_of(LATEST_SLOT)
        latest = implausible if within_seconds is None else start + micros_of(timedelta(seconds=within_seconds))
        numbers = {
            ":now": start,
            ":spacing": spacing,
            ":after": start + spacing,
            ":latest": latest,
            ":far": implausible,
        }
        for _ in range(_TRIES):
            # Behind others …
            answer = self._update(
                _key("queue", key),
                "SET next_slot = next_slot + :spacing, #ttl = :ttl",
                "next_slot > :now AND next_slot <= :latest",
                _numbers(numbers, ":now", ":spacing", ":latest"),
                now,
                ReturnValues="UPDATED_OLD",
            )
            if answer is not None:
                return moment(int(answer["Attributes"]["next_slot"]["N"]), now)
            # … or at once, nobody waiting.
            free = "attribute_not_exists(next_slot) OR next_slot <= :now OR next_slot > :far"
            numbers_free = _numbers(numbers, ":now", ":after", ":far")
            update = "SET next_slot = :after, #ttl = :ttl"
            if self._update(_key("queue", key), update, free, numbers_free, now) is not None:
                return now
            if within_seconds is not None:
                return None
        raise LedgerUnavailable(f"the queue {key} moves on too quickly")

    def _update(self, key: Item, update: str, condition: str, values: Item, now: datetime, **more: str) -> Item | None:
        return self._calls.update(
            "update_item",
            Key=key,
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames={"#ttl": RUNTIME_TTL},
            ExpressionAttributeValues={**values, ":ttl": {"N": str(int((now + KEPT).timestamp()))}},
            **more,
        )


def _key(sort: str, key: str) -> Item:
    return {RUNTIME_KEY: {"S": f"{sort}#{key}"}}


def _numbers(values: dict[str, int], *names: str) -> Item:
    return {name: {"N": str(values[name])} for name in names}
