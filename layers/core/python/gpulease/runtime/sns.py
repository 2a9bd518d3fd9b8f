"""Alarms to people through an SNS topic, and into the log as well: an alarm that cannot be sent is still written."""

import json
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from gpulease.domain.event import Fact
from gpulease.ports import Log, Notifier

MAX_SUBJECT_CHARACTERS = 100
"""https://docs.aws.amazon.com/sns/latest/api/API_Publish.html"""


class TopicNotifier:
    """`ports.Notifier`. `client`: an SNS client; `logged` is told first."""

    def __init__(self, client: Any, topic_arn: str, logged: Notifier, log: Log) -> None:
        self._client = client
        self._topic_arn = topic_arn
        self._logged = logged
        self._log = log

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        """Publish one alarm: the text for people, then its facts as JSON."""
        self._logged.alarm(name, text, facts)
        subject = f"gpulease: {name}"[:MAX_SUBJECT_CHARACTERS]
        message = f"{text}\n\n{json.dumps(facts, indent=2, default=str)}\n\nWhat to do: docs/runbook.md, {name}\n"
        try:
            self._client.publish(
                TopicArn=self._topic_arn,
                Subject=subject,
                Message=message,
                MessageAttributes={"alarm": {"DataType": "String", "StringValue": name}},
            )
        except (ClientError, BotoCoreError) as error:
            # The step that raised the alarm goes on: giving back matters more than telling of it.
            self._log.error("alarm_not_sent", alarm=name, error=type(error).__name__, reason=str(error))
