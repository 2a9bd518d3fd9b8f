"""Where and how a function dies in a case."""

import re
from collections.abc import Callable
from dataclasses import dataclass


class Killed(BaseException):
    """The function's process is gone; nothing in it may catch this."""


@dataclass
class Kill:
    """A call of a step to the provider at which the function dies, before it is sent or after it was carried out.

    With an `action`, that is done instead, and nobody dies.
    """

    function: str = ".*"
    method: str = ".*"
    path: str = ".*"
    sent: bool = True
    times: float = 1
    skip: int = 0
    error: str = "Sandbox.Timedout"
    """What the state machine is told."""
    after_seconds: float = 0.0
    """How long the function still hangs before it dies."""
    action: Callable[[], object] | None = None

    def falls_on(self, function: str, method: str, path: str) -> bool:
        """Whether it strikes now; counts."""
        pairs = ((self.function, function), (self.method, method), (self.path, path))
        if self.times <= 0 or not all(re.fullmatch(pattern, text) for pattern, text in pairs):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True
