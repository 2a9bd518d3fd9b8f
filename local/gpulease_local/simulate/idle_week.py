"""`gpulease simulate --scenario idle-week`: machines of both providers used as people use them, for virtual days.

Users work when their workload says so, and resume a paused machine for it. Whether idleness was handled right is
judged from three sides that know nothing of each other: the workload (what was really in use), the ledger (what was
decided and when), and the providers' books (what was billed).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from gpulease.domain.lease import Lease, LeaseState, Reason
from gpulease.ports import Change, Ledger
from gpulease.runtime.world import monotonic
from gpulease_sim.aws import Settings as AwsSettings
from gpulease_sim.vultr import Settings

from gpulease_local.simulate.virtual import ApiRefused, VirtualStack
from gpulease_local.simulate.workloads import DAY, Session, Workload, workload

TOLERANCE_SECONDS = 120.0
"""Over the idle limit: the check comes once a minute, and what is stopped is billed until it stops."""
NOTICED_SECONDS = 600.0
"""So long over its limit, an idle machine counts as never paused."""
ASK_AGAIN_SECONDS = 30.0
ARRIVE_WITHIN_SECONDS = 3600.0
VULTR_REGION, VULTR_GPU, AWS_GPU = "ewr", "L40S", "L4"
PROVIDERS = ("aws", "vultr")


@dataclass
class Spell:
    """One time from ready to the decision to pause (or the end of the run)."""

    ready: float
    ended: float | None = None
    reason: str = ""
    silent: bool = False


@dataclass
class IdleReport:
    """All but the wall-clock figures are the seed's alone."""

    machines: int
    seed: int
    days: float
    providers: tuple[str, ...]
    paused_while_busy: int = 0
    """Paused for idleness while its user worked on it."""
    never_paused: int = 0
    """Idle for longer than the limit and ten minutes, and not paused."""
    idle_periods: int = 0
    idle_hours_billed: float = 0.0
    """Billed at the providers while nobody used the machine, from ready to stopped or gone."""
    max_seconds_over_limit: float = 0.0
    """Longest idle time that was billed, less its own idle limit."""
    over_limit: int = 0
    """Idle periods billed for longer than their limit and two minutes."""
    hours_saved: float = 0.0
    """Machine hours not billed, of those from first ready to the end of the run."""
    usd_saved: str = "0"
    pauses: dict[str, int] = field(default_factory=dict)
    """By reason."""
    resumes: int = 0
    reports: int = 0
    """Of agents."""
    released: int = 0
    stuck: int = 0
    """In motion at the end for longer than an hour."""
    refused: int = 0
    transitions: int = 0
    virtual_days: float = 0.0
    wall_seconds: float = 0.0
    digest: str = ""
    suspects: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether idleness was handled as promised."""
        return not (self.paused_while_busy or self.never_paused or self.over_limit or self.stuck)

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def describe(report: IdleReport) -> list[str]:
    """The report for people."""
    return [f"{name:27} {value}" for name, value in asdict(report).items() if value not in ([], {})]


class _Listening:
    """`ports.Ledger` that tells of each lease's new state after it was written."""

    def __init__(self, inner: Ledger, told: Callable[[Lease], None]) -> None:
        self._inner, self._told = inner, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, change: Change) -> None:
        """See `ports.Ledger.commit`."""
        self._inner.commit(change)
        if change.lease is not None:
            self._told(change.lease)


class IdleWeek:
    """One run. The stack can be looked at afterwards (`stack`)."""

    def __init__(self, *, machines: int, seed: int, days: float = 7.0, providers: tuple[str, ...] = PROVIDERS) -> None:
        self._span = days * DAY
        self._report = IdleReport(machines=machines, seed=seed, days=days, providers=providers)
        self._workloads = {f"m{n}": workload(n, seed, self._span) for n in range(machines)}
        self._providers = {name: providers[n % len(providers)] for n, name in enumerate(self._workloads)}
        self._ids: dict[str, str] = {}
        self._states: dict[str, LeaseState] = {}
        self._since: dict[str, float] = {}
        self.spells: dict[str, list[Spell]] = {name: [] for name in self._workloads}
        self._log = hashlib.sha256()
        self.stack = VirtualStack(
            seed=seed,
            settings=Settings(capacity={"*/*": 10_000}),
            aws_settings=AwsSettings(brief=True),
            providers=providers,
            wrap_ledger=lambda inner: _Listening(inner, self._told),
            workload_of=self._workloads.get,
        )

    # --- the run ---

    def run(self) -> IdleReport:
        """Everything, and the verdict."""
        began = monotonic()
        stack = self.stack.load()
        self._start = stack.clock.time()
        stack.engine.on_transition = self._transition
        for number, (name, plan) in enumerate(self._workloads.items()):
            at = number * ARRIVE_WITHIN_SECONDS / max(1, len(self._workloads))
            self._at(at, lambda name=name: self._arrive(name))  # type: ignore[misc]
            for session in plan.sessions:
                if session.start > at:
                    self._at(session.start, lambda name=name, s=session: self._work(name, s))  # type: ignore[misc]
        stack.engine.run_until(self._start + self._span)
        self._judge()
        report = self._report
        report.reports = stack.agents.reports if stack.agents is not None else 0
        report.wall_seconds = round(monotonic() - began, 2)
        report.virtual_days = round((stack.clock.time() - self._start) / DAY, 2)
        report.digest = self._log.hexdigest()
        return report

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        self.stack.engine.call_at(self._start + seconds, act)

    def _transition(self, event: object) -> None:
        self._report.transitions += 1
        self._log.update(repr(event).encode())

    @property
    def _now(self) -> float:
        return self.stack.clock.time() - self._start

    # --- users ---

    def _arrive(self, name: str) -> None:
        """Ask for the machine; at Vultr with a cache, without which a pause would keep nothing."""
        provider = self._providers[name]
        policy = {"idle": {"after_seconds": self._workloads[name].idle_after_seconds}}
        request: dict[str, Any] = {"name": name, "providers": [provider], "policy": policy}
        try:
            if provider == "vultr":
                place = {"provider": "vultr", "region": VULTR_REGION}
                self.stack.api("POST", "/v1/caches", {"name": f"cache-{name}", "size_gb": 50, **place})
                request |= {"gpu": [VULTR_GPU], "regions": [VULTR_REGION]}
                request |= {"cache": {"name": f"cache-{name}", "mounts": ["/root/.cache"]}}
            else:
                request |= {"gpu": [AWS_GPU]}
            self._ids[name] = self.stack.up(**request)
        except ApiRefused as refused:
            if refused.status == 409 or refused.status >= 500:  # the cache is still being made
                self._later(lambda: self._arrive_again(name, request))
                return
            self._report.refused += 1
            self._suspect(f"{name}: {refused}")

    def _arrive_again(self, name: str, request: dict[str, Any]) -> None:
        try:
            self._ids[name] = self.stack.up(**request)
        except ApiRefused as refused:
            if self._now > self._span / 4:
                self._report.refused += 1
                self._suspect(f"{name}: {refused}")
                return
            self._later(lambda: self._arrive_again(name, request))

    def _work(self, name: str, session: Session) -> None:
        """The user sits down; a paused machine is resumed, one that is just being paused a little later."""
        lease_id = self._ids.get(name)
        if self._now >= session.end or (lease_id is None and self._now >= self._span / 2):
            return
        if lease_id is None:
            self._later(lambda: self._work(name, session))
            return
        state = self.stack.lease(lease_id).state
        if state is LeaseState.PAUSED:
            try:
                self.stack.api("POST", f"/v1/leases/{lease_id}/resume")
                self._report.resumes += 1
            except ApiRefused as refused:
                self._suspect(f"{name}: resume: {refused}")
        if state in (LeaseState.RUNNING, LeaseState.RELEASED, LeaseState.RELEASING):
            return
        self._later(lambda: self._work(name, session))

    def _later(self, act: Callable[[], None]) -> None:
        self._at(self._now + ASK_AGAIN_SECONDS, act)

    # --- what was decided ---

    def _told(self, lease: Lease) -> None:
        name = lease.name
        if name not in self.spells or self._states.get(name) is lease.state:
            return
        self._states[name], self._since[name] = lease.state, self._now
        spells = self.spells[name]
        if lease.state is LeaseState.RUNNING:
            spells.append(Spell(self._now))
        elif spells and spells[-1].ended is None:
            reason = lease.pause.reason if lease.pause is not None else lease.reason
            spells[-1].ended, spells[-1].reason = self._now, str(reason or "")

    # --- the verdict ---

    def _judge(self) -> None:
        report, reasons = self._report, Counter[str]()
        saved_hours, saved_usd = 0.0, 0.0
        for name, plan in self._workloads.items():
            billed = self._billed(name)
            for spell in self.spells[name]:
                reasons[spell.reason] += bool(spell.reason)
                self._judge_spell(name, plan, spell, billed)
            if self.spells[name]:
                first = self.spells[name][0].ready
                paid = sum(min(e, self._span) - max(s, first) for s, e, _ in billed if e > first)
                hours = (self._span - first - paid) / 3600
                saved_hours += hours
                saved_usd += hours * max((price for _, _, price in billed), default=0.0)
            self._judge_end(name)
        report.pauses = dict(sorted(reasons.items()))
        report.hours_saved, report.usd_saved = round(saved_hours, 1), f"{saved_usd:.2f}"
        report.idle_hours_billed = round(report.idle_hours_billed, 2)
        report.max_seconds_over_limit = round(report.max_seconds_over_limit, 1)

    def _judge_spell(self, name: str, plan: Workload, spell: Spell, billed: list[tuple[float, float, float]]) -> None:
        report = self._report
        end = spell.ended if spell.ended is not None else self._span
        if spell.reason == Reason.IDLE and plan.session_at(end) is not None:
            report.paused_while_busy += 1
            self._suspect(f"{name}: paused at {end:.0f} while {plan.session_at(end)}")
        last = plan.last_session(end)
        idle_from = max(spell.ready, min(last.end, end)) if last is not None else spell.ready
        if last is not None and end < last.end:
            return
        report.idle_periods += 1
        silent = any(s.start < end and s.end > idle_from - TOLERANCE_SECONDS for s in plan.silences)
        stopped = min((e for s, e, _ in billed if s < end <= e), default=end)
        report.idle_hours_billed += (stopped - idle_from) / 3600
        if silent or (spell.ended is None and end - idle_from <= plan.idle_after_seconds + TOLERANCE_SECONDS):
            return
        over = stopped - idle_from - plan.idle_after_seconds
        report.max_seconds_over_limit = max(report.max_seconds_over_limit, over)
        if over > TOLERANCE_SECONDS:
            report.over_limit += 1
            self._suspect(f"{name}: idle from {idle_from:.0f}, billed until {stopped:.0f}: {over:.0f} s over its limit")
        if over > NOTICED_SECONDS:
            report.never_paused += 1

    def _judge_end(self, name: str) -> None:
        report, state = self._report, self._states.get(name)
        report.released += state is LeaseState.RELEASED
        resting = (LeaseState.RUNNING, LeaseState.PAUSED, LeaseState.RELEASED)
        if state not in resting and self._now - self._since.get(name, 0.0) > 3600:
            report.stuck += 1
            self._suspect(f"{name}: {state} since {self._since.get(name, 0.0):.0f}")

    def _billed(self, name: str) -> list[tuple[float, float, float]]:
        """(from, to, dollars per hour) of each time in which a machine of this lease was billed, by the book."""
        lease_id = self._ids.get(name, "-")
        found: list[tuple[float, float, float]] = []
        if self._providers[name] == "aws":
            for entry in self.stack.aws.book.objects():
                if entry.kind == "instance" and any(f":{lease_id}." in marker for marker in entry.markers):
                    price = float(entry.hourly_usd)
                    found += [(s - self._start, self._end(e), price) for s, e in entry.running]
        else:
            for each in self.stack.cloud.book.objects():
                if each.kind == "instance" and any(f":{lease_id}." in marker for marker in each.markers):
                    found.append((each.created - self._start, self._end(each.destroyed), float(each.hourly_usd)))
        return sorted(found)

    def _end(self, at: float | None) -> float:
        return self._span if at is None else at - self._start

    def _suspect(self, text: str) -> None:
        if len(self._report.suspects) < 20:
            self._report.suspects.append(text)


def idle_week(*, machines: int, seed: int, days: float = 7.0, providers: tuple[str, ...] = PROVIDERS) -> IdleReport:
    """One run in a stack of its own."""
    week = IdleWeek(machines=machines, seed=seed, days=days, providers=providers)
    try:
        return week.run()
    finally:
        week.stack.close()
