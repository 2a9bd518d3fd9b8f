"""The stack of `template.yaml`, really built and deployed by the SAM CLI into a stand-in for AWS on this computer.

Invariants: everything listens on loopback and is written below one temporary folder; what is deployed is a copy, so
that a changed version can be made of it; callers are IAM users with keys of their own, whose policies are enforced.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from gpulease_cli.client import Client

from tests.support.ministack import ACCOUNT, REGION, Ministack, executable

STACK = "gpulease-check"
_OTHER_FOLDERS = {"checkov": ("GPULEASE_CHECKOV", ".venv-checkov")}
"""Commands that are not with the SAM CLI: the variable that names their folder, else the environment they are in."""
_PACKED = ("template.yaml", "samconfig.toml", "layers", "functions", "statemachines")


class CommandFailed(AssertionError):
    """A command of the deployment ended with an error; the message holds the end of what it said."""


@dataclass(frozen=True)
class Sam:
    """The SAM CLI in its own environment, pointed at the stand-in. `work`: a folder for copies and builds."""

    server: Ministack
    work: Path
    repository: Path

    def run(self, *command: str, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
        """Run one of the environment's commands and return what it printed. Raises CommandFailed."""
        home = self.work / "home"
        home.mkdir(parents=True, exist_ok=True)
        folder = self._folder(command[0])
        done = subprocess.run(  # noqa: S603 - our own commands
            [str(folder / command[0]), *command[1:]],
            cwd=cwd,
            env={
                "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
                "HOME": str(home),
                "AWS_ENDPOINT_URL": self.server.endpoint_url,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_DEFAULT_REGION": REGION,
                "SAM_CLI_TELEMETRY": "0",
                # Functions run here, with the interpreter of the stand-in.
                "GPULEASE_BUILD_PLATFORM": "host",
                "GPULEASE_BUILD_PYTHON": str(executable().with_name("python")),
                **_pip_settings(),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-4000:]}")
        return done.stdout + done.stderr

    def _folder(self, command: str) -> Path:
        variable, folder = _OTHER_FOLDERS.get(command, ("GPULEASE_SAM", ".venv-sam"))
        return Path(os.environ.get(variable) or self.repository / folder / "bin")

    def copy(self, name: str) -> Path:
        """A copy of all that is deployed, to build from."""
        target = self.work / name
        target.mkdir(parents=True)
        for each in _PACKED:
            source = self.repository / each
            if source.is_dir():
                shutil.copytree(source, target / each, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target / each)
        return target

    def build(self, source: Path) -> None:
        """Build what lies in `source`; what has not changed since the last time is taken from there."""
        self.run("sam", "build", "--cached", cwd=source)

    def deploy(self, source: Path, parameters: Mapping[str, str]) -> None:
        """Deploy what was built in `source` under the name STACK."""
        self.run(
            "sam", "deploy", "--stack-name", STACK, "--no-confirm-changeset",
            "--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items()),
            cwd=source,
        )  # fmt: skip


@dataclass
class Simulator:
    """The simulated Vultr in a process of its own; `url` is its API."""

    url: str
    _process: subprocess.Popen[str] = field(repr=False)

    @classmethod
    def start(cls, *, time_scale: float, settings: Mapping[str, Any], repository: Path) -> "Simulator":
        """Serve on a free port; `settings` are fields of the simulator's Settings."""
        process = subprocess.Popen(  # noqa: S603 - our own module
            [
                *(sys.executable, "-m", "gpulease_sim.vultr", "--port", "0", "--time-scale", str(time_scale)),
                *("--settings", json.dumps(settings)),
            ],
            cwd=repository,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url.startswith("http://127.0.0.1:"):
            raise CommandFailed(f"the simulator did not start: {url!r}")
        return cls(url, process)

    @property
    def origin(self) -> str:
        """Where the control routes are."""
        return self.url.removesuffix("/v2")

    def stop(self) -> None:
        """End its process."""
        self._process.terminate()
        self._process.wait(10)


@dataclass(frozen=True)
class Caller:
    """An IAM user who may call the API and nothing else."""

    arn: str
    access_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def create(cls, server: Ministack, name: str) -> "Caller":
        """Make the user, a key and the policy."""
        iam = server.client("iam")
        arn = iam.create_user(UserName=name)["User"]["Arn"]
        allowed = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": f"arn:aws:execute-api:{REGION}:*"}
        policy = {"Version": "2012-10-17", "Statement": [allowed]}
        iam.put_user_policy(UserName=name, PolicyName="api", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return cls(arn, key["AccessKeyId"], key["SecretAccessKey"])

    def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> dict[str, str]:
        """See `gpulease_cli.client.Sign`; written apart from the command line's own, so that both are checked."""
        request = AWSRequest(method=method, url=url, data=body or b"")
        SigV4Auth(Credentials(self.access_key, self.secret_key), "execute-api", REGION).add_auth(request)
        return dict(request.headers.items())

    def client(self, url: str) -> Client:
        """The API as this user sees it."""
        return Client(url, timeout_seconds=30, sign=self.sign)


@dataclass(frozen=True)
class Deployed:
    """The deployed stack, looked at from outside."""

    server: Ministack

    def status(self) -> str:
        """CloudFormation's word for the state of the stack."""
        return str(self._stack()["StackStatus"])

    def outputs(self) -> dict[str, str]:
        """The stack's outputs by name."""
        return {each["OutputKey"]: each["OutputValue"] for each in self._stack().get("Outputs", ())}

    def resources(self) -> dict[str, str]:
        """Logical to physical id."""
        pages = self.server.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK)
        return {
            each["LogicalResourceId"]: each["PhysicalResourceId"]
            for page in pages
            for each in page["StackResourceSummaries"]
        }

    def api_url(self) -> str:
        """Where the stand-in serves the API that the stack's output names."""
        found = re.fullmatch(r"https://(\w+)\.execute-api\..+", self.outputs()["ApiUrl"])
        if found is None:
            raise CommandFailed(f"not an address of an API: {self.outputs()['ApiUrl']}")
        return f"{self.server.endpoint_url}/_aws/execute-api/{found[1]}"

    def invoke(self, function: str) -> Any:
        """Call a function by its logical id, as an administrator, and return its answer. Raises CommandFailed."""
        answer = self.server.client("lambda").invoke(FunctionName=self.resources()[function], Payload=b"{}")
        payload = json.loads(answer["Payload"].read() or b"null")
        if answer.get("FunctionError"):
            raise CommandFailed(f"{function}: {payload}")
        return payload

    def log_lines(self, function: str) -> list[dict[str, Any]]:
        """What a function logged so far, its structured lines only."""
        resources = self.resources()
        pages = self.server.client("logs").get_paginator("filter_log_events")
        found = pages.paginate(logGroupName=resources["FunctionLogs"])
        lines = [line for page in found for each in page["events"] for line in each["message"].splitlines()]
        facts = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in facts if each.get("operation") == resources[function]]

    def faults(self) -> list[str]:
        """What went wrong inside executions, each fault once, for a person to read."""
        machines = self.server.client("stepfunctions")
        found: dict[str, None] = {}
        for listed in machines.list_state_machines()["stateMachines"]:
            for execution in machines.list_executions(stateMachineArn=listed["stateMachineArn"])["executions"]:
                arn = execution["executionArn"]
                for page in machines.get_paginator("get_execution_history").paginate(executionArn=arn):
                    for each in page["events"]:
                        told = each.get("taskFailedEventDetails") or each.get("lambdaFunctionFailedEventDetails")
                        if told:
                            found[f"{listed['name']}: {told.get('error')}: {told.get('cause', '')[:300]}"] = None
        return list(found)

    def _stack(self) -> Mapping[str, Any]:
        stacks: Sequence[Mapping[str, Any]] = self.server.client("cloudformation").describe_stacks(StackName=STACK)[
            "Stacks"
        ]
        return stacks[0]


def _pip_settings() -> dict[str, str]:
    """Where this user's pip looks for packages, and whom it trusts, holds for builds too."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT", "REQUESTS_CA"))}


__all__ = ["ACCOUNT", "STACK", "Caller", "CommandFailed", "Deployed", "Sam", "Simulator"]
