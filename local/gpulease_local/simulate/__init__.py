"""`gpulease simulate`: whole leases by the thousand in virtual time, under faults, audited by the provider's book.

How it is put together. `run.py` plays the users of a seed (`scenario.py`, `pausers.py`) on a whole stack in virtual
time (`virtual.py`), whose providers all else sees through one view (`clouds.py`). Everything that a function does to
the world passes `effects.py`, where `storm.py` (`--faults all`) or `crash.py` (`--crash-points`) decides what becomes
of it; `climate.py` is what goes wrong for everybody at once. `invariants.py` watches all along, `verdict.py`,
`expected.py` and `audit.py` judge at the end, `shrinking.py` and `timeline.py` explain a failure.
"""

import sys
from dataclasses import asdict

EXIT_BROKEN = 1
SHRINK_UP_TO = 400
"""Runs with more leases than this are not cut down by themselves: it takes as long as some ten runs."""


def main(
    *, leases: int, seed: int, faults: str, json_output: bool, provider: str = "vultr", agents: bool = False
) -> int:
    """Run and print the report; 1 when a promise was broken, then also the smallest run that breaks it, on stderr."""
    from gpulease_local.simulate import shrinking
    from gpulease_local.simulate.report import describe
    from gpulease_local.simulate.run import simulate

    report = simulate(leases=leases, seed=seed, faults=faults, provider=provider, agents=agents)
    sys.stdout.write(report.as_json() + "\n" if json_output else "\n".join(describe(report)) + "\n")
    if report.ok:
        return 0
    case = shrinking.Case(seed=seed, leases=leases, faults=faults, provider=provider, agents=agents)
    number = shrinking.number_of(report, case)
    if faults == "all" and (number is not None or leases <= SHRINK_UP_TO):
        case = shrinking.shrink(
            case, number, lambda text: void(sys.stderr.write(text + "\n")), alone_only=leases > SHRINK_UP_TO
        )
    sys.stderr.write("\n".join(shrinking.tell(case).lines()) + "\n")
    return EXIT_BROKEN


def idle(*, machines: int, seed: int, days: float, json_output: bool, provider: str = "mixed") -> int:
    """Use machines for virtual days; 1 when idleness was not handled as promised."""
    from gpulease_local.simulate.idle_week import PROVIDERS, describe, idle_week

    providers = PROVIDERS if provider == "mixed" else (provider,)
    report = idle_week(machines=machines, seed=seed, days=days, providers=providers)
    sys.stdout.write(report.as_json() + "\n" if json_output else "\n".join(describe(report)) + "\n")
    return 0 if report.ok else EXIT_BROKEN


def replay(text: str, *, leases: int, faults: str, provider: str = "vultr", agents: bool = False) -> int:
    """Run a case again and tell its story; 1 when it fails. Raises ValueError for a text that is no case."""
    if text.startswith("workflow="):
        return _replay_cut(text)
    from gpulease_local.simulate import shrinking

    case = shrinking.case_of(text, leases=leases, faults=faults, provider=provider, agents=agents)
    told = shrinking.tell(case)
    sys.stdout.write("\n".join(told.lines()) + "\n")
    return 0 if told.report.ok else EXIT_BROKEN


def crash_points(*, seed: int, pairs: int, json_output: bool, provider: str = "mixed") -> int:
    """Cut every workflow off at every effect; 1 when one of them did not end as it must."""
    from gpulease_local.simulate.crash import enumerate_all
    from gpulease_local.simulate.workflows import workflows_of

    report = enumerate_all(
        seed=seed,
        pairs=pairs,
        workflows=workflows_of(provider),
        progress=lambda text: void(sys.stderr.write(text + "\n")),
    )
    if json_output:
        sys.stdout.write(report.as_json() + "\n")
    else:
        sys.stdout.write("\n".join(f"{name:22} {value}" for name, value in asdict(report).items()) + "\n")
    if report.ok:
        return 0
    for failure in report.failures[:1]:
        _replay_cut(str(failure["replay"]))
    return EXIT_BROKEN


def _replay_cut(text: str) -> int:
    from gpulease_local.simulate.crash import ran_of

    ran = ran_of(text)
    problems = [f"problem: {each}" for each in ran.problems]
    sys.stderr.write("\n".join([f"--replay {text}", *ran.hit, *problems, *ran.timeline]) + "\n")
    return EXIT_BROKEN if ran.problems else 0


def void(_: object) -> None:
    """Throw a value away where a callback must return None."""
