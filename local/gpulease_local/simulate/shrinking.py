"""After a failure: the smallest run that still fails, and the story of the lease that failed in it.

Misfortunes are numbered in the order in which they happen, so "only the first n" is a run of its own. The shortest
failing beginning is found by halving: the run with n misfortunes fails, the one with n - 1 does not. First the lease
is tried alone, then among its neighbours, then among all.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpulease_local.simulate.report import Report
from gpulease_local.simulate.run import Simulation
from gpulease_local.simulate.scenario import wishes
from gpulease_local.simulate.timeline import Recorder

NEIGHBOURS_SECONDS = 3600.0


@dataclass(frozen=True)
class Case:
    """What makes a run: written as `seed=4,leases=60,faults=all,only=37,limit=12`. `only`: numbers of the wishes that
    are asked for, joined by `+`; empty = all. `limit`: so many misfortunes happen; None = all."""

    seed: int
    leases: int
    faults: str = "all"
    provider: str = "vultr"
    only: tuple[int, ...] = ()
    limit: int | None = None
    agents: bool = False

    def __str__(self) -> str:
        text = f"seed={self.seed},leases={self.leases},faults={self.faults}"
        text += f",provider={self.provider}" if self.provider != "vultr" else ""
        text += f",only={'+'.join(map(str, self.only))}" if self.only else ""
        text += f",limit={self.limit}" if self.limit is not None else ""
        return text + (",agents=yes" if self.agents else "")

    def simulation(self) -> Simulation:
        """The run, not yet started."""
        return Simulation(
            leases=self.leases,
            seed=self.seed,
            faults=self.faults,
            limit=self.limit,
            only=frozenset(self.only) if self.only else None,
            provider=self.provider,
            agents=self.agents,
        )


def case_of(text: str, *, leases: int, faults: str, provider: str = "vultr", agents: bool = False) -> Case:
    """A case from `key=value,…`, from a seed alone, or from a file with a report in it. Raises ValueError."""
    file = Path(text)
    if file.is_file():
        document = json.loads(file.read_text(encoding="utf-8"))
        replay = str(document.get("replay") or "")
        if replay:
            return case_of(replay, leases=leases, faults=faults, provider=provider, agents=agents)
        return Case(
            seed=int(document["seed"]),
            leases=int(document["leases"]),
            faults=str(document["faults"]),
            provider=str(document.get("provider", provider)),
            agents=bool(document.get("agents", agents)),
        )
    if "=" not in text:
        return Case(seed=int(text), leases=leases, faults=faults, provider=provider, agents=agents)
    given = dict(part.split("=", 1) for part in text.split(","))
    unknown = set(given) - {"seed", "leases", "faults", "provider", "only", "limit", "agents"}
    if unknown:
        raise ValueError(f"unknown in --replay: {', '.join(sorted(unknown))}")
    return Case(
        seed=int(given["seed"]),
        leases=int(given.get("leases", leases)),
        faults=given.get("faults", faults),
        provider=given.get("provider", provider),
        only=tuple(int(number) for number in given["only"].split("+")) if given.get("only") else (),
        limit=int(given["limit"]) if "limit" in given else None,
        agents=given["agents"] == "yes" if "agents" in given else agents,
    )


@dataclass(frozen=True)
class Shrunk:
    """The smallest case found, what fails in it, and the failing lease's story."""

    case: Case
    report: Report
    misfortunes: tuple[str, ...]
    timeline: tuple[str, ...] = field(repr=False)

    def lines(self) -> list[str]:
        """For people."""
        said = [f"seed {self.case.seed}: {'ends well' if self.report.ok else 'still fails'} as --replay {self.case}"]
        said += [f"  {suspect}" for suspect in self.report.suspects]
        said += [f"with these misfortunes ({len(self.misfortunes)}):", *(f"  {each}" for each in self.misfortunes)]
        return [*said, "what happened:", *(f"  {each}" for each in self.timeline)]


def run_case(case: Case) -> tuple[Report, int]:
    """The report, and how many misfortunes there were."""
    simulation = case.simulation()
    try:
        return simulation.run(), len(simulation.storm.seen)
    finally:
        simulation.stack.close()


def shrink(case: Case, lease_number: int | None, say: Callable[[str], None], *, alone_only: bool = False) -> Case:
    """The smallest case that still fails. `lease_number`: of the wish that failed, where it was one. `alone_only`: no
    halving where it takes all leases to fail, since each try would take as long as the whole run."""
    found, seen = case, -1
    for candidate in _smaller(case, lease_number):
        say(f"trying {candidate}")
        report, seen = run_case(candidate)
        if not report.ok:
            found = candidate
            break
    else:
        if alone_only:
            return case
        _, seen = run_case(case)
    low, high = -1, seen  # with `high` it fails, with `low` it does not
    while high - low > 1:
        middle = (low + high) // 2
        report, _ = run_case(replace(found, limit=middle))
        say(f"with {middle} misfortunes: {'ends well' if report.ok else 'fails'}")
        if report.ok:
            low = middle
        else:
            high = middle
    return replace(found, limit=high)


def _smaller(case: Case, lease_number: int | None) -> Sequence[Case]:
    if lease_number is None or case.only:
        return ()
    all_of_them = wishes(case.leases, case.seed, case.provider)
    mine = all_of_them[lease_number]
    near = tuple(w.number for w in all_of_them if abs(w.at - mine.at) < NEIGHBOURS_SECONDS)
    return (replace(case, only=(lease_number,)), replace(case, only=near))


def tell(case: Case, lease: str = "") -> Shrunk:
    """Run a case and write the story of its failing lease down (or of `lease`, by id or name, or the only one)."""
    first = case.simulation()
    try:
        report = first.run()
        names = dict(first.names)
    finally:
        first.stack.close()
    wanted = lease or _failing(report, names)
    again = case.simulation()
    recorder = Recorder(again, wanted)
    try:
        report = again.run()
        misfortunes = tuple(
            f"{m.number}. {recorder.time(m.at)} {m.lease or 'everybody'}: {m.kind} ({m.where})"
            for m in again.storm.seen
        )
        return Shrunk(case, report, misfortunes, tuple(recorder.lines()))
    finally:
        again.stack.close()


def _failing(report: Report, names: dict[str, str]) -> str:
    for suspect in report.suspects:
        for word in suspect.replace(":", " ").split():
            if word in names:
                return word
    return next(iter(names), "")


def number_of(report: Report, case: Case) -> int | None:
    """The number of the wish of the first suspect, where it is a lease."""
    simulation = case.simulation()
    try:
        simulation.run()
        name = simulation.names.get(_failing(report, simulation.names), "")
    finally:
        simulation.stack.close()
    return int(name.rpartition("-")[2]) if name and report.suspects else None
