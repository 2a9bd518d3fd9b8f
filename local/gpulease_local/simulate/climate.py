"""What goes wrong for everybody at once under `--faults all`: clocks, schedules, messages, regions, wording, hands.

All of it is drawn from the seed before the run, as moments on the run's own time; the storm numbers each when it comes,
so that a shortened run leaves the later ones out.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpulease.domain.resource import marker_for
from gpulease.ports import Clock

from gpulease_local.asl import Engine
from gpulease_local.asl.execution import Execution
from gpulease_local.simulate.clouds import Clouds
from gpulease_local.simulate.invariants import Watch
from gpulease_local.simulate.virtual import Fire

Tell = Callable[[Execution], None]
HOUR = 3600.0
FORWARD_STEP_MATTERS_SECONDS = 400.0
"""After a step forwards, windows in seconds (create timeout and visibility) end early for so long."""


class SteppedClock:
    """`ports.Clock` that is wrong by `offset_seconds`."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self.offset_seconds = 0.0

    def now(self) -> datetime:
        """The inner clock's time, shifted."""
        return self._inner.now() + timedelta(seconds=self.offset_seconds)


@dataclass
class Climate:
    """Plans everything for `span_seconds` from `start`; `happens` numbers a misfortune and says whether it may be."""

    seed: int
    deployment: str
    clouds: Clouds
    engine: Engine
    watch: Watch
    happens: Callable[[str, str, str], bool]
    now: Callable[[], float]
    clock: SteppedClock | None = None
    blind: list[tuple[float, float]] = field(default_factory=list)
    """When the sweep cannot see: its schedule is lost, or the provider is dark."""
    stepped_at: list[float] = field(default_factory=list)
    forward_at: float = -1e18
    _lost_until: float = 0.0

    def __post_init__(self) -> None:
        self._draw = random.Random(f"climate-{self.seed}")  # noqa: S311 - sameness is wanted here

    def plan(self, start: float, span_seconds: float) -> None:
        """Put everything on the engine's agenda."""
        self._strangers()
        for every, act in (
            (7 * HOUR, self._step_clock),
            (9 * HOUR, self._darken_region),
            (14 * HOUR, self._darken_all),
            (10 * HOUR, self._lose_schedules),
            (5 * HOUR, self._reword),
            (4 * HOUR, self._orphan),
        ):
            at = self._draw.uniform(0.1, 0.8) * min(every, span_seconds)
            while at < span_seconds:
                self.engine.call_at(start + at, act(self._draw))
                at += every * self._draw.uniform(0.6, 1.4)

    # --- clocks ---

    def _step_clock(self, draw: random.Random) -> Callable[[], None]:
        by, lasts = draw.choice((-240.0, -75.0, 75.0, 240.0)), draw.uniform(300, 1800)

        def step() -> None:
            if self.clock is None or not self.happens("", "clock_step", f"{by:+.0f} s for {lasts:.0f} s"):
                return
            self._set_clock(by)
            self.engine.call_at(self.now() + lasts, lambda: self._set_clock(0.0))

        return step

    def _set_clock(self, offset: float) -> None:
        if self.clock is None:
            return
        if offset > self.clock.offset_seconds:
            self.forward_at = self.now()
        self.stepped_at.append(self.now())
        self.clock.offset_seconds = offset

    def just_stepped_forward(self) -> bool:
        """Whether windows in seconds mean nothing at this moment."""
        return self.now() - self.forward_at < FORWARD_STEP_MATTERS_SECONDS

    def disturbed(self, since: float, until: float) -> bool:
        """Whether a clock step, an outage or lost schedules fell into this time."""
        stepped = any(since - 1800 <= at <= until for at in self.stepped_at)
        return stepped or any(begin < until and end > since for begin, end in self.blind)

    # --- the provider ---

    def _darken_region(self, draw: random.Random) -> Callable[[], None]:
        cloud, region = draw.choice([(cloud.name, region) for cloud in self.clouds for region in cloud.regions])
        return lambda: self._darken(region, HOUR, cloud)

    def _darken_all(self, draw: random.Random) -> Callable[[], None]:
        lasts = draw.uniform(120, 900)
        return lambda: self._darken("", lasts)

    def _darken(self, region: str, lasts: float, name: str = "") -> None:
        now = self.now()
        if not self.happens("", "dark", f"{region or 'everywhere'} for {lasts:.0f} s"):
            return
        self.blind.append((now, now + lasts))
        for cloud in self.clouds:
            if name in ("", cloud.name):
                cloud.darken(now, now + lasts, region)

    def _reword(self, draw: random.Random) -> Callable[[], None]:
        lasts = draw.uniform(0.5 * HOUR, 2 * HOUR)

        def reword() -> None:
            if self.happens("", "reworded", f"for {lasts:.0f} s"):
                self._say(True)
                self.engine.call_at(self.now() + lasts, lambda: self._say(False))

        return reword

    def _say(self, reworded: bool) -> None:
        for cloud in self.clouds:
            cloud.reword(reworded)

    # --- schedules ---

    def _lose_schedules(self, draw: random.Random) -> Callable[[], None]:
        lasts = draw.uniform(0.5 * HOUR, 3 * HOUR)

        def lose() -> None:
            now = self.now()
            if self.happens("", "schedules_lost", f"for {lasts:.0f} s"):
                self._lost_until = now + lasts
                self.blind.append((now, now + lasts))

        return lose

    def wrap_schedule(self, function: str, fire: Fire) -> Fire:
        """For `VirtualStack.wrap_schedule`: lost while schedules are lost, now and then doubled or late."""
        draw = random.Random(f"schedule-{self.seed}-{function}")  # noqa: S311 - sameness is wanted here

        def fired() -> None:
            luck = draw.random()
            if self.now() < self._lost_until:
                return
            if luck < 0.01 and self.happens("", "schedule_lost_once", function):
                return
            fire()
            if luck > 0.98 and self.happens("", "schedule_doubled", function):
                late = self.now() + draw.choice((0.0, 7.0, 45.0))
                self.engine.call_at(late, fire)

        return fired

    # --- messages ---

    def wrap_messages(self, tell: Tell) -> Tell:
        """For `Engine.on_failed`: messages about failed executions are lost, or come twice, or late."""
        draw = random.Random(f"messages-{self.seed}")  # noqa: S311 - sameness is wanted here

        def told(execution: Execution) -> None:
            luck, late = draw.random(), draw.choice((1.0, 70.0, 400.0))
            if luck < 0.2 and self.happens(execution.name, "message_lost", execution.name):
                return
            tell(execution)
            if luck > 0.7 and self.happens(execution.name, "message_again", f"{execution.name} after {late:.0f} s"):
                self.engine.call_at(self.now() + late, lambda: tell(execution))

        return told

    # --- strangers and hands ---

    def _strangers(self) -> None:
        """Machines and networks that are none of our business, however much they look like it."""
        for cloud in self.clouds:
            self.watch.foreign.update(cloud.strangers(self.deployment))

    def _orphan(self, draw: random.Random) -> Callable[[], None]:
        name = "l-" + "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12))
        marker = marker_for(self.deployment, f"{name}.instance.1")

        def plant() -> None:
            here = self.watch.newest_machine()
            # The sweep looks where something was asked for once; nothing else can have left an orphan.
            if here is not None and self.happens("", "orphan_planted", f"{marker} in {here.region}"):
                self.watch.planted.add(self.clouds.named(here.provider).plant(here, marker))
                self.watch.called()

        return plant
