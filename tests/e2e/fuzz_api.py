"""The API under requests made from its own description, and under hand-written rude ones: `make fuzz-api`.

A `gpulease local` on the simulated cloud in a temporary folder takes them all, over its real front. Fails when an
answer is an error of ours, shows a stack trace or does not fit the description, when a rude request is not refused in
words or rents something, or when the server logged a failure. The exit status is 1 then; the same SEED sends the same
requests.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from gpulease.runtime.world import monotonic
from gpulease_cli.client import Client

from tests.support.local_server import LocalProcess
from tests.support.rude_requests import TRACE_SIGNS, complaint, rude_requests, send

REPOSITORY = Path(__file__).resolve().parents[2]
FUZZER = REPOSITORY / ".venv-fuzz" / "bin" / "schemathesis"
MIN_REQUESTS = 2000
EXAMPLES_PER_ROUTE = 130
LIMIT_SECONDS = 200.0
TIME_SCALE = 25.0
LEFT_OUT = (
    # A cursor is opaque, and names of plans, images and regions are a matter of the catalogue: no schema knows them.
    "positive_data_acceptance",
    # A lease that was given back can be looked at for ever; that is what the ledger is for.
    "use_after_free",
)
FAILURE_SIGNS = ("Traceback", "request_failed")


def main() -> int:
    """Run both sets; the last line says what happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--fuzzer", type=Path, default=FUZZER, help="the schemathesis command")
    chosen = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="gpulease-fuzz-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        server = LocalProcess(data, REPOSITORY, time_scale=TIME_SCALE)
        try:
            server.start()
            address = json.loads((data / "api.json").read_text(encoding="utf-8"))
            faults, rude = _be_rude(address, server.client)
            found, statuses = _fuzz(chosen.fuzzer, address, chosen.seed, Path(folder) / "report")
            faults += found
            server.client.health()
        finally:
            server.close()
        faults += _logged(Path(folder) / "stderr.txt")
    requests = statuses.total()
    if requests < MIN_REQUESTS:
        faults.append(f"only {requests} requests were made")
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    told = " ".join(f"{status}={count}" for status, count in sorted(statuses.items()))
    sys.stdout.write(
        f"fuzz-api: requests={requests} rude={rude} faults={len(faults)} seed={chosen.seed}"
        f" seconds={monotonic() - began:.0f} {told}\n"
    )
    return 1 if faults else 0


def _be_rude(address: dict[str, Any], client: Client) -> tuple[list[str], int]:
    """What is wrong after the hand-written requests, and how many they were."""
    port, faults, count = int(address["url"].rpartition(":")[2]), [], 0
    for rude in rude_requests(port, address["token"]):
        count += 1
        try:
            faults.append(complaint(rude, send(port, rude.raw)))
        except (OSError, ValueError) as error:
            faults.append(f"{rude.name}: no answer ({error})")
    if rented := list(client.leases()):
        faults.append(f"rude requests rented {len(rented)} machines")
    return [fault for fault in faults if fault], count


def _fuzz(fuzzer: Path, address: dict[str, Any], seed: int, report: Path) -> tuple[list[str], Counter[int]]:
    """What is wrong after the generated requests, and how many ended in which status."""
    command = [
        *(
            str(fuzzer),
            "run",
            f"{address['url']}/openapi.json",
            "--header",
            f"Authorization: Bearer {address['token']}",
        ),
        *("--seed", str(seed), "--max-examples", str(EXAMPLES_PER_ROUTE), "--generation-database", "none"),
        *("--checks", "all", "--exclude-checks", ",".join(LEFT_OUT), "--no-color", "--warnings", "off"),
        *("--request-timeout", "20", "--report", "har", "--report-har-path", str(report)),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our own command line
            command, cwd=report.parent, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"the generated requests took more than {LIMIT_SECONDS:g} s"], Counter()
    if not report.exists():
        return [f"{done.stdout[-2000:]}{done.stderr[-2000:]}"], Counter()
    faults = [done.stdout] if done.returncode else []
    answers = [entry["response"] for entry in json.loads(report.read_text(encoding="utf-8"))["log"]["entries"]]
    for answer in answers:
        text = str(answer["content"].get("text", ""))
        if any(sign in text for sign in TRACE_SIGNS):
            faults.append(f"an answer shows a stack trace: {text[:200]}")
    return faults, Counter(int(answer["status"]) for answer in answers)


def _logged(errors: Path) -> list[str]:
    lines = errors.read_text(encoding="utf-8", errors="replace").splitlines()
    return [f"the server logged: {line[:300]}" for line in lines if any(sign in line for sign in FAILURE_SIGNS)]


if __name__ == "__main__":
    sys.exit(main())
