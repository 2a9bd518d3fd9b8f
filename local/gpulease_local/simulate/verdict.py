"""What is judged at the end of a run: the book against the ledger, the reasons, the costs, the calls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpulease.domain.cost import cost_of
from gpulease.domain.lease import LeaseKind, LeaseState, Reason
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import BillingRule, Resource, ResourceKind

from gpulease_local.simulate.audit import CENT, audit
from gpulease_local.simulate.climate import Climate
from gpulease_local.simulate.clouds import MACHINE, Clouds, Thing
from gpulease_local.simulate.expected import Story, why_wrong
from gpulease_local.simulate.invariants import SWEEP_SECONDS, UNOWNED_LIMIT_SECONDS, Violation, Watch
from gpulease_local.simulate.report import Report
from gpulease_local.simulate.storm import Misfortune

DESTROY_SECONDS = 60.0
"""What the simulator takes at most from a delete to the end of billing, and a turn of `release` before it."""
CALLS_AT_LEAST = 300
CALLS_PER_SECOND = 0.5
"""Of a lease in motion: polls are four seconds apart, a turn of `release` is a few calls."""
READ_LATE_SECONDS = 900
"""Boot, stop and end together, with what the fault profiles add to them."""
SWEEP_FUNCTION = "SweepFunction"
_SEEN_GONE_WITHIN = timedelta(minutes=3)
"""A machine that is gone is read as absent within this, where nothing went wrong."""


@dataclass
class Verdict:
    """Everything needed to judge a run. `held_off`: when a sweep did not look since the account was told to wait;
    `calls`: provider calls by lease; `now`: the provider's time."""

    records: Sequence[LeaseRecord]
    names: Mapping[str, str]
    stories: Mapping[str, Story]
    clouds: Clouds
    watch: Watch
    climate: Climate
    seen: Sequence[Misfortune]
    held_off: Sequence[float]
    calls: Mapping[str, int]
    kills_swallowed: int
    now: datetime

    def __post_init__(self) -> None:
        self.ours = [record for record in self.records if record.lease.id in self.names]
        happened: dict[str, set[str]] = {}
        times: dict[str, list[float]] = {}
        for each in self.seen:
            times.setdefault(each.lease, []).append(each.at)
            happened.setdefault(each.lease, set()).add(each.kind.partition(" ")[0])
        for record in self.ours:
            story = self._story(record)
            for machine in self.watch.machines_of(record.lease.id):
                story.ended_for.add(self.clouds.named(machine.provider).ended_for(machine.id))
            story.misfortunes = happened.get(self.names[record.lease.id], set())
            story.misfortunes_at = times.get(self.names[record.lease.id], [])
            story.disturbed = self.climate.disturbed(story.asked_at, self._ended(record))
            story.refusals = self.watch.refusals.get(record.lease.id, 0)

    def _story(self, record: LeaseRecord) -> Story:
        """Of a lease that nobody asked for (it was made for something found), only how long it lived is known."""
        known = self.stories.get(self.names.get(record.lease.id, ""))
        if known is not None:
            return known
        created = record.lease.created_at
        since = min([created, *(r.billed_from for r in record.resources if r.billed_from is not None)])
        disturbed = self.climate.disturbed(since.timestamp(), self._ended(record))
        return Story(asked_at=since.timestamp(), disturbed=disturbed)

    def _ended(self, record: LeaseRecord) -> float:
        """When it was written as released, by the provider's clock: the ledger's may have been set back just then."""
        return self.watch.released_at.get(record.lease.id, self.now.timestamp())

    def fill(self, report: Report) -> Report:
        """Write everything that was judged into the report."""
        found = audit(self.clouds, self.records, self.now, without=self.watch.foreign)
        wrong = self._wrong_reasons()
        longest, in_all = self._longest_unowned()
        limit = UNOWNED_LIMIT_SECONDS + DESTROY_SECONDS
        violations = [*self.watch.violations, *self._calls(), *self._costs()]
        if longest > limit:
            violations.append(self._violation("unowned_too_long", "", f"{longest:.0f} s"))
        if self.kills_swallowed:
            violations.append(self._violation("kill_swallowed", "", f"{self.kills_swallowed} times"))
        ended = [record.lease for record in self.ours if record.lease.state is LeaseState.RELEASED]
        report.released = len(ended)
        report.running_ok = sum(record.lease.running_at is not None for record in self.ours)
        report.orphans, report.duplicates = len(found.orphans), len(found.duplicates)
        report.stuck, report.closed_while_billed = len(found.stuck), len(found.closed_while_billed)
        report.wrong_reason = len(wrong)
        report.violations = dict(sorted(Counter(v.rule for v in violations).items()))
        report.max_unowned_seconds, report.max_unowned_seconds_in_all = round(longest, 1), round(in_all, 1)
        report.unowned_limit_seconds = limit
        report.max_overlap_seconds = round(self.watch.max_overlap_seconds, 1)
        report.max_calls_of_a_lease = max((self._calls_of(record) for record in self.ours), default=0)
        report.misfortunes = dict(sorted(Counter(m.kind.partition(" ")[0] for m in self.seen).items()))
        report.strangers_untouched = len(self.watch.foreign)
        report.foundlings = len(self.watch.planted)
        report.reasons = dict(sorted(Counter((lease.reason or Reason.LOST).value for lease in ended).items()))
        report.machines_created = sum(each.role == MACHINE for each in self.clouds.things())
        report.caches = sum(record.lease.kind is LeaseKind.CACHE for record in self.records)
        report.spot = sum(r.lease.running_at is not None and r.lease.attempts[-1].offer.spot for r in self.ours)
        report.leases_with_cache = sum(bool(record.lease.cache_id) for record in self.ours)
        report.cost_book_usd = str(found.cost_book_usd.quantize(CENT))
        report.cost_ledger_usd = str(found.cost_ledger_usd.quantize(CENT))
        lines = [f"{what}: {each}" for what, ids in found.suspicious().items() for each in ids]
        lines += [f"wrong_reason: {lease}: {why}" for lease, why in wrong.items()]
        lines += [f"{v.rule}: {v.subject} at {v.at:.1f}: {v.detail}" for v in violations]
        report.suspects = lines[:50]
        return report

    def _violation(self, rule: str, subject: str, detail: str) -> Violation:
        return Violation(rule, subject, self.now.timestamp(), detail)

    # --- reasons ---

    def _wrong_reasons(self) -> dict[str, str]:
        wrong = {}
        for record in self.ours:
            why = why_wrong(record, self._story(record), self.watch.machines_of(record.lease.id))
            if why:
                wrong[record.lease.id] = why
        return wrong

    # --- unowned ---

    def _longest_unowned(self) -> tuple[float, float]:
        """Seconds without and with the times in which the sweep could not look."""
        blind = list(self.climate.blind)
        cut = [*self.held_off, *(m.at for m in self.seen if m.where.startswith(SWEEP_FUNCTION))]
        blind += [(at - SWEEP_SECONDS, at + SWEEP_SECONDS) for at in cut]
        blind = _merged(blind)
        longest = in_all = 0.0
        for _, since, until in self.watch.unowned:
            hidden = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in blind)
            longest, in_all = max(longest, until - since - hidden), max(in_all, until - since)
        return longest, in_all

    # --- calls ---

    def _calls_of(self, record: LeaseRecord) -> int:
        return self.calls.get(record.lease.id, 0) + self.calls.get(self.names[record.lease.id], 0)

    def _calls(self) -> list[Violation]:
        broken = []
        for record in self.ours:
            number, most = self._calls_of(record), CALLS_AT_LEAST + CALLS_PER_SECOND * self._seconds_in_motion(record)
            if number > most:
                detail = f"{number} provider calls, {most:.0f} would do"
                broken.append(self._violation("too_many_calls", record.lease.id, detail))
        return broken

    def _seconds_in_motion(self, record: LeaseRecord) -> float:
        lease = record.lease
        end = lease.released_at or self.now
        more = self._story(record).more_in_motion_seconds
        if lease.running_at is None:
            return (end - lease.created_at).total_seconds()
        giving_back = (end - (lease.release_requested_at or end)).total_seconds()
        return (lease.running_at - lease.created_at).total_seconds() + max(0.0, giving_back) + more

    # --- costs ---

    def _costs(self) -> list[Violation]:
        """The ledger never says less than the book; the same to the cent where nothing went wrong."""
        broken = []
        for record in self.records:
            if record.lease.state is LeaseState.RELEASED:
                broken += [v for row in record.of_kind(ResourceKind.INSTANCE) for v in self._cost(record, row)]
        return broken

    def _cost(self, record: LeaseRecord, row: Resource) -> list[Violation]:
        entry = self.clouds.find(row.provider_id)
        if entry is None:
            return []
        moment = self.now.timestamp()
        whole = [entry, *self.clouds.parts_of(row.marker)]
        book = sum((each.source.cost_usd(moment) for each in whole), Decimal(0)).quantize(CENT)
        ledger = cost_of(row, self.now).quantize(CENT)
        if ledger == book:
            return []
        story = self._story(record)
        hour = sum((each.source.usd_per_hour() for each in whole), Decimal(0)).quantize(CENT) + CENT
        detail = f"{entry.id}: ledger {ledger}, book {book}"
        if ledger < book:
            # A clock that was set back reads the end of a machine too early: by one started hour at most.
            excused = story.disturbed and self.climate.stepped_at and book - ledger <= hour
            return [] if excused else [self._violation("cost_too_low", record.lease.id, detail)]
        if row.billing is BillingRule.PER_SECOND and ledger - book <= self._misread(row, entry):
            return []
        if any(story.ended_for) or story.misfortunes or story.disturbed:
            return []
        if ledger - book <= self._hours_late(row, entry.destroyed_from) * hour:
            return []
        return [self._violation("cost_differs", record.lease.id, detail)]

    def _misread(self, row: Resource, entry: Thing) -> Decimal:
        """US dollars by which a start and an end may be read too early and too late, each time that it was billed."""
        spans = entry.source.spans(self.now.timestamp())
        rate = max((rate.usd_per_hour for rate in row.rates), default=Decimal(0))
        return Decimal(READ_LATE_SECONDS * max(1, len(spans))) / 3600 * rate + CENT

    def _hours_late(self, row: Resource, gone: float) -> Decimal:
        """1 where the absence was read soon, and in a later started hour than the one in which the machine ended."""
        born, end = row.billed_from, row.released_at
        if born is None or end is None or end - datetime.fromtimestamp(gone, UTC) > _SEEN_GONE_WITHIN:
            return Decimal(0)
        true_hours = -int((born.timestamp() - gone) // 3600)
        read_hours = -int((born - end).total_seconds() // 3600)
        return Decimal(1 if read_hours > true_hours else 0)


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
