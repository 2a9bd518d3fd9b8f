"""The process that `test_engine_survives_kill` kills: runs executions from a SQLite file on the wall clock.

Started executions are written to `started.txt` only after `start` has returned, and each call to `calls.txt` before it
is answered, so the test can tell what must not be lost. Prints nothing; ends when nothing is running any more.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

from gpulease_local.asl import Engine, ScaledClock, SqliteStore, TaskReply, load_definition

from tests.support.asl import pause, until

EXECUTIONS = 8
STEPS = 14


def definition() -> dict[str, Any]:
    """Return a chain of tasks, each adding its name to the data, with waits and one retry in between."""
    states: dict[str, Any] = {}
    for number in range(STEPS):
        states[f"Step{number}"] = {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {
                "FunctionName": f"step-{number}",
                "Payload": {"name.$": "$$.Execution.Name", "retry.$": "$$.State.RetryCount"},
            },
            "ResultSelector": {"said.$": "$.Payload"},
            "ResultPath": f"$.step{number}",
            "TimeoutSeconds": 30,
            "Retry": [{"ErrorEquals": ["Throttled"], "IntervalSeconds": 1, "MaxAttempts": 2}],
            "Next": f"Wait{number}",
        }
        last = number == STEPS - 1
        states[f"Wait{number}"] = {"Type": "Wait", "Seconds": 1}
        states[f"Wait{number}"].update({"Next": "Done"} if last else {"Next": f"Step{number + 1}"})
    states["Done"] = {"Type": "Succeed"}
    return {"StartAt": "Step0", "States": states}


def main(folder: Path) -> None:
    """Start what is not started yet and run until nothing runs."""
    lock = threading.Lock()

    def note(file: str, line: str) -> None:
        with lock:
            descriptor = os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, f"{line}\n".encode())
            os.close(descriptor)

    def invoke(function: str, payload: Any) -> TaskReply:
        note("calls.txt", f"{payload['name']} {function} {payload['retry']}")
        pause(0.002)
        if function == "step-2" and payload["retry"] == 0:
            return TaskReply(error="Throttled")
        return TaskReply(f"{payload['name']} {function}")

    store = SqliteStore(folder / "engine.sqlite")
    engine = Engine(clock=ScaledClock(scale=20.0), seed=1, invoke=invoke, store=store, workers=4)
    engine.register(load_definition(definition(), name="chain"))
    started = folder / "started.txt"
    known = started.read_text().splitlines() if started.exists() else []
    seen = {execution.name for execution in engine.executions("chain")}
    missing = set(known) - seen
    if missing:
        sys.exit(f"lost: {sorted(missing)}")
    stop = threading.Event()
    loop = threading.Thread(target=engine.run_forever, args=(stop,))
    loop.start()
    for number in range(EXECUTIONS):
        name = f"lease-{number}"
        if name not in seen:
            engine.start("chain", name, {"number": number})
            note("started.txt", name)
    until(lambda: not any(engine.executions(status="RUNNING")), patience_seconds=60.0)
    stop.set()
    loop.join()
    engine.close()
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
