#!/usr/bin/env python3
"""A Lambda custom runtime that answers from `script.json`; run by ministack as the function's `bootstrap`.

A custom runtime, because ministack passes on the error name that one reports, while it renames every exception of its
managed Python runtime to Runtime.HandlerError.
"""

import json
import os
import time
import urllib.request
from pathlib import Path

BASE = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation"
SCRIPT = json.loads((Path(os.environ["LAMBDA_TASK_ROOT"]) / "script.json").read_text())


def post(path: str, body: object) -> None:
    """Send an answer to the runtime interface."""
    request = urllib.request.Request(f"{BASE}/{path}", json.dumps(body).encode(), method="POST")  # noqa: S310
    urllib.request.urlopen(request).read()  # noqa: S310


def main() -> None:
    """Answer calls for ever."""
    calls = 0
    while True:
        with urllib.request.urlopen(f"{BASE}/next") as call:  # noqa: S310
            request_id = call.headers["Lambda-Runtime-Aws-Request-Id"]
            payload = json.loads(call.read())
        answer = SCRIPT[min(calls, len(SCRIPT) - 1)]
        calls += 1
        time.sleep(answer.get("sleep", 0))
        if "raise" in answer:
            post(f"{request_id}/error", {"errorMessage": "scripted", "errorType": answer["raise"]})
        elif "echo" in answer:
            post(f"{request_id}/response", payload)
        elif "repeat" in answer:
            post(f"{request_id}/response", "x" * answer["repeat"])
        else:
            post(f"{request_id}/response", answer["return"])


if __name__ == "__main__":
    main()
