"""All measurements, one after the other: `make bench`, or `python -m bench NAME …` for some.

Each is a module `bench/bench_<name>.py` with its own docstring, and runs in a process of its own, so that one does not
warm up the next. Machines are noisy: compare figures of one run, not of two. Some have a make target of their own.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
APART = frozenset({"peers", "cold", "cost"})
"""Need environments or artefacts of their own; each has its own make target."""


def names() -> list[str]:
    """What there is, by name."""
    return sorted(file.stem.removeprefix("bench_") for file in HERE.glob("bench_*.py"))


def main(wanted: list[str]) -> int:
    """Run them all, also after one has failed; 1 when any has."""
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        sys.stderr.write(f"bench: no measurement is called {unknown[0]}; there are: {', '.join(names())}\n")
        return 2
    failed = []
    for name in wanted or [name for name in names() if name not in APART]:
        sys.stdout.write(f"\n== {name}\n")
        sys.stdout.flush()
        if subprocess.run([sys.executable, "-m", f"bench.bench_{name}"], cwd=HERE.parent, check=False).returncode:  # noqa: S603
            failed.append(name)
    if failed:
        sys.stderr.write(f"bench: failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
