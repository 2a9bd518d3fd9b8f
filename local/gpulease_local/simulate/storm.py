"""`--faults all`: at every effect and every call something may go wrong, drawn from the seed.

Draws are made per lease, so that a lease meets the same weather whether it runs alone or among thousands, and so that a
failure can be looked at by itself. All misfortunes are numbered in the order in which they happen; with a `limit` only
the first so many do, which is how a failing run is cut down to its shortest failing beginning.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpulease.errors import LeaseConflict, LedgerUnavailable

from gpulease_local.asl import Engine, Invoke, TaskReply
from gpulease_local.simulate.answers import Answers
from gpulease_local.simulate.effects import Do, Effect, Effects, Kind

CALM, LIGHT, HEAVY = 0.0, 0.012, 0.045
"""Share of effects that go wrong for a lease; each lease draws one of the three."""
_MORE_AT_CHANGES = 5.0
"""Most effects are reads; what changes something is where promises break, and goes wrong so much more often."""
_MORE_AT_WRITES = 2.0
_SHARE_OF_CALLS = 0.5
"""Whole calls of functions go wrong this much more rarely than effects."""
NEVER_ANSWERED = 100_000.0
"""Longer than any TimeoutSeconds."""

_READS = ("lost_before", "timeout", "throttled", "gateway", "wrong_shape", "empty", "refused", "late_list")
_CHANGES = (
    "lost_before",
    "lost_after",
    "timeout",
    "throttled",
    "gateway",
    "gateway_after",
    "wrong_shape",
    "empty",
    "refused",
    "ignored",
)
_WRITES = ("write_refused", "write_conflict", "write_lost", "write_throttled")
_DEATHS = ("killed_before", "killed_after", "timed_out_before", "timed_out_after", "aborted", "twin")
_CALLS = ("not_reached", "answer_too_late", "run_twice", "run_late", "call_aborted")


@dataclass(frozen=True, slots=True)
class Misfortune:
    """One thing that went wrong. `number` counts from 1 over the whole run."""

    number: int
    at: float
    lease: str
    kind: str
    where: str


@dataclass
class Weather:
    """What a lease has drawn: its own stream, how bad it is, and a read fault that lasts for some calls."""

    draw: random.Random
    rate: float
    lasting: str = ""
    left: int = 0


@dataclass
class Storm:
    """`effects.Meddler` of `--faults all`. `name_of` gives a lease's number-like name, the same in every run."""

    seed: int
    effects: Effects
    now: Callable[[], float]
    spend: Callable[[float], None]
    name_of: Callable[[str], str]
    engine: Callable[[], Engine]
    answers: Mapping[str, Answers]
    """By provider."""
    invoke_now: Callable[[str, Any], TaskReply]
    invoke_later: Callable[[float, str, Any], None]
    limit: int | None = None
    seen: list[Misfortune] = field(default_factory=list)
    _weather: dict[str, Weather] = field(default_factory=dict)
    _payloads: list[tuple[str, Any]] = field(default_factory=list)
    _in_twin: bool = False
    over: bool = False
    """No more misfortunes: what is still going on must end now."""

    # --- what happens when ---

    def happens(self, lease: str, kind: str, where: str) -> bool:
        """Write a misfortune down; False when no more may happen."""
        if self.over or (self.limit is not None and len(self.seen) >= self.limit):
            return False
        self.seen.append(Misfortune(len(self.seen) + 1, self.now(), self.name_of(lease), kind, where))
        return True

    def weather(self, lease: str) -> Weather:
        """The lease's own draws."""
        name = self.name_of(lease)
        if name not in self._weather:
            draw = random.Random(f"storm-{self.seed}-{name}")  # noqa: S311 - sameness is wanted here
            rate = draw.choices((CALM, LIGHT, HEAVY), (3, 5, 2))[0] if name else LIGHT
            self._weather[name] = Weather(draw, rate)
        return self._weather[name]

    def around(self, effect: Effect, do: Do) -> Any:
        """One effect, or what becomes of it."""
        weather = self.weather(effect.lease)
        if weather.left and effect.method == "GET":
            weather.left -= 1
            if self.happens(effect.lease, f"{weather.lasting} (still)", str(effect)):
                return self._read(effect, weather.lasting, do)
            return do()
        if self._in_twin or weather.draw.random() >= weather.rate * _times(effect):
            return do()
        kind = weather.draw.choice(self._kinds(effect))
        if not self.happens(effect.lease, kind, str(effect)):
            return do()
        if kind in _DEATHS:
            return self._die(effect, kind, do)
        if effect.kind is Kind.LEDGER:
            return self._write(kind, do)
        if effect.method == "GET":
            weather.lasting, weather.left = kind, weather.draw.choice((0, 0, 1, 2, 2, 5))
            return self._read(effect, kind, do)
        return self._change(effect, kind, do)

    def _kinds(self, effect: Effect) -> tuple[str, ...]:
        deaths = _DEATHS if self.effects.execution(effect) is not None else ("killed_before", "killed_after")
        if effect.kind is Kind.LEDGER:
            # An abort has to find its own execution; the schedule has none.
            return _WRITES + deaths
        if effect.kind is Kind.WORKFLOW:
            return deaths
        return (_READS if effect.method == "GET" else _CHANGES) + deaths

    # --- the function ---

    def _die(self, effect: Effect, kind: str, do: Do) -> Any:
        if kind == "killed_before":
            raise self.effects.kill()
        if kind == "timed_out_before":
            self.spend(20.0)
            raise self.effects.kill("Sandbox.Timedout")
        if kind == "twin":
            self._run_twin()
            return do()
        if kind == "aborted":
            self._abort(effect)
            return do()
        do()
        raise self.effects.kill("Sandbox.Timedout" if kind == "timed_out_after" else "Lambda.Unknown")

    def _run_twin(self) -> None:
        """The same call once more, from beginning to end, in the middle of this one."""
        if not self._payloads:
            return
        function, payload = self._payloads[-1]
        self._in_twin = True
        try:
            self.invoke_now(function, payload)
        finally:
            self._in_twin = False

    def _abort(self, effect: Effect) -> None:
        found = self.effects.execution(effect)
        if found is not None:
            self.engine().stop(*found, error="Aborted", cause="by the simulation")

    def invoke(self, function: str, payload: Any, invoke: Invoke) -> TaskReply:
        """One call of a function, or what becomes of it."""
        lease = payload.get("lease_id", "")
        weather = self.weather(lease)
        self._payloads.append((function, payload))
        try:
            if weather.draw.random() >= weather.rate * _SHARE_OF_CALLS:
                return invoke(function, payload)
            kind = weather.draw.choice(_CALLS)
            delay = weather.draw.choice((3.0, 20.0, 90.0, 200.0))
            if not self.happens(lease, kind, function):
                return invoke(function, payload)
            return self._call(kind, delay, lease, function, payload, invoke)
        finally:
            self._payloads.pop()

    def _call(self, kind: str, delay: float, lease: str, function: str, payload: Any, invoke: Invoke) -> TaskReply:
        if kind == "not_reached":
            return TaskReply(error="Lambda.SdkClientException", cause="could not be reached")
        if kind == "run_twice":
            invoke(function, payload)
        if kind == "run_late":
            self.invoke_later(delay, function, payload)
        if kind == "call_aborted":
            for execution in self.effects.executions(lease):
                self.engine().stop(*execution, error="Aborted", cause="by the simulation")
        reply = invoke(function, payload)
        return replace(reply, duration_seconds=NEVER_ANSWERED) if kind == "answer_too_late" else reply

    # --- the ledger ---

    def _write(self, kind: str, do: Do) -> Any:
        if kind == "write_conflict":
            raise LeaseConflict("another transaction was under way")
        if kind == "write_lost":
            do()
            raise LedgerUnavailable("500 after the write")
        self.spend(4.0 if kind == "write_throttled" else 0.1)
        raise LedgerUnavailable("throttled" if kind == "write_throttled" else "500 before the write")

    # --- the provider ---

    def _read(self, effect: Effect, kind: str, do: Do) -> Any:
        answers, draw = self.answers[effect.provider], self.weather(effect.lease).draw
        if kind == "lost_before":
            answers.cut(5.0, "injected", sent=False)
        if kind == "timeout":
            answers.cut(15.0, "injected: no answer in time")
        if kind == "throttled":
            return answers.throttled(effect)
        if kind == "gateway":
            return answers.gateway()
        if kind == "refused":
            return answers.refused(effect, draw)
        answer = do()
        if kind == "late_list":
            return answers.late_list(effect, answer)
        return answers.wrong_shape(effect, answer, draw) if kind == "wrong_shape" else answers.empty(answer)

    def _change(self, effect: Effect, kind: str, do: Do) -> Any:
        answers, draw = self.answers[effect.provider], self.weather(effect.lease).draw
        if kind == "lost_before":
            answers.cut(5.0, "injected: cut before it arrived")
        if kind == "throttled":
            return answers.throttled(effect)
        if kind == "gateway":
            return answers.gateway()
        if kind == "refused":
            return answers.refused(effect, draw)
        if kind == "ignored":
            return answers.ignored(effect, do, draw)
        answer = do()
        if kind in ("lost_after", "timeout"):
            answers.cut(30.0 if kind == "lost_after" else 55.0, f"injected: {kind}")
        if kind == "gateway_after":
            return answers.gateway(504, 30.0)
        return answers.wrong_shape(effect, answer, draw) if kind == "wrong_shape" else answers.empty(answer)


def _times(effect: Effect) -> float:
    if effect.kind is not Kind.PROVIDER:
        return _MORE_AT_WRITES
    return 1.0 if effect.method == "GET" else _MORE_AT_CHANGES


def as_json(seen: list[Misfortune]) -> str:
    """The misfortunes, one per line."""
    return "\n".join(json.dumps([m.number, m.at, m.lease, m.kind, m.where]) for m in seen)
