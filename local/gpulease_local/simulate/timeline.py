"""The story of one lease in one run, from all sides: its functions' effects, its workflows, the ledger, the book."""

from typing import TYPE_CHECKING

from gpulease_local.asl import TransitionEvent
from gpulease_local.simulate.effects import Effect, lease_of_execution
from gpulease_local.simulate.virtual import START

if TYPE_CHECKING:
    from gpulease_local.simulate.run import Simulation


class Recorder:
    """Listens to a simulation that has not started yet. `lease`: id or name."""

    def __init__(self, simulation: "Simulation", lease: str) -> None:
        self._simulation = simulation
        self._wanted = lease
        self._told: list[tuple[float, str]] = []
        simulation.effects.trace = self._effect
        simulation.listener = self._transition

    def _is_it(self, lease: str) -> bool:
        return lease == self._wanted or self._simulation.names.get(lease) == self._wanted

    def _also(self, lease: str) -> bool:
        names = self._simulation.names
        return self._is_it(lease) or any(names[i] == lease for i in names if i == self._wanted)

    def _effect(self, effect: Effect, came: str) -> None:
        if self._also(effect.lease):
            outcome = f" -> {came}" if came else ""
            self._told.append((self._simulation.stack.clock.time(), f"effect {effect}{outcome}"))

    def _transition(self, event: TransitionEvent) -> None:
        if not self._is_it(lease_of_execution(event.execution)):
            return
        where = f"{event.from_state or 'start'} -> {event.to_state or event.status}"
        self._told.append(
            (event.time, f"state  {event.execution}: {where}" + (f" [{event.error}]" if event.error else ""))
        )

    def lines(self) -> list[str]:
        """In order of time, each with seconds since the start of the run."""
        simulation = self._simulation
        told = list(self._told)
        for lease_id, name in simulation.names.items():
            if self._wanted not in (lease_id, name):
                continue
            told += [(e.at.timestamp(), f"ledger {e.kind}: {e.text}") for e in simulation.stack.events(lease_id)]
            for entry in simulation.watch.objects_of(lease_id):
                told.append((entry.created, f"book   {entry.kind} {entry.id} created ({entry.plan or entry.region})"))
                if entry.destroyed_from < float("inf"):
                    told.append((entry.destroyed_from, f"book   {entry.kind} {entry.id} gone"))
            of_it = (m for m in simulation.storm.seen if m.lease == name or not m.lease)
            told += [(m.at, f"!! {m.number}. {m.kind}: {m.where}") for m in of_it]
        return [f"{self.time(at)} {what}" for at, what in sorted(told, key=lambda line: line[0])]

    def time(self, at: float) -> str:
        """Seconds since the start, readable."""
        seconds = at - START
        return f"{seconds / 3600:7.3f} h {seconds:9.1f} s"
