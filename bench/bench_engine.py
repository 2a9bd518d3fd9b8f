"""How fast the ASL engine runs in virtual time, and whether it is deterministic.

Runs N executions of a provision-like machine (task, poll loop with waits, retries, catch) against stub tasks, prints
states per second and the digest of the transition log, and checks that a second process with another hash seed
comes to the same digest.

    python -m bench.bench_engine --executions 5000 --json
"""

import argparse
import gc
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY / "local"))

from gpulease_local.asl import (  # noqa: E402 - after the path is set
    Engine,
    StateMachine,
    Status,
    TaskReply,
    TransitionEvent,
    VirtualClock,
    load_definition,
)

START = 1_700_000_000.0
SEED = 7


def _task(function: str, following: str, **more: Any) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function, "Payload": {"lease_id.$": "$.lease_id", "epoch.$": "$.epoch"}},
        "ResultSelector": {"outcome.$": "$.Payload.outcome", "wait_seconds.$": "$.Payload.wait_seconds"},
        "ResultPath": "$.last",
        "TimeoutSeconds": 60,
        "Retry": [
            {"ErrorEquals": ["ProviderThrottled"], "IntervalSeconds": 2, "MaxAttempts": 6, "JitterStrategy": "FULL"}
        ],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "GaveUp"}],
        "Next": following,
    }


DEFINITION: dict[str, Any] = {
    "StartAt": "CreateInstance",
    "States": {
        "CreateInstance": _task("create_instance", "WaitBeforePoll"),
        "WaitBeforePoll": {"Type": "Wait", "SecondsPath": "$.last.wait_seconds", "Next": "PollInstance"},
        "PollInstance": _task("poll_instance", "IsInstanceReady"),
        "IsInstanceReady": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.last.outcome", "StringEquals": "waiting", "Next": "WaitBeforePoll"},
                {"Variable": "$.last.outcome", "StringEquals": "active", "Next": "MarkRunning"},
            ],
            "Default": "GaveUp",
        },
        "MarkRunning": _task("mark_running", "Provisioned"),
        "Provisioned": {"Type": "Succeed"},
        "GaveUp": {"Type": "Fail", "Error": "GaveUp", "Cause": "no instance"},
    },
}


def run(executions: int) -> dict[str, Any]:
    """Run the benchmark once in this process; returns counts, states per second and the digest."""
    stub_rng = random.Random(SEED)  # noqa: S311 - a stub's dice
    digest = hashlib.sha256()
    transitions = 0

    def invoke(function: str, payload: Any) -> TaskReply:
        dice = stub_rng.random()
        if dice < 0.03:
            return TaskReply(error="ProviderThrottled", cause="429", duration_seconds=0.2)
        outcome = "waiting" if function == "poll_instance" and dice < 0.85 else "active"
        return TaskReply({"outcome": outcome, "wait_seconds": 5}, duration_seconds=0.1 + dice)

    def note(event: TransitionEvent) -> None:
        nonlocal transitions
        transitions += 1
        digest.update(f"{event.time!r}|{event.execution}|{event.from_state}|{event.to_state}|{event.error}\n".encode())

    clock = VirtualClock(START)
    engine = Engine(clock=clock, seed=SEED, invoke=invoke)
    engine.on_transition = note
    machine: StateMachine = load_definition(DEFINITION, name="provision")
    engine.register(machine)
    gc.freeze()
    began, cpu_began = time.perf_counter(), time.process_time()
    for number in range(executions):
        engine.start("provision", f"lease-{number}-1", {"lease_id": f"lease-{number}", "epoch": 1})
    engine.run_until_idle()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    succeeded = sum(1 for _ in engine.executions("provision", Status.SUCCEEDED))
    return {
        "executions": executions,
        "succeeded": succeeded,
        "states": transitions,
        "seconds": round(seconds, 3),
        "states_per_second": round(transitions / seconds),
        "states_per_cpu_second": round(transitions / cpu_seconds),  # steadier on a machine with other work
        "virtual_seconds": round(clock.time() - START, 1),
        "digest": digest.hexdigest(),
    }


def run_elsewhere(executions: int, hash_seed: str) -> dict[str, Any]:
    """Run the benchmark in a new process with its own PYTHONHASHSEED."""
    command = [sys.executable, "-m", "bench.bench_engine", "--once", "--json", "--executions", str(executions)]
    done = subprocess.run(  # noqa: S603 - ourselves
        command, cwd=REPOSITORY, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Run, compare with a second process, print; exit code 1 when the digests differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--executions", type=int, default=3000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--once", action="store_true", help="only this process, no second one to compare with")
    arguments = parser.parse_args()
    result = run(arguments.executions)
    if not arguments.once:
        other = run_elsewhere(arguments.executions, "4711")
        result["same_digest_in_another_process"] = other["digest"] == result["digest"]
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:32} {value}")
    return 0 if result.get("same_digest_in_another_process", True) else 1


if __name__ == "__main__":
    sys.exit(main())
