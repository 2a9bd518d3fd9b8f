"""Messages about failed executions, from an SQS queue and from the engine of this process."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from gpulease.errors import LedgerUnavailable
from gpulease.ports import FailedExecution
from gpulease.runtime.failed_executions import SqsFailedExecutions
from gpulease_local.asl.execution import Execution
from gpulease_local.failed_executions import HIDDEN_SECONDS, LocalFailedExecutions

from tests.support.api_world import KeptLog

URL = "https://sqs.example/queue"
NAME = "l-abc234abc234-provision-1"


def body(**detail: Any) -> str:
    """An event as EventBridge puts it into the queue."""
    known = {"name": NAME, "status": "FAILED", "input": json.dumps({"lease_id": "l-abc234abc234", "epoch": 1})}
    return json.dumps({"version": "0", "source": "aws.states", "detail": {**known, **detail}})


@dataclass
class Queue:
    bodies: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    failure: Exception | None = None

    def receive_message(self, **asked: Any) -> dict[str, Any]:
        if self.failure:
            raise self.failure
        assert asked["QueueUrl"] == URL
        if not self.bodies:
            return {}
        told = [{"MessageId": f"m{n}", "ReceiptHandle": f"r{n}", "Body": text} for n, text in enumerate(self.bodies)]
        return {"Messages": told}

    def delete_message(self, **asked: Any) -> None:
        if self.failure:
            raise self.failure
        self.deleted.append(asked["ReceiptHandle"])


def test_a_message_names_the_execution_and_its_lease() -> None:
    queue = Queue([body()])
    messages = SqsFailedExecutions(queue, URL, KeptLog())

    [message] = messages.receive()
    messages.done(message)

    assert message == FailedExecution("r0", NAME, "l-abc234abc234")
    assert queue.deleted == ["r0"]


def test_an_empty_queue_has_no_messages() -> None:
    assert SqsFailedExecutions(Queue(), URL, KeptLog()).receive() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "{}",
        '{"detail": null}',
        body(name=""),
        body(name="x" * 81),
        body(name=7),
        body(input=None),
        body(input="{"),
        body(input="{}"),
        body(input='{"lease_id": 5}'),
        body(input='{"lease_id": "L; DROP"}'),
        body(input='{"lease_id": "' + "l" * 41 + '"}'),
    ],
)
def test_a_message_that_cannot_be_read_is_left_where_it_is_and_told(text: str) -> None:
    log, queue = KeptLog(), Queue([text, body()])

    messages = SqsFailedExecutions(queue, URL, log).receive()

    assert [message.receipt for message in messages] == ["r1"]
    assert queue.deleted == []
    [(_, event, facts)] = log.lines
    assert event == "message_unreadable"
    assert facts["message_id"] == "m0"
    assert not text or text not in str(facts)


@pytest.mark.parametrize(
    "failure",
    [
        ClientError({"Error": {"Code": "AccessDenied"}}, "ReceiveMessage"),
        EndpointConnectionError(endpoint_url=URL),
    ],
)
def test_a_queue_that_does_not_answer_is_no_empty_queue(failure: Exception) -> None:
    messages = SqsFailedExecutions(Queue(failure=failure), URL, KeptLog())

    with pytest.raises(LedgerUnavailable):
        messages.receive()
    with pytest.raises(LedgerUnavailable):
        messages.done(FailedExecution("r0", NAME, "l-abc234abc234"))


def test_on_one_computer_a_message_comes_back_until_it_is_taken_off() -> None:
    now = [1000.0]
    messages = LocalFailedExecutions(lambda: now[0])
    messages.ended(Execution("provision", NAME, {"lease_id": "l-abc234abc234"}, 0.0, "A", {}, 0.0))
    messages.ended(Execution("other", "by-hand", ["no lease"], 0.0, "A", {}, 0.0))

    first, at_once = list(messages.receive()), list(messages.receive())
    now[0] += HIDDEN_SECONDS
    again = list(messages.receive())
    messages.done(again[0])
    now[0] += HIDDEN_SECONDS

    assert [(m.name, m.lease_id) for m in first] == [(NAME, "l-abc234abc234")]
    assert at_once == []
    assert again == first
    assert list(messages.receive()) == []


def test_on_one_computer_at_most_ten_messages_come_at_once() -> None:
    messages = LocalFailedExecutions(lambda: 0.0)
    for number in range(12):
        messages.send(f"{NAME}-r{number}", "l-abc234abc234")

    assert [len(messages.receive()) for _ in range(3)] == [10, 2, 0]
