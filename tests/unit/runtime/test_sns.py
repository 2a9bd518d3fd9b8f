"""Alarms to an SNS topic."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from gpulease.domain.event import Fact
from gpulease.runtime.sns import TopicNotifier

from tests.support.api_world import KeptLog

TOPIC = "arn:aws:sns:eu-west-1:111122223333:alarms"


@dataclass
class Topic:
    sent: list[dict[str, Any]] = field(default_factory=list)
    failure: Exception | None = None

    def publish(self, **message: Any) -> None:
        if self.failure:
            raise self.failure
        self.sent.append(message)


@dataclass
class Logged:
    told: list[str] = field(default_factory=list)

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        self.told.append(name)


def test_an_alarm_is_logged_and_published_with_its_facts() -> None:
    topic, logged = Topic(), Logged()

    TopicNotifier(topic, TOPIC, logged, KeptLog()).alarm("ReleaseStuck", "it is not gone", {"region": "ewr"})

    [message] = topic.sent
    assert (message["TopicArn"], message["Subject"]) == (TOPIC, "gpulease: ReleaseStuck")
    assert message["Message"].startswith("it is not gone\n")
    assert '"region": "ewr"' in message["Message"]
    assert message["MessageAttributes"]["alarm"]["StringValue"] == "ReleaseStuck"
    assert logged.told == ["ReleaseStuck"]


@pytest.mark.parametrize(
    "failure",
    [
        ClientError({"Error": {"Code": "AuthorizationError", "Message": "no"}}, "Publish"),
        EndpointConnectionError(endpoint_url="https://sns"),
    ],
)
def test_an_alarm_that_cannot_be_sent_stops_nobody_and_is_logged(failure: Exception) -> None:
    logged, log = Logged(), KeptLog()

    TopicNotifier(Topic(failure=failure), TOPIC, logged, log).alarm("ReleaseStuck", "it is not gone", {})

    assert logged.told == ["ReleaseStuck"]
    assert log.events("error") == ["alarm_not_sent"]
