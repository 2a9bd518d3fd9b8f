"""`ports.Workflows` on AWS Step Functions. A doubled start is refused by the service, which is what we want."""

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from gpulease.errors import LedgerUnavailable

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


class StepFunctionsWorkflows:
    """`arns`: machine name → state machine ARN."""

    def __init__(self, client: "SFNClient", arns: dict[str, str]) -> None:
        self._client = client
        self._arns = arns

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        payload = json.dumps({"lease_id": lease_id, "epoch": epoch})
        try:
            self._client.start_execution(stateMachineArn=self._arns[machine], name=name, input=payload)
        except self._client.exceptions.ExecutionAlreadyExists:
            return
        except (ClientError, BotoCoreError) as error:
            # Whether it started is unknown; a second start under this name is harmless.
            raise LedgerUnavailable(f"could not start {machine} {name}: {type(error).__name__}") from error

    def is_running(self, machine: str, name: str) -> bool:
        arn = self._arns[machine].replace(":stateMachine:", ":execution:") + f":{name}"
        try:
            return self._client.describe_execution(executionArn=arn)["status"] == "RUNNING"
        except self._client.exceptions.ExecutionDoesNotExist:
            return False
        except (ClientError, BotoCoreError) as error:
            raise LedgerUnavailable(f"could not read {machine} {name}: {type(error).__name__}") from error
