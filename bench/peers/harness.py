"""The other product's harness, run as it is (its README says what it does), and its figures in our shape."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.model import Idle, Leaks, Left, Product, Ready, Situation, Spread, Taken
from bench.peers.simulated import PLANS, REGION, SETTINGS, Simulated

NAME = "dstack"
_KEPT_NETWORKS = "one network is kept on purpose, more are duplicates"
_KEYS = ("V", "A", "B", "C", "F", "G", "D'")


class HarnessFailed(Exception):
    """It ended with an error; what it had measured is lost with it."""


def measure(product: Product, name: str, harness: Path, python: Path, n: int, *, long: bool) -> Product:
    """`product` with `name` (ready, idle, leaks) measured. Raises HarnessFailed."""
    taken = Taken.now()
    found = _run(harness, python, {"idle": "idle-server"}.get(name, name), n, long=long)
    version = str(found["dstack"])
    values = {"name": NAME, "version": version, "ready": product.ready, "idle": product.idle, "leaks": product.leaks}
    if name == "ready":
        values["ready"] = (_ready(found["ready"], taken),)
    elif name == "idle":
        values["idle"] = _idle(found["idle_server"], taken)
    else:
        leaks: Mapping[str, Any] = found["leaks"]
        values["leaks"] = Leaks(taken, tuple(_situation(key, leaks[key]) for key in _KEYS if key in leaks))
    return Product(**values)  # type: ignore[arg-type]


def _run(harness: Path, python: Path, name: str, n: int, *, long: bool) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gpulease-peers-") as folder, Simulated(Path(folder)) as provider:
        output = Path(folder) / "figures.json"
        command = [str(python), str(harness / "run.py"), "--vultr-url", provider.url, "--measure", name]
        command += ["--n", str(n), "--plans", ",".join(PLANS), "--region", REGION, "--json", str(output)]
        if long:
            command.append("--long")
        # Its folder may be somebody else's: nothing is written there.
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # noqa: S603
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)  # it ends what it started
                process.wait()
        if status:
            raise HarnessFailed(f"{harness / 'run.py'} --measure {name}: status {status}; its last lines say why")
        found: Mapping[str, Any] = json.loads(output.read_text(encoding="utf-8"))
        return found


def _spread(value: Mapping[str, Any]) -> Spread:
    return Spread(value["median"], value["min"], value["max"], value["n"])


def _ready(value: Mapping[str, Any], taken: Taken) -> Ready:
    how = "in a private network that exists (but for the first)"
    return Ready(taken, how, _spread(value["apply_to_create_s"]), _spread(value["active_to_idle_s"]))


def _idle(value: Mapping[str, Any], taken: Taken) -> Idle:
    return Idle(taken, value["start_s"], _spread(value["rss_mib"]), _spread(value["cpu_s_per_60s"]))


def _situation(key: str, value: Mapping[str, Any]) -> Situation:
    later = value.get("shown_15_min_later")
    return Situation(
        key=key,
        what=value["what"],
        created=value["servers_created"],
        left=Left(value["servers_left"], value["vpcs_left"]),
        shown_before=value["shown_before_delete"],
        shown_after=value["shown_after_delete"],
        ended_after_seconds=value["terminated_after_s"],
        shown_later=f"{later} (15 min later)" if later else "",
        note=_KEPT_NETWORKS if value["vpcs_left"] else "",
    )


__all__ = ["NAME", "SETTINGS", "HarnessFailed", "measure"]
