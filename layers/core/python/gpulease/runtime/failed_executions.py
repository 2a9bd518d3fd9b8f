"""`ports.FailedExecutions` on an SQS queue that an EventBridge rule fills.

Invariants: a message that cannot be read is never taken off; after a few tries the queue moves it to where somebody is
told of it. What a message says is used as a name to look for and for nothing else.
https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html
"""

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from gpulease.errors import LedgerUnavailable
from gpulease.ports import FailedExecution, Log

MOST_MESSAGES = 10
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"""
WAIT_SECONDS = 0
"""An answer may then leave out what is waiting, which the next minute's finds. To wait one second each minute would
cost ten times as much as the reading itself."""


class _Input(BaseModel):
    """What every execution of ours is started with."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    lease_id: str = Field(pattern=r"^[a-z0-9-]{3,40}$")


class _Detail(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1, max_length=80)
    input: Json[_Input]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    detail: _Detail


class SqsFailedExecutions:
    """`client`: an SQS client."""

    def __init__(self, client: Any, queue_url: str, log: Log) -> None:
        self._client = client
        self._queue_url = queue_url
        self._log = log

    def receive(self) -> Sequence[FailedExecution]:
        """See `ports.FailedExecutions.receive`."""
        try:
            answer = self._client.receive_message(
                QueueUrl=self._queue_url, MaxNumberOfMessages=MOST_MESSAGES, WaitTimeSeconds=WAIT_SECONDS
            )
        except (ClientError, BotoCoreError) as error:
            raise LedgerUnavailable(f"could not read the queue: {type(error).__name__}") from error
        read = (self._read(message) for message in answer.get("Messages", ()))
        return [message for message in read if message is not None]

    def done(self, message: FailedExecution) -> None:
        """See `ports.FailedExecutions.done`."""
        try:
            self._client.delete_message(QueueUrl=self._queue_url, ReceiptHandle=message.receipt)
        except (ClientError, BotoCoreError) as error:
            raise LedgerUnavailable(f"could not take a message off the queue: {type(error).__name__}") from error

    def _read(self, message: dict[str, Any]) -> FailedExecution | None:
        try:
            detail = _Event.model_validate_json(message["Body"]).detail
        except ValidationError as error:
            fields = ", ".join(sorted({".".join(str(part) for part in each["loc"]) for each in error.errors()}))
            self._log.warning("message_unreadable", message_id=message.get("MessageId"), fields=fields)
            return None
        return FailedExecution(message["ReceiptHandle"], detail.name, detail.input.lease_id)
