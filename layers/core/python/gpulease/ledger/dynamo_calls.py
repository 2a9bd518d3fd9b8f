"""How DynamoDB is called: bounded retries, and every fault of botocore in the words of `errors.py`.

Invariants: a read that failed is never taken for an empty one (the answer must hold what was asked for), pages are
read until no key is returned however empty they are, and a write whose answer was lost is sent again as it was, with
its token, so that the condition tells whether it had been written.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ChecksumError, ClientError, ConnectionError, HTTPClientError
from botocore.parsers import ResponseParserError

from gpulease.errors import LeaseConflict, LedgerUnavailable

Item: TypeAlias = dict[str, Any]
"""A row in DynamoDB's own JSON: `{"pk": {"S": "l-…"}, …}`."""
Sleep = Callable[[float], None]

TRIES = 5
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
_BATCH = 100

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
_NOT_CARRIED_OUT = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
    }
)
_CONTENDED = frozenset({"TransactionConflict", "TransactionConflictException", "TransactionInProgressException"})
_LOST = (HTTPClientError, ConnectionError, ChecksumError, ResponseParserError)


@dataclass(frozen=True, slots=True)
class Refused:
    """A write whose conditions did not hold; nothing was written by this try."""

    items: tuple[tuple[int, Item | None], ...]
    """Of each operation that was refused: its place in the request, and the stored row (None = there is none)."""


class _Again(Exception):
    """The call may be sent again. `contended`: because of another writer of the same row."""

    def __init__(self, cause: Exception | str, *, contended: bool = False, lost: bool = False) -> None:
        super().__init__(str(cause))
        self.contended = contended
        self.lost = lost


class DynamoCalls:
    """Calls on one table. `client` is a low-level DynamoDB client; its own retries, if any, do no harm."""

    def __init__(self, client: Any, table: str, *, sleep: Sleep, tries: int = TRIES) -> None:
        self.table = table
        self._client = client
        self._sleep = sleep
        self._tries = tries

    def pages(self, operation: str, **request: Any) -> Iterator[Item]:
        """Answers of `query` or `scan`, until one has no LastEvaluatedKey. Empty pages are answers like others."""
        request["TableName"] = self.table
        while True:
            answer = self._read(operation, "Items", request)
            yield answer
            if not answer.get("LastEvaluatedKey"):
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def rows(self, keys: list[Item]) -> Iterator[Item]:
        """The rows with these keys, strongly consistent, in no order; what does not exist is left out."""
        for start in range(0, len(keys), _BATCH):
            wanted: Any = {self.table: {"Keys": keys[start : start + _BATCH], "ConsistentRead": True}}
            idle = 0
            while wanted:
                answer = self._read("batch_get_item", "Responses", {"RequestItems": wanted})
                found = answer["Responses"].get(self.table, [])
                yield from found
                wanted = answer.get("UnprocessedKeys")
                idle = 0 if found else idle + 1
                if wanted and idle:
                    if idle >= self._tries:
                        raise LedgerUnavailable("DynamoDB: throttled, keys stay unprocessed")
                    self._pause(idle - 1, self.table)

    def write(self, operations: list[Item], token: str) -> Refused | None:
        """Carry out one or more operations, all or nothing. None = written, by this try or an earlier one.

        Raises LeaseConflict when other writers are in the way to the end, LedgerUnavailable.
        """
        if len(operations) == 1 and "Put" in operations[0]:
            name, request = "put_item", operations[0]["Put"]
        else:
            name, request = "transact_write_items", {"TransactItems": operations, "ClientRequestToken": token}
        lost = False
        for tried in range(self._tries):
            try:
                return self._send_write(name, request)
            except _Again as again:
                lost = lost or again.lost
                if tried + 1 == self._tries:
                    if again.contended and not lost:
                        raise LeaseConflict(f"another writer is in the way: {again}") from again
                    raise LedgerUnavailable(f"DynamoDB: {again}") from again
            self._pause(tried, token)
        raise AssertionError("unreachable")

    def update(self, operation: str, **request: Any) -> Item | None:
        """A write that may be carried out twice without harm. None = its condition did not hold."""
        try:
            return self._repeat(operation, {"TableName": self.table, **request})
        except ClientError as error:
            if _code(error) == "ConditionalCheckFailedException":
                return None
            raise _given_up(error) from error

    def pause(self, tried: int) -> None:
        """Wait before the next try of something that is made of several calls."""
        self._pause(tried, self.table)

    def _read(self, operation: str, expected: str, request: Item) -> Item:
        try:
            return self._repeat(operation, request, expected)
        except ClientError as error:
            raise _given_up(error) from error

    def _repeat(self, operation: str, request: Item, expected: str | None = None) -> Item:
        for tried in range(self._tries):
            try:
                answer = self._send(operation, request)
                if expected is None or expected in answer:
                    return answer
                failure = _Again(f"an answer without {expected}")
            except _Again as again:
                failure = again
            if tried + 1 == self._tries:
                raise LedgerUnavailable(f"DynamoDB: {failure}") from failure
            self._pause(tried, operation)
        raise AssertionError("unreachable")

    def _send_write(self, name: str, request: Item) -> Refused | None:
        try:
            self._send(name, request)
        except ClientError as error:
            if _code(error) == "ConditionalCheckFailedException":
                stored: Any = error.response.get("Item")
                return Refused(((0, stored or None),))
            if _code(error) == "TransactionCanceledException":
                return _refused(error)
            raise _given_up(error) from error
        return None

    def _send(self, operation: str, request: Item) -> Item:
        """Send once. Raises _Again for what may be sent again, LedgerUnavailable for what nobody can mend by that,
        and ClientError for the rest."""
        try:
            answer: Item = getattr(self._client, operation)(**request)
        except ClientError as error:
            code = _code(error)
            if code in _NOT_CARRIED_OUT:
                raise _Again(error) from error
            if code in _CONTENDED:
                raise _Again(error, contended=True) from error
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
                raise _Again(error, lost=True) from error
            raise
        except _LOST as error:
            raise _Again(error, lost=True) from error
        except BotoCoreError as error:
            raise LedgerUnavailable(f"DynamoDB: {error}") from error
        return answer

    def _pause(self, tried: int, seed: str) -> None:
        # Spread over half to whole of the pause, so that writers who met once do not meet again; no randomness needed.
        spread = 0.5 + zlib.crc32(f"{seed}{tried}".encode()) / 2**33
        self._sleep(min(FIRST_PAUSE_SECONDS * 2**tried, LONGEST_PAUSE_SECONDS) * spread)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _given_up(error: ClientError) -> LedgerUnavailable:
    return LedgerUnavailable(f"DynamoDB: {error}")


def _refused(error: ClientError) -> Refused:
    """What a cancelled transaction says of each of its operations, in their order."""
    reasons: list[Item] = error.response.get("CancellationReasons", [])  # type: ignore[assignment]
    failed = tuple(
        (place, reason.get("Item") or None)
        for place, reason in enumerate(reasons)
        if reason.get("Code") == "ConditionalCheckFailed"
    )
    if failed:
        return Refused(failed)
    codes = {str(reason.get("Code")) for reason in reasons}
    if codes & _CONTENDED:
        raise _Again(error, contended=True) from error
    if codes & _NOT_CARRIED_OUT:
        raise _Again(error) from error
    raise _given_up(error) from error
