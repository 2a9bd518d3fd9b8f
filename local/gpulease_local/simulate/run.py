"""Runs whole leases through the real workflows in virtual time and reports what the provider's book says afterwards."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.resource import Resource
from gpulease.ports import Clock
from gpulease.providers.http import Transport
from gpulease.runtime.guard import TOLD_TO_WAIT
from gpulease.runtime.world import monotonic
from gpulease_sim.vultr import Fault

from gpulease_local.asl import TransitionEvent
from gpulease_local.simulate.answers import VultrAnswers
from gpulease_local.simulate.answers_aws import AwsAnswers
from gpulease_local.simulate.caches import SharedCaches, not_surviving, others_ended
from gpulease_local.simulate.climate import Climate, SteppedClock
from gpulease_local.simulate.effects import API_FUNCTION, Do, Effects, Killed
from gpulease_local.simulate.expected import Story
from gpulease_local.simulate.faults import aws_faults_of, aws_settings_of, faults_of, settings_of
from gpulease_local.simulate.invariants import UNOWNED_LIMIT_SECONDS, Violation, Watch
from gpulease_local.simulate.pausers import Pausers
from gpulease_local.simulate.report import Report
from gpulease_local.simulate.scenario import PROVIDERS, Wish, wishes
from gpulease_local.simulate.storm import Storm
from gpulease_local.simulate.verdict import Verdict
from gpulease_local.simulate.virtual import DEPLOYMENT, ApiRefused, Fire, VirtualStack
from gpulease_local.simulate.workloads import IN_USE
from gpulease_local.world import DepsClock

PATIENCE_SECONDS = 6 * 3600.0
"""After the last lease should have ended. What has not ended by then is stuck."""
ASK_AGAIN_SECONDS = 5.0
MAX_ASKED_AGAIN = 10_000
"""Over a whole run; beyond it, the API does not work at all."""


class Simulation:
    """One run. The stack can be looked at afterwards (`stack`).

    `limit`: only so many misfortunes happen (`--faults all`). `only`: these wishes alone, by their numbers. `agents`:
    machines have agents that report, in use all along.
    """

    def __init__(
        self,
        *,
        leases: int,
        seed: int,
        faults: str = "none",
        limit: int | None = None,
        only: frozenset[int] | None = None,
        provider: str = "vultr",
        agents: bool = False,
    ) -> None:
        self._wishes = [wish for wish in wishes(leases, seed, provider) if only is None or wish.number in only]
        self._provider = provider
        self._agents = agents
        self._seed = seed
        self._faults = faults
        self.attacked = faults == "all"
        self.effects = Effects()
        self.watch = Watch(lambda: self.stack.clouds, lambda: self.stack.clock.time(), DEPLOYMENT)
        self.names: dict[str, str] = {}
        """Lease id to the name in its wish."""
        self.stories: dict[str, Story] = {}
        """By the wish's name."""
        self._by_name = {str(wish.request["name"]): wish for wish in self._wishes}
        self._running: set[str] = set()
        self._clock: SteppedClock | None = None
        self.stack = VirtualStack(
            seed=seed,
            settings=settings_of(faults, seed, leases),
            providers=PROVIDERS[provider],
            workload_of=(lambda name: IN_USE) if agents else None,
            aws_settings=aws_settings_of(faults, seed, leases),
            wrap_aws=lambda inner: self.effects.wrap_aws(self.watch.wrap_aws(inner)),
            wrap_ledger=lambda inner: self.effects.wrap_ledger(self.watch.wrap_ledger(inner)),
            wrap_sweeps=self.effects.wrap_sweeps,
            wrap_agents=self.effects.wrap_agents,
            wrap_transport=self._wrap_transport,
            wrap_workflows=self.effects.wrap_workflows,
            wrap_invoke=self.effects.wrap_invoke,
            wrap_clock=self._wrap_clock,
            wrap_schedule=self._wrap_schedule,
        )
        self.clouds = self.stack.clouds
        self.storm = self._storm(seed, limit)
        self.climate = Climate(
            seed=seed,
            deployment=DEPLOYMENT,
            clouds=self.clouds,
            engine=self.stack.engine,
            watch=self.watch,
            happens=self.storm.happens,
            now=self.stack.clock.time,
            clock=self._clock,
        )
        self.effects.on_created = self._created
        self.watch.on_running = self._runs
        self.watch.on_leaving = self._leaving
        self.watch.on_paused = self._is_paused
        self._pausers = Pausers(
            lambda: self.stack, self.effects, self._later, lambda lease_id: self.stories[self.names[lease_id]]
        )
        self._pauses: Counter[str] = Counter()
        self._held_off: list[float] = []
        """When a sweep did not look since the account was told to wait."""
        self.stack.log.on_warning = self._warned
        self._now_paused: set[str] = set()
        self._caches = SharedCaches(lambda: self.stack)
        self.watch.unclean = lambda lease: self.climate.just_stepped_forward()
        self._log = hashlib.sha256()
        self._transitions = 0
        self._refused = 0
        self.asked_again = 0
        self.listener: Callable[[TransitionEvent], None] = lambda event: None
        """Told of every transition, for timelines."""

    def _storm(self, seed: int, limit: int | None) -> Storm:
        stack = self.stack
        storm = Storm(
            seed=seed,
            effects=self.effects,
            now=stack.clock.time,
            spend=stack.pass_time,
            name_of=lambda lease: self.names.get(lease, lease),
            engine=lambda: stack.engine,
            answers={
                "vultr": VultrAnswers(stack.pass_time, self._pretend, stack.clock.time, self.clouds.created_at),
                "aws": AwsAnswers(stack.clock.time, self.clouds.created_at),
            },
            invoke_now=self.effects.past_meddling(stack.stack.functions.invoke),
            invoke_later=lambda seconds, function, payload: stack.invoke_later(
                seconds, function, payload, self.effects.past_meddling
            ),
            limit=limit,
        )
        if self.attacked:
            self.effects.meddler = storm
        return storm

    # --- what stands between the functions and the world ---

    def _wrap_transport(self, inner: Transport) -> Transport:
        return self.effects.wrap_transport(self.watch.wrap_transport(inner))

    def _wrap_clock(self, inner: Clock) -> Clock:
        if not self.attacked:
            return inner
        self._clock = SteppedClock(inner)
        return self._clock

    def _wrap_schedule(self, function: str, fire: Fire) -> Fire:
        return self.climate.wrap_schedule(function, fire) if self.attacked else fire

    def _pretend(self, do: Do) -> Any:
        """Let the provider answer a create as always and undo it."""
        cloud = self.stack.cloud
        kept = cloud.faults.faults()
        cloud.replace_faults([Fault(method="POST", effect="ignore", times=1), *kept])
        try:
            return do()
        finally:
            cloud.replace_faults(kept)

    # --- the run ---

    def run(self) -> Report:
        """Everything, from the first request to the last proof."""
        began = monotonic()
        stack = self.stack.load()
        start = stack.clock.time()
        stack.cloud.faults.add(*faults_of(self._faults))
        stack.aws.faults.add(*aws_faults_of(self._faults))
        stack.engine.on_transition = self._on_transition
        stack.engine.call_every(60.0, self.watch.tick)
        last = max((w.at + w.hold_seconds for w in self._wishes), default=0.0)
        if self.attacked:
            self.climate.plan(start, last)
            if stack.engine.on_failed is not None:
                stack.engine.on_failed = self.climate.wrap_messages(stack.engine.on_failed)
        for wish in self._wishes:
            stack.engine.call_at(start + wish.at, self._asking(wish))
        stack.engine.run_until(start + last)
        stack.run_until(self._all_ended, limit_seconds=PATIENCE_SECONDS, step_seconds=60.0)
        if self.attacked:
            # What was put there at the end has a right to its two sweeps.
            stack.run_for(2 * UNOWNED_LIMIT_SECONDS)
            stack.run_until(self._all_ended, limit_seconds=PATIENCE_SECONDS, step_seconds=60.0)
        self._end_caches()
        self.watch.finish()
        return self._report(start, monotonic() - began)

    # --- users ---

    def _asking(self, wish: Wish) -> Callable[[], None]:
        return lambda: self._ask(wish)

    def _ask(self, wish: Wish) -> None:
        """Ask, and ask again with the same key until there is an answer, as a client does."""
        name = str(wish.request["name"])
        self.stories.setdefault(name, Story(asked_at=self.stack.clock.time()))
        try:
            with self.effects.inside(API_FUNCTION, name):
                if wish.cache is not None and not self._caches.is_ready(wish.owner, wish.cache):
                    self._again(self._asking(wish))
                    return
                lease_id = self.stack.up(wish.owner, idempotency_key=f"key-{name}", **wish.request)
        except ApiRefused as refused:
            if refused.status >= 500:
                self._again(self._asking(wish))
            else:
                # Its cache is in use, or no offer fits (a price limit, a count): nothing was created, and it was told.
                self._refused += 1
            return
        except Killed:
            self.effects.kills_heard += 1
            self._again(self._asking(wish))
            return
        if wish.cancel_after is not None:
            self._later(wish.cancel_after, lambda: self._give_back(lease_id))

    def _give_back(self, lease_id: str) -> None:
        name = self.names[lease_id]
        story = self.stories[name]
        if story.given_back_at is None:
            story.given_back_at = self.stack.clock.time()
            story.state_when_given_back = self.stack.lease(lease_id).state
        try:
            with self.effects.inside(API_FUNCTION, name):
                self.stack.down(lease_id, owner=self.stack.lease(lease_id).owner)
        except ApiRefused as refused:
            if refused.status < 500:
                raise
            self._again(lambda: self._give_back(lease_id))
        except Killed:
            self.effects.kills_heard += 1
            self._again(lambda: self._give_back(lease_id))

    def _end_caches(self) -> None:
        """They have survived all leases; then their owners remove them."""
        for what in not_surviving(self.stack):
            self.watch.violations.append(Violation("cache_lost", what.partition(":")[0], self.stack.clock.time(), what))
        self._remove_caches()
        self.stack.run_until(self._all_gone, limit_seconds=PATIENCE_SECONDS, step_seconds=60.0)

    def _remove_caches(self) -> None:
        try:
            with self.effects.inside(API_FUNCTION, ""):
                if self._caches.remove_all():
                    return
        except Killed:
            self.effects.kills_heard += 1
        except ApiRefused as refused:
            # Counted by the checks: it is neither free nor gone.
            self.watch.violations.append(Violation("cache_in_use", "", self.stack.clock.time(), str(refused)))
            return
        self._again(self._remove_caches)

    def _all_gone(self) -> bool:
        return all(lease.state is LeaseState.RELEASED for lease in self.stack.leases())

    def _again(self, act: Callable[[], None]) -> None:
        self.asked_again += 1
        if self.asked_again > MAX_ASKED_AGAIN:
            raise RuntimeError("the API keeps failing; see the log of the function")
        self._later(ASK_AGAIN_SECONDS, act)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.stack.engine.call_at(self.stack.clock.time() + seconds, act)

    def _created(self, lease: Lease) -> None:
        if lease.name in self._by_name:
            self.names.setdefault(lease.id, lease.name)

    def _runs(self, lease_id: str) -> None:
        wish = self._by_name.get(self.names.get(lease_id, ""))
        if lease_id in self._now_paused:
            self._now_paused.discard(lease_id)
            self._pauses["resumes"] += 1
        if wish is None or lease_id in self._running:
            return
        self._running.add(lease_id)
        self._pausers.runs(lease_id, wish)
        self._later(wish.hold_seconds, lambda: self._give_back(lease_id))
        if self.attacked and wish.removed_after is not None:
            self._later(wish.removed_after, lambda: self._remove_by_hand(lease_id))

    def _is_paused(self, lease_id: str) -> None:
        self._now_paused.add(lease_id)
        self._pauses["pauses"] += 1

    def _remove_by_hand(self, lease_id: str) -> None:
        now = self.stack.clock.time()
        living = [e.id for e in self.watch.machines_of(lease_id) if e.destroyed_from > now]
        story = self.stories[self.names[lease_id]]
        if not living or story.given_back_at is not None:
            return
        if not self.storm.happens(lease_id, "removed_by_hand", living[-1]):
            return
        cloud = self.clouds.of(living[-1])
        if cloud is not None:
            cloud.remove_by_hand(living[-1])
        story.removed_at = now

    def _on_transition(self, event: TransitionEvent) -> None:
        self._transitions += 1
        line = f"{event.time:.6f} {event.machine} {event.execution} {event.from_state} {event.to_state} {event.error}\n"
        self._log.update(line.encode())
        self.effects.on_transition(event)
        self.listener(event)

    def _all_ended(self) -> bool:
        return others_ended(self.stack)

    def _warned(self, event: str, facts: dict[str, object]) -> None:
        if event == "sweep_incomplete" and TOLD_TO_WAIT in str(facts["reason"]):
            self._held_off.append(self.stack.clock.time())

    def _leaving(self, row: Resource) -> None:
        """A machine is given up: write down how it really was, as long as the provider knows."""
        story = self.stories.get(self.names.get(row.lease_id, ""))
        cloud = self.clouds.of(row.provider_id) if row.provider_id else None
        ready_at = cloud.ready_at(row.provider_id) if cloud is not None else None
        if story is None or cloud is None or ready_at is None:
            return
        story.ready_at[row.marker] = ready_at
        if ended := cloud.ended_for(row.provider_id):
            story.ended_for.add(ended)

    def _report(self, start: float, wall_seconds: float) -> Report:
        now = self.stack.clock.time()
        records = [self.stack.record(lease.id) for lease in self.stack.leases()]
        for record in records:
            self._log.update(record.lease.model_dump_json().encode())
        for cloud in self.clouds:
            for line in cloud.log_lines():
                self._log.update(line.encode())
        for seen in self.storm.seen:
            self._log.update(repr(seen).encode())
        verdict = Verdict(
            records=records,
            names=self.names,
            stories=self.stories,
            clouds=self.clouds,
            watch=self.watch,
            climate=self.climate,
            seen=self.storm.seen,
            held_off=self._held_off,
            calls=self.effects.calls,
            kills_swallowed=self.effects.kills_raised - self.effects.kills_heard,
            now=DepsClock(self.stack.clock).now(),
        )
        report = Report(
            leases=len(verdict.ours),
            seed=self._seed,
            faults=self._faults,
            provider=self._provider,
            agents=self._agents,
            pauses=self._pauses["pauses"],
            resumes=self._pauses["resumes"],
            refused=self._refused,
            provider_calls=sum(cloud.calls() for cloud in self.clouds),
            transitions=self._transitions,
            alarms=len(self.stack.log.alarms),
            virtual_hours=round((now - start) / 3600, 2),
            wall_seconds=round(wall_seconds, 2),
            leases_per_second=round(len(verdict.ours) / wall_seconds, 1) if wall_seconds else 0.0,
            digest=self._log.hexdigest(),
        )
        return verdict.fill(report)


def simulate(
    *,
    leases: int,
    seed: int,
    faults: str = "none",
    limit: int | None = None,
    only: frozenset[int] | None = None,
    provider: str = "vultr",
    agents: bool = False,
) -> Report:
    """One run in a stack of its own."""
    simulation = Simulation(
        leases=leases, seed=seed, faults=faults, limit=limit, only=only, provider=provider, agents=agents
    )
    try:
        return simulation.run()
    finally:
        simulation.stack.close()
