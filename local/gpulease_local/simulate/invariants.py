"""What must hold at every moment of a simulation, checked at the moment it could break.

The provider's book is the truth, because it is what one pays for; the ledger is what we claim. `Watch` sees each write
of the ledger right after it was carried out and each call right after the provider answered, so a broken promise is
reported with the time at which it broke, not hours later. Work per event is constant.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gpulease.domain.lease import Lease, LeaseKind, LeaseState
from gpulease.domain.resource import Resource, ResourceState
from gpulease.ports import Change, Ledger
from gpulease.providers.http import RawResponse, Transport
from gpulease_sim.aws import SimResponse

from gpulease_local.simulate.aws_calls import aws_request
from gpulease_local.simulate.clouds import MACHINE, NETWORK, VOLUME, Clouds, Thing
from gpulease_local.simulate.effects import path_of
from gpulease_local.simulate.provider_calls import Call, aws_call, vultr_call
from gpulease_local.simulate.virtual_aws import Handler

SWEEP_SECONDS = 300.0
OVERLAP_LIMIT_SECONDS = 2 * SWEEP_SECONDS
UNOWNED_LIMIT_SECONDS = 2 * SWEEP_SECONDS


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. `rule` is constant; `subject` is the lease, or the provider id without one."""

    rule: str
    subject: str
    at: float
    detail: str


class Watch:
    """The invariants that are checked all along.

    - `no_intent`: a create call whose marker is not an open intent in the ledger (law 1);
    - `create_repeated`: a second create call with one marker (law 2);
    - `decided_too_late`: an intent written for a lease that is ending: only facts may be written then (law 3);
    - `closed_while_billed`: a resource or lease written as released while the book still bills it (laws 4 and 5);
    - `network_before_machine`: a network's delete sent while a machine that is to be given back is in it (law 6);
    - `foreign_touched`: a changing call about something that does not carry our marker (law 8);
    - `volume_while_used`: a delete of a block, or its attach elsewhere, sent while a machine that exists has it, or its
      detach while that runs and is not on its way out;
    - `two_users`: a cache whose row counts two machines, or one that takes it while the book has it at another's;
    - `paused_while_billed`: a lease written as paused while the book bills a machine of it (law 11);
    - `two_machines`: two machines of one lease billed, and neither on its way out, for longer than two sweeps.

    `unowned` lists when anything billed was not owned in the ledger.
    """

    def __init__(self, clouds: Callable[[], Clouds], now: Callable[[], float], deployment: str) -> None:
        self._clouds = clouds
        self._now = now
        self._prefix = f"gpulease:{deployment}:"
        self.violations: list[Violation] = []
        self.foreign: set[str] = set()
        self.planted: set[str] = set()
        """Ours by marker, and put there by nobody we know: the sweep has to find them."""
        self.unowned: list[tuple[str, float, float]] = []
        """(provider id, from, until) of everything that was billed and not owned in the ledger."""
        self.on_running: Callable[[str], None] = lambda lease: None
        """Told the id of a lease whenever it is written as running."""
        self.on_paused: Callable[[str], None] = lambda lease: None
        """Told the id of a lease when it is first written as paused after another state."""
        self._paused: set[str] = set()
        self.max_overlap_seconds = 0.0
        self.on_leaving: Callable[[Resource], None] = lambda row: None
        """Told of each resource that is being marked for giving back."""
        self.refusals: dict[str, int] = defaultdict(int)
        """Changing calls of a lease that the provider itself refused."""
        self.unclean: Callable[[str], bool] = lambda lease: False
        """Whether a lease lives with a clock that jumped, so that windows in seconds prove nothing about it."""
        self.released_at: dict[str, float] = {}
        """When each lease became released, whatever the clock of the functions showed."""
        self._users: dict[str, tuple[str, ...]] = {}
        self._rows: dict[str, Resource] = {}
        self._held: dict[str, str] = {}
        self._open_markers: dict[str, int] = defaultdict(int)
        self._by_marker: dict[str, list[Thing]] = defaultdict(list)
        self._by_lease: dict[str, list[Thing]] = defaultdict(list)
        self._with_several: dict[str, None] = {}
        """Leases that have had more than one machine, in order."""
        self._created: dict[str, int] = defaultdict(int)
        self._unowned_since: dict[str, float] = {}
        self._ending: set[str] = set()
        self._overlapping: dict[str, float] = {}

    # --- what is seen ---

    def wrap_ledger(self, inner: Ledger) -> Ledger:
        """A ledger that tells this watch of every write that was carried out."""
        return cast(Ledger, _WatchedLedger(self, inner))

    def wrap_transport(self, inner: Transport) -> Transport:
        """A transport that tells this watch of every call that reached the provider."""
        return _WatchedTransport(self, inner)

    def wrap_aws(self, inner: Handler) -> Handler:
        """The same for AWS."""
        return _WatchedHandler(self, inner)

    def calling(self, call: Call) -> None:
        """A change is about to reach the provider."""
        if call.kind:
            self._creating(call)
            return
        for target in call.targets:
            if target in self.foreign:
                self._broken("foreign_touched", target, call.text)
        if call.deletes == NETWORK:
            for target in call.targets:
                going = [each for each in self._clouds().members(target) if self._is_going(each)]
                if going:
                    self._broken("network_before_machine", self._lease_of_id(target), f"{call.text}: {going}")
        if call.volume:
            self._volume_call(call)

    def _volume_call(self, call: Call) -> None:
        """One writer at a time: neither deleted under its machine nor asked for by another one."""
        user = self._clouds().user_of(call.volume)
        elsewhere = bool(call.attach_to) and call.attach_to != user
        if user and (call.deletes == VOLUME or elsewhere or (call.detaches and self._runs(user))):
            detail = f"{call.text} {call.attach_to}: it is at {user}"
            self._broken("volume_while_used", self._lease_of_id(call.volume), detail)

    def _runs(self, machine_id: str) -> bool:
        machine = self._clouds().find(machine_id)
        return machine is not None and machine.source.is_billed(self._now()) and not self._is_going(machine_id)

    def _cache_written(self, cache: Lease) -> None:
        if len(cache.members) > 1:
            self._broken("two_users", cache.id, ", ".join(cache.members))
        before = self._users.get(cache.id, ())
        self._users[cache.id] = cache.members
        if cache.members and before and cache.members != before:
            # Taken over from one that never had it: then the book says so too.
            for entry in self._by_lease.get(cache.id, ()):
                user = self._clouds().user_of(entry.id)
                if user and self._held.get(user) not in cache.members:
                    self._broken("two_users", cache.id, f"{entry.id} is at {user}")

    def _creating(self, call: Call) -> None:
        marker = self._ours(call.markers)
        if not self._open_markers.get(marker):
            self._broken("no_intent", lease_of_marker(marker), f"{call.kind} with marker {marker!r} is asked for")
        self._created[marker] += 1
        if self._created[marker] > 1:
            self._broken("create_repeated", lease_of_marker(marker), f"{call.kind} {marker} is asked for again")

    def answered(self, call: Call, status: int) -> None:
        """The provider answered a change."""
        if status < 400:
            return
        if call.kind:
            self.refusals[lease_of_marker(self._ours(call.markers))] += 1
        for target in call.targets:
            self.refusals[self._lease_of_id(target)] += 1

    def _ours(self, markers: Iterable[str]) -> str:
        return next((marker for marker in markers if marker.startswith(self._prefix)), "")

    def called(self) -> None:
        """A call that may have created something came back: take in what is new."""
        for entry in self._clouds().fresh():
            marker = self._ours(entry.markers)
            if not marker or entry.id in self.foreign:
                continue
            self._by_marker[entry.part_of or marker].append(entry)
            lease = lease_of_marker(marker)
            self._by_lease[lease].append(entry)
            if entry.role == MACHINE and sum(e.role == MACHINE for e in self._by_lease[lease]) > 1:
                self._with_several[lease] = None
            self._owned_or_not(entry)

    def committed(self, change: Change) -> None:
        """A write was carried out."""
        now = self._now()
        # As it was before this write: one that takes its lease out of its ending is no excuse for itself.
        was_ending = change.lease_id in self._ending
        if change.lease is not None:
            ending = change.lease.state in (LeaseState.RELEASING, LeaseState.RELEASED)
            (self._ending.add if ending else self._ending.discard)(change.lease_id)
        if change.lease is not None and change.lease.kind is LeaseKind.CACHE:
            self._cache_written(change.lease)
        for row in change.resources:
            new = row.state is ResourceState.INTENDED and row.id not in self._rows
            if new and was_ending:
                self._broken("decided_too_late", change.lease_id, f"{row.id} is asked for")
            self._row_written(row, now)
        if change.lease is not None and change.lease.state is LeaseState.RUNNING:
            self.on_running(change.lease_id)
        if change.lease is not None:
            self._pause_written(change.lease, now)
        if change.lease is not None and change.lease.state is not LeaseState.RELEASED:
            self.released_at.pop(change.lease_id, None)
        elif change.lease is not None:
            self.released_at.setdefault(change.lease_id, now)
            for entry in self._by_lease.get(change.lease_id, ()):
                if entry.destroyed_from > now:
                    self._released_while_billed(change.lease_id, f"lease closed, {entry.kind} {entry.id} is billed")

    def _pause_written(self, lease: Lease, now: float) -> None:
        if lease.state is not LeaseState.PAUSED:
            self._paused.discard(lease.id)
            return
        for entry in self.machines_of(lease.id):
            if entry.source.is_billed(now) and not self._is_going(entry.id) and not self.unclean(lease.id):
                self._broken("paused_while_billed", lease.id, f"{entry.kind} {entry.id} is billed")
        if lease.id not in self._paused:
            self._paused.add(lease.id)
            self.on_paused(lease.id)

    def _row_written(self, row: Resource, now: float) -> None:
        old = self._rows.get(row.id)
        self._rows[row.id] = row
        if row.state is ResourceState.RELEASING and (old is None or old.state is not ResourceState.RELEASING):
            self.on_leaving(row)
        if old is not None and old.state is not ResourceState.RELEASED:
            if old.provider_id:
                self._held.pop(old.provider_id, None)
            else:
                self._open_markers[old.marker] -= 1
        if row.state is not ResourceState.RELEASED:
            if row.provider_id:
                self._held[row.provider_id] = row.id
            else:
                self._open_markers[row.marker] += 1
        for entry in self._by_marker.get(row.marker, ()):
            self._owned_or_not(entry)
            if row.state is not ResourceState.RELEASED or entry.destroyed_from <= now or entry.part_of:
                continue
            if (row.provider_id == entry.id) or (not row.provider_id and entry.id not in self._held):
                self._released_while_billed(row.lease_id, f"{row.id} closed ({row.release_note}), {entry.id} is billed")

    def _released_while_billed(self, lease: str, detail: str) -> None:
        if not self.unclean(lease):
            self._broken("closed_while_billed", lease, detail)

    # --- owned or not ---

    def _owned_or_not(self, entry: Thing) -> None:
        now = self._now()
        whole = self._rows.get(entry.part_of.rpartition(":")[2]) if entry.part_of else None
        with_machine = whole is not None and whole.state is not ResourceState.RELEASED
        if entry.id in self._held or self._open_markers.get(self._ours(entry.markers)) or with_machine:
            since = self._unowned_since.pop(entry.id, None)
            if since is not None:
                self._unowned_for(entry, since, now)
        elif entry.destroyed_from > now:
            self._unowned_since.setdefault(entry.id, max(entry.created, now))

    def _unowned_for(self, entry: Thing, since: float, now: float) -> None:
        until = min(now, entry.destroyed_from)
        if until > since:
            self.unowned.append((entry.id, since, until))

    # --- at every minute, and at the end ---

    def tick(self) -> None:
        """Measure what lasts."""
        self.called()
        now = self._now()
        for lease in self._with_several:
            self._measure_overlap(lease, self._by_lease[lease], now)

    def _measure_overlap(self, lease: str, entries: list[Thing], now: float) -> None:
        living = [e for e in entries if e.role == MACHINE and e.destroyed_from > now]
        # A stopped one that is kept until its replacement runs is not billed.
        staying = [e for e in living if not self._is_going(e.id) and e.source.is_billed(now)]
        if len(living) < 2:
            self._overlapping.pop(lease, None)
            return
        since = self._overlapping.setdefault(lease, now)
        self.max_overlap_seconds = max(self.max_overlap_seconds, now - since)
        if len(staying) > 1:
            began = self._overlapping.setdefault(f"{lease} staying", now)
            if now - began > OVERLAP_LIMIT_SECONDS:
                self._broken("two_machines", lease, ", ".join(e.id for e in staying))
        else:
            self._overlapping.pop(f"{lease} staying", None)

    def _is_going(self, provider_id: str) -> bool:
        row = self._rows.get(self._held.get(provider_id, ""))
        return row is not None and row.state is ResourceState.RELEASING

    def newest_machine(self) -> Thing | None:
        """The virtual machine of ours that was created last."""
        ours = (each for each in self._clouds().things() if each.kind == "instance" and each.id in self._held)
        return max(ours, key=lambda each: each.created, default=None)

    def objects_of(self, lease: str) -> list[Thing]:
        """Everything of a lease that ever was, by the book."""
        return list(self._by_lease.get(lease, ()))

    def machines_of(self, lease: str) -> list[Thing]:
        """Every machine of a lease that ever was, by the book."""
        return [entry for entry in self._by_lease.get(lease, ()) if entry.role == MACHINE]

    def finish(self) -> None:
        """Nothing comes any more: close the open intervals, and look at what we must not have touched."""
        self.tick()
        now = self._now()
        for entry_id, since in self._unowned_since.items():
            entry = self._clouds().find(entry_id)
            if entry is not None:
                self._unowned_for(entry, since, now)
        for entry_id in sorted(self.foreign):
            entry = self._clouds().find(entry_id)
            if entry is None or entry.destroyed_from <= now:
                self._broken("foreign_touched", entry_id, "it is gone")

    def _lease_of_id(self, provider_id: str) -> str:
        entry = self._clouds().find(provider_id)
        return lease_of_marker(self._ours(entry.markers if entry else ())) or provider_id

    def _broken(self, rule: str, subject: str, detail: str) -> None:
        if not any(v.rule == rule and v.subject == subject for v in self.violations):
            self.violations.append(Violation(rule, subject, self._now(), detail))


def lease_of_marker(marker: str) -> str:
    """`gpulease:<deployment>:<lease id>.<kind>.<n>` to the lease id; empty for anything else."""
    return marker.rpartition(":")[2].partition(".")[0]


class _WatchedLedger:
    def __init__(self, watch: Watch, inner: Ledger) -> None:
        self._watch = watch
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, change: Change) -> None:
        """Write, then tell."""
        self._inner.commit(change)
        self._watch.committed(change)


class _WatchedTransport:
    def __init__(self, watch: Watch, inner: Transport) -> None:
        self._watch = watch
        self._inner = inner

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        read_timeout: float,
    ) -> RawResponse:
        """Tell, send once, tell."""
        call = vultr_call(method, path_of(url), body)
        if call is not None:
            self._watch.calling(call)
        try:
            answer = self._inner.send(
                method, url, headers=headers, body=body, connect_timeout=connect_timeout, read_timeout=read_timeout
            )
        finally:
            if call is not None and call.kind:
                self._watch.called()
        if call is not None and method == "POST":
            self._watch.answered(call, answer.status)
        return answer


class _WatchedHandler:
    def __init__(self, watch: Watch, inner: Handler) -> None:
        self._watch = watch
        self._inner = inner

    def handle(self, headers: Mapping[str, str], body: bytes) -> SimResponse:
        """Tell, answer, tell."""
        call = aws_call(aws_request(headers, body))
        if call is not None:
            self._watch.calling(call)
        try:
            answer = self._inner.handle(headers, body)
        finally:
            if call is not None and call.kind:
                self._watch.called()
        if call is not None:
            self._watch.answered(call, answer.status)
        return answer
