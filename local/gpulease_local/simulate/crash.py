"""`--crash-points`: each workflow is cut off at each of its effects, in each way, and must end the same.

A plain run counts the effects; then there is one run per effect and way. That is all there are, not a sample. Pairs of
cuts are too many for that and are drawn from the seed.
"""

import gc
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpulease.domain.flush import Word
from gpulease.domain.lease import LeaseState
from gpulease.runtime.world import monotonic
from gpulease_sim.aws import Settings as AwsSettings

from gpulease_local.asl import Invoke, TaskReply, TransitionEvent
from gpulease_local.simulate.audit import audit
from gpulease_local.simulate.caches import CacheLife, not_at_its_machine, not_surviving, others_ended
from gpulease_local.simulate.crash_report import WAYS as WAYS
from gpulease_local.simulate.crash_report import CrashReport as CrashReport
from gpulease_local.simulate.crash_report import Point as Point
from gpulease_local.simulate.crash_report import Ran as Ran
from gpulease_local.simulate.crash_report import Way as Way
from gpulease_local.simulate.effects import API_FUNCTION, Do, Effect, Effects, Killed, lease_of_execution
from gpulease_local.simulate.invariants import UNOWNED_LIMIT_SECONDS, Watch
from gpulease_local.simulate.verdict import DESTROY_SECONDS
from gpulease_local.simulate.virtual import DEPLOYMENT, ApiRefused, VirtualStack
from gpulease_local.simulate.workflows import WORKFLOWS, Workflow, by_name
from gpulease_local.simulate.workloads import Workload
from gpulease_local.world import DepsClock

LIMIT_SECONDS = 3 * 3600.0
"""In which a lease of these workflows has ended, whatever was cut off."""
MAX_REPEATS = 20
QUIET = Workload("quiet", ())
AWS_REGIONS = ("us-east-1",)
"""One is enough, and each costs a client."""


class _Cuts:
    """`effects.Meddler` that cuts at given effects."""

    def __init__(
        self,
        effects: Effects,
        points: Sequence[Point],
        stack: Callable[[], VirtualStack],
        give_back: Callable[[str], None],
    ) -> None:
        self._effects = effects
        self._give_back = give_back
        self._points = {point.effect: point.way for point in points}
        self._stack = stack
        self._call: tuple[str, Any] | None = None
        self.hit: list[str] = []
        self.in_execution: list[bool] = []

    def around(self, effect: Effect, do: Do) -> Any:
        """Carry it out, unless this is the point."""
        execution = self._effects.execution(effect)
        self.in_execution.append(execution is not None)
        way = self._points.pop(effect.number, None)
        if way is None:
            return do()
        self.hit.append(f"{way} at {effect}")
        if way is Way.BEFORE:
            raise self._effects.kill()
        if way is Way.AFTER:
            do()
            raise self._effects.kill()
        if way is Way.TWIN:
            if self._call is not None:
                self._effects.past_meddling(self._stack().stack.functions.invoke)(*self._call)
            return do()
        if way is Way.GIVEN_BACK:
            self._give_back(effect.lease)
            return do()
        if execution is not None:
            self._stack().engine.stop(*execution, error="Aborted", cause="by the simulation")
        raise self._effects.kill()

    def invoke(self, function: str, payload: Any, invoke: Invoke) -> TaskReply:
        """Call it."""
        self._call = (function, payload)
        return invoke(function, payload)


class OneLease:
    """One workflow in a world of its own, cut off at `points`."""

    def __init__(self, workflow: Workflow, points: Sequence[Point] = (), *, seed: int = 0, trace: bool = False) -> None:
        self._workflow = workflow
        self._points = tuple(points)
        self.effects = Effects()
        self.cuts = _Cuts(self.effects, points, lambda: self.stack, self._give_back_now)
        self.watch = Watch(lambda: self.stack.clouds, lambda: self.stack.clock.time(), DEPLOYMENT)
        self.stack = VirtualStack(
            seed=seed,
            settings=workflow.settings,
            providers=("vultr",) if workflow.aws is None else ("aws",),
            aws_settings=workflow.aws or AwsSettings(),
            aws_regions=AWS_REGIONS,
            workload_of=None if workflow.saves_for is None else lambda name: QUIET,
            flush_seconds=(workflow.saves_for or 0.0, workflow.saves_for or 0.0),
            wrap_ledger=lambda inner: self.effects.wrap_ledger(self.watch.wrap_ledger(inner)),
            wrap_sweeps=self.effects.wrap_sweeps,
            wrap_agents=self.effects.wrap_agents,
            wrap_transport=lambda inner: self.effects.wrap_transport(self.watch.wrap_transport(inner)),
            wrap_aws=lambda inner: self.effects.wrap_aws(self.watch.wrap_aws(inner)),
            wrap_workflows=self.effects.wrap_workflows,
            wrap_invoke=self.effects.wrap_invoke,
        )
        self.effects.meddler = self.cuts
        self.watch.on_running = self._runs
        self.watch.on_paused = self._is_paused
        self._cache = CacheLife(workflow.cache, lambda: self.stack)
        self._cache_problems: list[str] = []
        self._trace: list[str] | None = [] if trace else None
        self._lease = ""
        self._ended = False
        self._gave_back = False
        self._asked_to_pause = self._was_paused = False
        self._repeats = 0

    def run(self) -> Ran:
        """From the request to the proof that everything is gone."""
        stack = self.stack.load()
        try:
            stack.engine.on_transition = self._on_transition
            if self._trace is not None:
                self.effects.trace = self._traced
            self._ask()
            stack.engine.call_every(60.0, self.watch.tick)
            stack.run_until(self._has_ended, limit_seconds=LIMIT_SECONDS, step_seconds=5.0)
            # What was left behind shows now: the sweep would have to find it.
            stack.run_for(5.0)
            self.watch.finish()
            return self._ran()
        finally:
            stack.close()

    def _ask(self) -> None:
        try:
            with self.effects.inside(API_FUNCTION, self._lease):
                if not self._cache.is_ready():
                    if not self._cache.removed:
                        self.stack.engine.call_at(self.stack.clock.time() + 5.0, self._ask)
                    return
                request = {**self._workflow.request, **self._cache.for_lease()}
                self._lease = self.stack.up(name="lease-0", idempotency_key="key-0", **request)
        except (ApiRefused, Killed) as refused:
            self._again(refused, self._ask)

    def _give_back(self) -> None:
        self._gave_back = True
        try:
            with self.effects.inside(API_FUNCTION, self._lease):
                self.stack.down(self._lease)
        except (ApiRefused, Killed) as refused:
            self._again(refused, self._give_back)

    def _give_back_now(self, lease_id: str) -> None:
        if not self._lease and not is_lease(lease_id):
            self._remove_cache()
            return
        # A shared network's holder has effects of its own; its user has only the lease.
        self._lease = self._lease or lease_id
        self._give_back()

    def _again(self, refused: BaseException, act: Callable[[], None]) -> None:
        self._repeats += 1
        if isinstance(refused, Killed):
            self.effects.kills_heard += 1
        elif isinstance(refused, ApiRefused) and refused.status < 500:
            raise refused
        if self._repeats > MAX_REPEATS:
            raise refused
        self.stack.engine.call_at(self.stack.clock.time() + 5.0, act)

    def _runs(self, lease_id: str) -> None:
        if is_lease(lease_id) and self._workflow.cache is not None:
            self._cache_problems += not_at_its_machine(self.stack, lease_id)
        if is_lease(lease_id) and self._workflow.pause_after is not None and not self._was_paused:
            if not self._asked_to_pause:
                self._asked_to_pause, self._lease = True, self._lease or lease_id
                self.stack.engine.call_at(self.stack.clock.time() + self._workflow.pause_after, self._pause)
            return
        if is_lease(lease_id) and not self._gave_back and self._workflow.hold_seconds < math.inf:
            self._gave_back = True
            self.stack.engine.call_at(self.stack.clock.time() + self._workflow.hold_seconds, self._give_back)

    def _is_paused(self, lease_id: str) -> None:
        self._was_paused = True
        self.stack.engine.call_at(self.stack.clock.time() + self._workflow.paused_for, self._resume)

    def _pause(self) -> None:
        self._say_word("pause", self._pause, {})

    def _resume(self) -> None:
        self._say_word("resume", self._resume, self._workflow.resume)

    def _say_word(self, word: str, again: Callable[[], None], query: Mapping[str, str]) -> None:
        if self._gave_back:
            return
        try:
            with self.effects.inside(API_FUNCTION, self._lease):
                self.stack.api("POST", f"/v1/leases/{self._lease}/{word}", query=dict(query))
        except (ApiRefused, Killed) as refused:
            if isinstance(refused, ApiRefused) and refused.status == 409:
                # Given back, or in another state, by now.
                return
            self._again(refused, again)

    def _on_transition(self, event: TransitionEvent) -> None:
        self.effects.on_transition(event)
        if self._trace is not None:
            self._say(
                f"{event.execution}: {event.from_state or 'start'} -> {event.to_state or event.status}", event.error
            )
        if self._workflow.cancel_at and event.to_state == self._workflow.cancel_at and not self._gave_back:
            self._gave_back = True
            # Its user may not have heard the id yet (the answer was lost); whoever cancels has it from the list.
            self._lease = self._lease or lease_of_execution(event.execution)
            self.stack.engine.call_at(event.time, self._give_back)

    def _remove_cache(self) -> None:
        try:
            with self.effects.inside(API_FUNCTION, self._lease):
                self._cache.remove()
        except (ApiRefused, Killed) as refused:
            self._again(refused, self._remove_cache)

    def _has_ended(self) -> bool:
        leases = self.stack.leases()
        if self._workflow.cache is not None and not self._cache.removed and others_ended(self.stack):
            self._cache_problems += [f"cache_lost: {what}" for what in not_surviving(self.stack)]
            self._remove_cache()
        return bool(leases) and all(lease.state is LeaseState.RELEASED for lease in leases)

    # --- what came of it ---

    def _traced(self, effect: Effect, came: str) -> None:
        self._say(f"#{effect.number} {effect}", came)

    def _say(self, what: str, came: str | None) -> None:
        if self._trace is not None:
            self._trace.append(f"{self.stack.clock.time():.1f} {what}" + (f"  [{came}]" if came else ""))

    def _ran(self) -> Ran:
        stack = self.stack
        records = [stack.record(lease.id) for lease in stack.leases()]
        found = audit(stack.clouds, records, DepsClock(stack.clock).now())
        problems = [f"{what}: {', '.join(ids)}" for what, ids in found.suspicious().items() if ids]
        problems += [f"{v.rule}: {v.detail}" for v in self.watch.violations]
        problems += self._cache_problems
        for record in records:
            reason = str(record.lease.reason)
            if not is_lease(record.lease.id):
                continue
            flush = record.lease.flush
            if flush is not None and flush.ended != Word.SAVED:
                problems.append(f"cache_not_saved: {flush.ended or 'still waited for'}, and its agent heard everything")
            if record.lease.state is LeaseState.RELEASED and reason not in self._workflow.reasons:
                problems.append(f"wrong_reason: {reason} ({record.lease.reason_detail})")
        unowned = max((until - since for _, since, until in self.watch.unowned), default=0.0)
        if unowned > UNOWNED_LIMIT_SECONDS + DESTROY_SECONDS:
            problems.append(f"unowned_too_long: {unowned:.0f} s")
        if self.effects.kills_raised != self.effects.kills_heard:
            problems.append("kill_swallowed: the function went on")
        return Ran(
            workflow=self._workflow.name,
            points=self._points,
            effects=self.effects.count,
            hit=tuple(self.cuts.hit),
            in_execution=tuple(self.cuts.in_execution),
            problems=tuple(problems),
            counts={what: len(ids) for what, ids in found.suspicious().items()} | {"unowned": math.ceil(unowned)},
            timeline=tuple(self._trace or ()),
        )


def is_lease(record_id: str) -> bool:
    """Whether it is a user's lease, and not the holder of a shared network."""
    return record_id.startswith("l-")


def ran_of(text: str) -> Ran:
    """Run `workflow=<name>,cut=<way>@<effect>[+…][,seed=<n>]` once more, with its timeline. Raises ValueError."""
    given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        workflow = by_name(given["workflow"])
        cuts = [cut.split("@", 1) for cut in given.get("cut", "").split("+") if cut]
        points = [Point(int(effect), Way(way)) for way, effect in cuts]
        return OneLease(workflow, points, seed=int(given.get("seed", 0)), trace=True).run()
    except KeyError as unknown:
        raise ValueError(f"{unknown} is not in --replay or no workflow") from None


def points_of(plain: Ran, ways: Sequence[Way] = WAYS) -> Iterator[Point]:
    """Every effect in every way. Only what an execution has can be aborted or have a twin."""
    for number, in_execution in enumerate(plain.in_execution, 1):
        for way in ways:
            if in_execution or way in (Way.BEFORE, Way.AFTER):
                yield Point(number, way)


def enumerate_all(
    *,
    seed: int = 0,
    pairs: int = 0,
    every: int = 1,
    workflows: Sequence[Workflow] = WORKFLOWS,
    ways: Sequence[Way] = WAYS,
    progress: Callable[[str], None] | None = None,
) -> CrashReport:
    """Run every workflow once per effect and way; then so many pairs. `every`: only each so-manieth effect, of
    each way another one."""
    began = monotonic()
    report = CrashReport(seed=seed)
    OneLease(workflows[0], seed=seed).run()
    # What is loaded by now stays: to look through it for garbage again and again takes longer than the runs.
    gc.freeze()
    plain = {workflow.name: OneLease(workflow, seed=seed).run() for workflow in workflows}
    ways_seen: Counter[str] = Counter()
    for workflow in workflows:
        report.workflows[workflow.name] = plain[workflow.name].effects
        report.add(plain[workflow.name])
        points = list(points_of(plain[workflow.name], ways))
        # Of a short life one effect at least.
        step = max(1, min(every, plain[workflow.name].effects))
        for point in [each for each in points if (each.effect + list(Way).index(each.way)) % step == 0]:
            report.points += 1
            ways_seen[point.way] += 1
            report.add(OneLease(workflow, [point], seed=seed).run())
        if progress is not None:
            progress(f"{workflow.name}: {report.points} points so far, {len(report.failures)} failures")
    draw = random.Random(f"pairs-{seed}")  # noqa: S311 - sameness is wanted here
    for _ in range(pairs):
        workflow = draw.choice(list(workflows))
        points = list(points_of(plain[workflow.name], ways))
        two = sorted(draw.sample(points, 2), key=lambda point: point.effect)
        report.pairs += 1
        report.add(OneLease(workflow, two, seed=seed).run())
    report.ways = dict(ways_seen)
    report.wall_seconds = round(monotonic() - began, 2)
    return report
