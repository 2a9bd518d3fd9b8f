"""What the five-minute schedule does: hold the provider's lists against the ledger, place by place (law 8).

Cloud first, then ledger. Rules are in `domain/sweep.py`; here is when to look, what to do about it, and what to tell. A
place that cannot be listed, or of which nothing can be written down, concludes nothing and stops no other. One run
looks at the places that have waited longest and ends in time; the next one goes on with the rest.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

from gpulease.domain.event import Fact
from gpulease.domain.observation import Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import needs_alarm as stuck
from gpulease.domain.resource import Resource
from gpulease.domain.sweep import (
    LOOKS_APART,
    LOOKS_NEEDED,
    Judgement,
    Look,
    Missing,
    SweepReport,
    SweepState,
    Unowned,
    in_turn,
    incomplete,
    judge,
    named_by,
    needs_alarm,
    stood_still_since,
)
from gpulease.errors import (
    GpuleaseError,
    LeaseConflict,
    LeaseSuperseded,
    LedgerUnavailable,
    ProviderAuthFailed,
    ProviderThrottled,
)
from gpulease.ports import Deps, Once, Provider
from gpulease.steps import alarms
from gpulease.steps.base import record_fact
from gpulease.steps.halted import as_shown
from gpulease.steps.losing import lose
from gpulease.steps.starting import overdue, start_overdue_release
from gpulease.steps.taking_up import may_be_a_cache, take_up

TIME_LIMIT = timedelta(seconds=150)
"""No further place or action is begun after this. The function has 240 s, of which one list may take many."""
MOST_CONFIRMATIONS = 50
"""Of one place and run: each is two calls. The rest follows five minutes later."""


NOW_TIME_LIMIT = timedelta(seconds=12)
"""Of a sweep that somebody waits for; the gateway gives an answer 30 s. The schedule goes on with what is left."""


def run_now(deps: Deps, dry_run: bool) -> SweepReport:
    """A sweep on somebody's word."""
    return run(deps, dry_run=dry_run, time_limit=NOW_TIME_LIMIT)


def run(deps: Deps, *, dry_run: bool = False, time_limit: timedelta = TIME_LIMIT) -> SweepReport:
    """Look at every place where something was ever asked for. `dry_run`: only look, and say what would be done."""
    report = SweepReport(dry_run=dry_run)
    started = deps.clock.now()
    shared: dict[str, tuple[Once, datetime]] = {}
    states = in_turn(deps.sweeps.states())
    if not dry_run:
        _tell_if_late(deps, states, started)
    not_noted: LedgerUnavailable | None = None
    for number, state in enumerate(states):
        if deps.clock.now() - started > time_limit:
            report.left = len(states) - number
            break
        report.places += 1
        once, read_at = shared.setdefault(state.account, (Once(), deps.clock.now()))
        try:
            _Place(deps, state, once, read_at, started + time_limit, report).sweep()
        except LedgerUnavailable as error:
            # The next place has a row of its own, and machines of its own that nobody may be paying attention to.
            deps.log.warning("sweep_not_noted", account=state.account, region=state.region, reason=str(error))
            not_noted = not_noted or error
    if not_noted is not None:
        raise not_noted
    if not (dry_run or report.left or report.skipped or report.incomplete):
        # Of all places or of none: a part would look as if the rest had been given back.
        bill = report.bill
        deps.log.info(
            "what_is_billed",
            resources=bill.resources,
            machines=bill.machines,
            usd_per_hour=float(bill.usd_per_hour),
        )
    return report


class _Place:
    """One account and region in one run. `read_at`: when the first list that places share may have been read."""

    def __init__(
        self, deps: Deps, state: SweepState, once: Once, read_at: datetime, deadline: datetime, report: SweepReport
    ) -> None:
        self._deps = deps
        self._state = state
        self._once = once
        self._read_at = read_at
        self._deadline = deadline
        self._report = report
        self._name = f"{state.account}/{state.region}"

    def sweep(self) -> None:
        deps, report = self._deps, self._report
        now = deps.clock.now()
        last = self._state.last_try_at
        if not report.dry_run:
            if last is not None and now - last < LOOKS_APART:
                report.skipped += 1
                return
            try:
                # The claim: of two sweepers one goes on, and a place that kills the function is not the first again.
                self._state = deps.sweeps.save(self._state.model_copy(update={"last_try_at": now}))
            except LeaseConflict:
                report.skipped += 1
                return
        try:
            provider = deps.providers.get(self._state.account)
            judgement = self._look_after_a_pause(provider)
        except GpuleaseError as error:
            self._incomplete(error)
            return
        report.complete += 1
        report.held += judgement.held
        report.releasing += judgement.releasing
        report.exempt += sum(each.exempt for each in judgement.state.unowned)
        self._act(provider, judgement)

    def _look_after_a_pause(self, provider: Provider) -> Judgement:
        """An account that was told to wait for some seconds is waited for, where a call may: the next sweep is minutes
        away, and what it would find is billed until then."""
        deps = self._deps
        try:
            return self._look(provider)
        except ProviderThrottled as error:
            pause = error.facts.retry_after_seconds
            after = deps.clock.now() + timedelta(seconds=pause)
            if not 0 < pause <= deps.waits.most_seconds or after > self._deadline:
                raise
            deps.log.info("sweep_waits", account=self._state.account, seconds=pause, reason=str(error))
        deps.waits.sleep(pause)
        return self._look(provider)

    def _look(self, provider: Provider) -> Judgement:
        """Cloud first, then ledger: whatever the cloud shows had its row before."""
        deps, region = self._deps, self._state.region
        shown = {
            seen.provider_id: seen
            for seen in provider.list_owned(region, deps.policy.deployment, once=self._once)
            if seen.provider_id
        }
        self._shown = shown
        look = Look(
            deployment=deps.policy.deployment,
            account=self._state.account,
            at=self._read_at,
            window_seconds=provider.visibility_window_seconds,
            shown=shown,
        )
        return judge(look, self._rows(provider), self._state)

    def _rows(self, provider: Provider) -> Iterator[Resource]:
        for row in self._deps.ledger.open_resources(provider=provider.name, region=self._state.region):
            if row.account == self._state.account:
                self._report.bill.add(row)
            yield row

    def _act(self, provider: Provider, judgement: Judgement) -> None:
        report, deps = self._report, self._deps
        settled: set[str] = set()
        for sighting in judgement.new:
            facts = self._facts(sighting)
            deps.log.warning("unowned_seen", **facts, exempt=sighting.exempt, readable=sighting.readable)
            what = "exempt" if sighting.exempt else "given back if it is seen so again" if sighting.readable else "left"
            report.lines.append(f"{sighting.kind} {sighting.provider_id} at {self._name} is in nobody's hands: {what}")
            if not sighting.readable and not report.dry_run:
                deps.notifier.alarm(
                    alarms.UNOWNED_FOUND, f"{sighting.marker} names nothing we know; it is not touched", facts
                )
        for sighting in judgement.take_up:
            if self._in_time():
                self._take_up(provider, self._shown[sighting.provider_id], sighting)
        for missing in judgement.confirm[:MOST_CONFIRMATIONS]:
            if self._in_time() and self._lose(provider, missing):
                settled.add(missing.resource_id)
        for resource_id in judgement.differ:
            if self._in_time():
                self._as_shown(provider, resource_id)
        for lease_id in judgement.overdue:
            if self._in_time() and not report.dry_run:
                self._resume(lease_id)
        report.watching += sum(not each.exempt for each in judgement.state.unowned) - len(judgement.take_up)
        report.watching += len(judgement.state.missing) - len(judgement.confirm)
        if not report.dry_run:
            missing_still = tuple(each for each in judgement.state.missing if each.resource_id not in settled)
            self._remember(judgement.state.model_copy(update={"missing": missing_still}))

    def _take_up(self, provider: Provider, seen: Observation, sighting: Unowned) -> None:
        report = self._report
        named = named_by(sighting.marker, self._deps.policy.deployment)
        if named is None:
            return
        text = f"{sighting.kind} {sighting.provider_id} at {self._name} belongs to no open lease"
        try:
            left = may_be_a_cache(self._deps, named)
        except GpuleaseError as error:
            self._failed(error, named.lease_id, sighting.provider_id)
            return
        if left:
            text = f"{sighting.kind} {sighting.provider_id} at {self._name} may be the cache {named.lease_id}"
            self._left(sighting, f"{text}, which the ledger does not know (any more); it is billed and not touched")
            return
        if report.dry_run:
            report.taken_up += 1
            report.lines.append(f"{text}; it would be given back")
            return
        try:
            taken = take_up(self._deps, provider, seen, named)
        except GpuleaseError as error:
            self._failed(error, named.lease_id, sighting.provider_id)
            return
        if taken:
            report.taken_up += 1
            report.lines.append(f"{text}; it is being given back under {named.lease_id}")
            self._deps.notifier.alarm(alarms.UNOWNED_FOUND, f"{text}; it is being given back", self._facts(sighting))

    def _left(self, sighting: Unowned, text: str) -> None:
        """Told at the first look that may tell it, which is the second or the third; listed in every report."""
        self._report.lines.append(text)
        if not self._report.dry_run and sighting.looks - LOOKS_NEEDED in (0, 1):
            self._deps.notifier.alarm(alarms.UNOWNED_FOUND, text, self._facts(sighting))

    def _lose(self, provider: Provider, missing: Missing) -> bool:
        """Whether the suspicion is settled, one way or the other."""
        report = self._report
        text = f"{missing.resource_id} is missing at {self._name} since {missing.first_at:%H:%M} UTC"
        if report.dry_run:
            report.lost += 1
            report.lines.append(f"{text}; it would be ended if id and marker say so too")
            return False
        try:
            outcome = lose(self._deps, provider, missing)
        except (LeaseConflict, LeaseSuperseded):
            # The lease moved on while we looked: the next run sees it as it is then.
            return False
        except ProviderAuthFailed as error:
            alarms.auth_failed(self._deps, self._state.account, error)
            self._failed(error, missing.lease_id, missing.resource_id)
            return False
        except GpuleaseError as error:
            self._failed(error, missing.lease_id, missing.resource_id)
            return False
        if outcome == "lost":
            report.lost += 1
            report.lines.append(f"{text}; its lease {missing.lease_id} was told")
        return outcome != "left"

    def _as_shown(self, provider: Provider, resource_id: str) -> None:
        """A machine is stopped, or started, otherwise than the ledger says."""
        report = self._report
        if report.dry_run:
            report.lines.append(f"{resource_id} at {self._name} is stopped or started otherwise than the ledger says")
            return
        try:
            done = as_shown(self._deps, provider, resource_id)
        except (LeaseConflict, LeaseSuperseded):
            # The lease moved on while we looked: the next run sees it as it is then.
            return
        except GpuleaseError as error:
            self._failed(error, resource_id.partition(".")[0], resource_id)
            return
        if done:
            report.lines.append(f"{resource_id} at {self._name}: {done}")

    def _resume(self, lease_id: str) -> None:
        """Something is on its way out and nobody has worked on it for minutes: it is taken up for ever (law 5)."""
        deps, now = self._deps, self._deps.clock.now()
        try:
            record = deps.ledger.load(lease_id)
            start_overdue_release(record, deps, now)
            for resource in overdue(record, now):
                if resource.release is not None and stuck(resource.release, now):
                    # Its own turns would tell, if they came to anything.
                    alarms.release_stuck(deps, resource, "not_worked_on", resource.release.last_error)
                    record_fact(deps, lease_id, resource.id, partial(_told_stuck, now=now))
        except GpuleaseError as error:
            self._failed(error, lease_id, lease_id)

    def _incomplete(self, error: GpuleaseError) -> None:
        """Nothing is concluded. After three times in a row people are told since when nothing is verified."""
        report, deps = self._report, self._deps
        report.incomplete += 1
        state = incomplete(self._state, str(error))
        since = _clock(state.last_complete_at)
        text = f"{self._name} is not verified since {since}: {error}"
        report.lines.append(text)
        deps.log.warning(
            "sweep_incomplete",
            account=state.account,
            region=state.region,
            runs=state.incomplete_runs,
            reason=str(error),
        )
        if report.dry_run:
            return
        if isinstance(error, ProviderAuthFailed):
            alarms.auth_failed(deps, state.account, error)
        now = deps.clock.now()
        if needs_alarm(state, now):
            state = state.model_copy(update={"alarmed_at": now})
            deps.notifier.alarm(
                alarms.SWEEP_INCOMPLETE,
                text,
                {
                    "account": state.account,
                    "provider": state.account,
                    "region": state.region,
                    "not_verified_since": since,
                    "runs": state.incomplete_runs,
                    "reason": getattr(error, "reason", type(error).__name__),
                    "last_error": str(error)[:300],
                },
            )
        self._remember(state)

    def _remember(self, state: SweepState) -> None:
        try:
            self._deps.sweeps.save(state)
        except LeaseConflict:
            # Another sweeper was here at the same time: its sightings count, ours begin anew with the next look.
            self._deps.log.info("sweep_overtaken", account=state.account, region=state.region)

    def _failed(self, error: GpuleaseError, lease_id: str, what: str) -> None:
        """One thing that fails stops no other; it stays as suspicious as it was, and the next run tries again."""
        self._report.failed += 1
        self._deps.log.warning(
            "sweep_item_failed", lease_id=lease_id, item=what, error=type(error).__name__, reason=str(error)
        )

    def _in_time(self) -> bool:
        return self._deps.clock.now() <= self._deadline

    def _facts(self, sighting: Unowned) -> dict[str, Fact]:
        named = named_by(sighting.marker, self._deps.policy.deployment)
        return {
            "account": self._state.account,
            "provider": self._state.account,
            "region": self._state.region,
            "resource_id": named.resource_id if named else sighting.marker,
            "provider_id": sighting.provider_id,
            "lease_id": named.lease_id if named else "",
            "reason": "unowned",
        }


def _told_stuck(record: LeaseRecord, resource: Resource, *, now: datetime) -> Change | None:
    if resource.release is None or resource.release.alarmed_at is not None:
        return None
    told = resource.model_copy(update={"release": resource.release.model_copy(update={"alarmed_at": now})})
    return Change(lease_id=record.lease.id, resources=(told,))


def _tell_if_late(deps: Deps, states: list[SweepState], now: datetime) -> None:
    """The schedule stood still: say for how long nothing was verified, once, in this first run after it."""
    since = stood_still_since(states, now)
    if since is None:
        return
    accounts = ", ".join(sorted({state.account for state in states}))[:200]
    deps.notifier.alarm(
        alarms.SWEEP_INCOMPLETE,
        f"no sweep ran between {_clock(since)} and {_clock(now)}; it runs again now",
        {
            "account": accounts,
            "provider": accounts,
            "region": ", ".join(sorted({state.region for state in states}))[:200],
            "not_verified_since": _clock(since),
            "reason": "schedule_stopped",
        },
    )


def _clock(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at is not None else "the beginning"
