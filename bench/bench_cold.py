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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = "(bare client)"
ROUNDS = 7
AIMS = {"steps": 1.6, "api": 2.2}
"""First call to that of the bare client."""
KINDS = {"api": "api", BARE: "none", "refresh_offers": "none"}
"""What is no step; the catalogue comes with a library of its own, every six hours."""
DEPS_LIMIT_BYTES = 20 * 10**6
_ENVIRONMENT = {
    "AWS_LAMBDA_FUNCTION_NAME": "bench",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "GPULEASE_DEPLOYMENT": "benchcold",
    "GPULEASE_LEDGER_TABLE": "ledger",
    "GPULEASE_RUNTIME_TABLE": "runtime",
    "PYDANTIC_DISABLE_PLUGINS": "true",
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


def measure(names: Sequence[str], artefacts: Path, rounds: int) -> list[Figures]:
    """Medians of so many rounds, in each of which everything has its turn: a slow minute meets all alike."""
    runs = [{name: _run(name, artefacts) for name in names} for _ in range(rounds)]
    found = []
    for name in names:
        of_it = [each[name] for each in runs]
        middle = {key: statistics.median(run[key] for run in of_it) for key in of_it[0]}
        size = sum(size_of(folder) for folder in _folders(name, artefacts))
        found.append(Figures(name, int(middle.pop("modules")), size_bytes=size, **middle))
    bare = next(one.first_call_ms for one in found if one.function == BARE)
    return [replace(one, ratio=one.first_call_ms / bare) for one in found]


def _folders(name: str, artefacts: Path) -> list[Path]:
    """What Lambda puts on the path, its own folder aside."""
    if name == BARE:
        return []
    built = artefacts / "RefreshOffersFunction"
    folder = built if name == "refresh_offers" else ROOT / "functions" / name
    return [folder, artefacts / "CoreLayer" / "python", artefacts / "DepsLayer" / "python"]


def _run(name: str, artefacts: Path) -> dict[str, float]:
    """Import one function, or the bare client, in a process of its own."""
    found = importlib.util.find_spec("boto3")
    if found is None or found.origin is None:
        raise SystemExit("bench: boto3 is not installed")
    code = _CHILD.format(
        paths=[str(each) for each in _folders(name, artefacts)],
        runtime=str(Path(found.origin).parents[1]),
        bare=name == BARE,
    )
    # Isolated and without site: nothing of this environment but what is put on the path.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-S", "-c", code],
        env={**_ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    read: dict[str, float] = json.loads(done.stdout)
    return read


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
        rows = measure([BARE, *functions], artefacts, given.rounds)
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
    for what, aim in AIMS.items():
        worst = max(row.ratio for row in rows if KINDS.get(row.function, "steps") == what)
        word = "met" if worst <= aim else "MISSED"
        print(f"{what}: at most {worst:.2f} times the bare client (aim {aim})  {word}")
    print(f"layer of others' code: {deps / 1e6:.1f} MB unzipped (limit {DEPS_LIMIT_BYTES / 1e6:.0f} MB)")


if __name__ == "__main__":
    raise SystemExit(main())
