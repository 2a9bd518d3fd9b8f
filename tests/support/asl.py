"""For tests of the ASL engine: an engine in virtual time around scripted functions, and real waiting."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from gpulease_local.asl import Engine, Store, TaskReply, TransitionEvent, VirtualClock, load_definition

T0 = 1_700_000_000.0

Function = Callable[[Any], TaskReply]


class Bench:
    """An engine in virtual time; `calls` holds (seconds since the start, function, payload)."""

    def __init__(self, functions: Mapping[str, Function], *, seed: int = 1, store: Store | None = None) -> None:
        self.clock = VirtualClock(T0)
        self.calls: list[tuple[float, str, Any]] = []
        self.log: list[TransitionEvent] = []
        self._functions = functions
        self.engine = Engine(clock=self.clock, seed=seed, invoke=self._invoke, store=store)
        self.engine.on_transition = self.log.append

    def machine(self, states: Mapping[str, Any], *, name: str = "machine", **top: Any) -> None:
        """Register a machine that starts at its first state; `${x}` stands for the function x."""
        definition = {"StartAt": next(iter(states)), "States": dict(states), **top}
        own = {function: function for function in self._functions}
        self.engine.register(load_definition(definition, name=name, substitutions=own))

    def run(self, input: Mapping[str, Any] | None = None) -> Any:
        """Start one execution of `machine`, run it to its end and return it."""
        self.engine.start("machine", "one", input or {})
        self.engine.run_until_idle()
        return self.engine.describe("machine", "one")

    def seconds(self) -> float:
        """Return the virtual seconds since the start."""
        return self.clock.time() - T0

    def _invoke(self, function: str, payload: Any) -> TaskReply:
        self.calls.append((self.seconds(), function, payload))
        return self._functions[function](payload)


def script(*replies: TaskReply) -> Function:
    """Return a function that gives these answers in turn; the last one repeats."""
    left = list(replies)
    return lambda payload: left.pop(0) if len(left) > 1 else left[0]


PATIENCE_SECONDS = 20.0


def pause(seconds: float) -> None:
    """Let real time pass."""
    time.sleep(seconds)


def until(true: Callable[[], bool], patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is so; an AssertionError when it never is."""
    deadline = time.monotonic() + patience_seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
