"""What a cold start costs: modules, import CPU, memory and size per function, of artefacts as `sam build` makes them.

The layers are built and precompiled by their own Makefiles for this computer's Python; each function is then imported
in fresh processes that see its folder, the layers and boto3, in Lambda's order. `first call` adds the ledger's client,
which every function makes in its first call; the ratio is to a bare `boto3.client("dynamodb")` of the same run.

    python -m bench.bench_cold [--json] [--rounds 7]
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = "(bare client)"
ROUNDS = 7
DEPS_LIMIT_BYTES = 20 * 10**6
_ENVIRONMENT = {
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "GPULEASE_DEPLOYMENT": "benchcold",
    "GPULEASE_LEDGER_TABLE": "ledger",
    "GPULEASE_RUNTIME_TABLE": "runtime",
}
_CHILD = """
import json, resource, sys, time
sys.path[:0] = {paths!r}
sys.path.append({runtime!r})
before, start = len(sys.modules), time.process_time()
if {bare!r}:
    import boto3
    imported = time.process_time()
    boto3.client("dynamodb")
else:
    import app
    imported = time.process_time()
    app.deps.ledger
end = time.process_time()
print(json.dumps({{
    "modules": len(sys.modules) - before,
    "import_ms": (imported - start) * 1000,
    "first_call_ms": (end - start) * 1000,
    "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2),
}}))
"""


@dataclass(frozen=True)
class Figures:
    """Medians of one function; CPU in milliseconds. `ratio`: first call to that of the bare client."""

    function: str
    modules: int
    import_ms: float
    first_call_ms: float
    memory_mb: float
    size_bytes: int
    ratio: float = 1.0


def build(folder: Path) -> None:
    """Make both layers and the function that has dependencies of its own."""
    targets = (("layers/core", "CoreLayer"), ("layers/deps", "DepsLayer"))
    for source, name in (*targets, ("functions/refresh_offers", "RefreshOffersFunction")):
        target = folder / name
        target.mkdir()
        makefile = ROOT / source / "Makefile"
        environment = {"GPULEASE_BUILD_PLATFORM": "host", "GPULEASE_BUILD_PYTHON": sys.executable}
        subprocess.run(  # noqa: S603
            ["make", "--silent", "--makefile", str(makefile), f"build-{name}", f"ARTIFACTS_DIR={target}"],  # noqa: S607
            cwd=ROOT / source,
            env={**os.environ, **environment},
            check=True,
        )


def measure(name: str, artefacts: Path, rounds: int) -> Figures:
    """Import one function (or the bare client) so often, each time in a process of its own."""
    built = artefacts / "RefreshOffersFunction"
    folder = built if name == "refresh_offers" else ROOT / "functions" / name
    layers = [artefacts / "CoreLayer" / "python", artefacts / "DepsLayer" / "python"]
    found = importlib.util.find_spec("boto3")
    if found is None or found.origin is None:
        raise SystemExit("bench: boto3 is not installed")
    bare = name == BARE
    code = _CHILD.format(
        paths=[] if bare else [str(each) for each in (folder, *layers)],
        runtime=str(Path(found.origin).parents[1]),
        bare=bare,
    )
    runs = []
    for _ in range(rounds):
        # Isolated and without site: nothing of this environment but what is put on the path.
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-I", "-S", "-c", code],
            env={**_ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(json.loads(done.stdout))
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    size = 0 if bare else sum(size_of(each) for each in (folder, *layers))
    return Figures(name, int(middle.pop("modules")), size_bytes=size, **middle)


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when the layer of others' code is larger than it may be."""
    parser = argparse.ArgumentParser(prog="bench_cold", description=__doc__)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    functions = sorted(file.parent.name for file in (ROOT / "functions").glob("*/app.py"))
    with tempfile.TemporaryDirectory(prefix="gpulease-cold-") as work:
        artefacts = Path(work)
        build(artefacts)
        deps = size_of(artefacts / "DepsLayer")
        bare = measure(BARE, artefacts, given.rounds)
        rows = [bare]
        for name in functions:
            one = measure(name, artefacts, given.rounds)
            rows.append(Figures(**{**asdict(one), "ratio": one.first_call_ms / bare.first_call_ms}))
    if given.as_json:
        print(json.dumps({"deps_layer_bytes": deps, "functions": [asdict(row) for row in rows]}, indent=2))
    else:
        _print(rows, deps)
    return int(deps > DEPS_LIMIT_BYTES)


def _print(rows: Sequence[Figures], deps: int) -> None:
    print(f"{'function':20} {'modules':>7} {'import':>9} {'first call':>10} {'ratio':>6} {'memory':>8} {'size':>8}")
    for row in rows:
        print(
            f"{row.function:20} {row.modules:7} {row.import_ms:6.0f} ms {row.first_call_ms:7.0f} ms {row.ratio:6.2f} "
            f"{row.memory_mb:5.0f} MB {row.size_bytes / 1e6:5.1f} MB"
        )
    print(f"layer of others' code: {deps / 1e6:.1f} MB unzipped (limit {DEPS_LIMIT_BYTES / 1e6:.0f} MB)")


if __name__ == "__main__":
    raise SystemExit(main())
