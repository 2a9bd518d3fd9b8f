"""Runs the cases on three engines: ours, moto's and ministack's. Each returns an `Outcome` for every case.

The engines get the same definition, the same input and functions that work off the same script. All cases are
started at once and then awaited, so a suite of waits takes as long as the longest.
"""

import io
import json
import threading
import time
import unittest.mock
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import moto
from gpulease_local.asl import Engine, Status, TaskReply, VirtualClock, load_definition
from moto.awslambda.models import LambdaFunction

from tests.asl.machines import Answer, Case, Outcome
from tests.support.ministack import ACCOUNT, REGION, Ministack

ROLE = f"arn:aws:iam::{ACCOUNT}:role/machines"
MOTO_ROLE = "arn:aws:iam::123456789012:role/machines"  # moto's own account
DEADLINE_SECONDS = 120.0  # far beyond what it takes, for machines with other work
_BOOTSTRAP = Path(__file__).with_name("runtime_bootstrap.py")


def normalised(value: Any) -> Any:
    """Return an output in which each Cause is comparable: parsed when it is JSON, else only its presence."""
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _cause(item) if key == "Cause" else normalised(item) for key, item in value.items()}


def _cause(cause: Any) -> Any:
    try:
        return json.loads(cause)
    except ValueError:
        return "(text)"


class Scripts:
    """Works off each function's script; thread-safe."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._scripts = {
            function_name(case, role): list(script) for case in cases for role, script in case.scripts.items()
        }

    def next(self, function: str) -> Answer:
        """Return the next answer of a function."""
        with self._lock:
            number = self._calls.get(function, 0)
            self._calls[function] = number + 1
        script = self._scripts[function]
        return script[min(number, len(script) - 1)]


def function_name(case: Case, role: str) -> str:
    """Return the name of a case's function."""
    return f"{case.name}-{role}"[:64]


def value_of(answer: Answer, payload: Any) -> Any:
    """Return what an answer that is no error gives back."""
    if "echo" in answer:
        return payload
    return "x" * answer["repeat"] if "repeat" in answer else answer["return"]


def error_body(answer: Answer) -> dict[str, str]:
    """Return the body that a Lambda runtime gives to an exception."""
    return {"errorMessage": "scripted", "errorType": answer["raise"]}


# Ours ------------------------------------------------------------------------------------------------


def run_ours(cases: Sequence[Case]) -> dict[str, Outcome]:
    """Run the cases on our engine in virtual time."""
    scripts = Scripts(cases)

    def invoke(function: str, payload: Any) -> TaskReply:
        answer = scripts.next(function)
        seconds = float(answer.get("sleep", 0))
        if "raise" in answer:
            return TaskReply(error=answer["raise"], cause=json.dumps(error_body(answer)), duration_seconds=seconds)
        return TaskReply(value_of(answer, payload), duration_seconds=seconds)

    engine = Engine(clock=VirtualClock(1_700_000_000.0), seed=1, invoke=invoke)
    for case in cases:
        names = {role: function_name(case, role) for role in case.scripts}
        if case.child is not None:
            engine.register(load_definition(case.child, name=f"{case.name}-child"))
            names["child"] = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{case.name}-child"
        engine.register(load_definition(case.definition, name=case.name, substitutions=names))
        engine.start(case.name, case.name, case.input)
    engine.run_until_idle()
    outcomes = {}
    for case in cases:
        ended = engine.describe(case.name, case.name)
        output = normalised(ended.output) if ended.status is Status.SUCCEEDED else None
        error = ended.error if ended.status is Status.FAILED else None
        outcomes[case.name] = Outcome(ended.status.value, output, error)
    return outcomes


# Engines behind the service's API --------------------------------------------------------------------


def _run_behind_api(
    cases: Sequence[Case], states: Any, make_function: Callable[[Case, str], str]
) -> dict[str, Outcome]:
    arns = {}
    for case in cases:
        names = {role: make_function(case, role) for role in case.scripts}
        if case.child is not None:
            names["child"] = _create(states, f"{case.name}-child", case.child, {})
        machine = _create(states, case.name, case.definition, names)
        started = states.start_execution(stateMachineArn=machine, name=case.name, input=json.dumps(case.input))
        arns[case.name] = started["executionArn"]
    deadline = time.monotonic() + DEADLINE_SECONDS
    outcomes: dict[str, Outcome] = {}
    while len(outcomes) < len(cases):
        for name, arn in arns.items():
            if name not in outcomes:
                seen = states.describe_execution(executionArn=arn)
                if seen["status"] != "RUNNING" and (seen["status"] != "SUCCEEDED" or seen.get("output")):
                    outcomes[name] = _outcome(seen)
                elif time.monotonic() > deadline:
                    outcomes[name] = Outcome(f"{seen['status']} without an output")
        time.sleep(0.05)
    return outcomes


def _create(states: Any, name: str, definition: Any, names: dict[str, str]) -> str:
    text = json.dumps(definition)
    for placeholder, value in names.items():
        text = text.replace(f"${{{placeholder}}}", value)
    created = states.create_state_machine(name=name, definition=text, roleArn=ROLE)
    return str(created["stateMachineArn"])


def _outcome(seen: dict[str, Any]) -> Outcome:
    status = seen["status"]
    if status == "SUCCEEDED":
        return Outcome(status, normalised(_parsed(seen["output"])))
    return Outcome(status, None, (seen.get("error") or None) if status == "FAILED" else None)


def _parsed(output: str) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return output  # moto sends an output that is a text without its quotes


def run_on_ministack(cases: Sequence[Case], server: Ministack) -> dict[str, Outcome]:
    """Run the cases on ministack, with custom-runtime functions."""
    functions = server.client("lambda")

    def make_function(case: Case, role: str) -> str:
        name = function_name(case, role)
        functions.create_function(
            FunctionName=name,
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role=ROLE,
            Timeout=10,
            Code={"ZipFile": _function_zip(case.scripts[role])},
        )
        return name

    return _run_behind_api(cases, server.client("stepfunctions"), make_function)


def _function_zip(script: Sequence[Answer]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as package:
        bootstrap = zipfile.ZipInfo("bootstrap")
        bootstrap.external_attr = 0o755 << 16
        package.writestr(bootstrap, _BOOTSTRAP.read_text())
        package.writestr("script.json", json.dumps(list(script)))
    return archive.getvalue()


def run_on_moto(cases: Sequence[Case]) -> dict[str, Outcome]:
    """Run the cases on moto's engine in this process, with its Lambda call replaced by the scripts."""
    scripts = Scripts(cases)

    def invoke(function: LambdaFunction, event: Any = None) -> tuple[str, bool, str]:
        answer = scripts.next(str(function.function_name))
        time.sleep(answer.get("sleep", 0))
        if "raise" in answer:
            return json.dumps(error_body(answer)), True, ""
        payload = json.loads(event) if isinstance(event, str) else event
        return json.dumps(value_of(answer, payload)), False, ""

    with _moto_services(invoke) as (states, functions):

        def make_function(case: Case, role: str) -> str:
            name = function_name(case, role)
            functions.create_function(
                FunctionName=name,
                Runtime="python3.11",
                Handler="app.handler",
                Role=MOTO_ROLE,
                Code={"ZipFile": _function_zip([])},
            )
            return name

        return _run_behind_api(cases, states, make_function)


@contextmanager
def _moto_services(invoke: Callable[..., tuple[str, bool, str]]) -> Iterator[tuple[Any, Any]]:
    fake = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
    }
    config: Any = {"lambda": {"use_docker": True}, "stepfunctions": {"execute_state_machine": True}, "iam": {}}
    make: Any = boto3.client  # the service is a plain text here
    with (
        unittest.mock.patch.dict("os.environ", fake),
        unittest.mock.patch.object(LambdaFunction, "_invoke_lambda", invoke),
        moto.mock_aws(config=config),
    ):
        iam = make("iam")
        trust = {"Version": "2012-10-17", "Statement": []}
        iam.create_role(RoleName="machines", AssumeRolePolicyDocument=json.dumps(trust))
        yield make("stepfunctions"), make("lambda")
