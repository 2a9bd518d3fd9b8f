"""`ports.FailedExecutions` of one process: what the engine says of failed executions, kept until it is dealt with.

Invariant: a message that was handed out is handed out again after HIDDEN_SECONDS unless it was taken off, as by the
queue of the deployed stack. Nothing is kept over a restart: a lease's own due time finds what was lost.
"""

import threading
from collections.abc import Callable, Sequence

from gpulease.ports import FailedExecution

from gpulease_local.asl.execution import Execution

HIDDEN_SECONDS = 330.0
MOST_MESSAGES = 10


class LocalFailedExecutions:
    """`now`: seconds of the engine's clock. Safe for threads."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[float, FailedExecution]] = {}
        """By receipt: when it may be handed out, and what it says."""
        self._sent = 0

    def ended(self, execution: Execution) -> None:
        """Take in that an execution failed; one that was not started for a lease is no message."""
        lease_id = execution.input.get("lease_id") if isinstance(execution.input, dict) else None
        if isinstance(lease_id, str):
            self.send(execution.name, lease_id)

    def send(self, name: str, lease_id: str) -> None:
        """Put a message into the queue."""
        with self._lock:
            self._sent += 1
            receipt = str(self._sent)
            self._waiting[receipt] = (self._now(), FailedExecution(receipt, name, lease_id))

    def receive(self) -> Sequence[FailedExecution]:
        """See `ports.FailedExecutions.receive`."""
        with self._lock:
            now = self._now()
            seen = [message for visible_at, message in self._waiting.values() if visible_at <= now][:MOST_MESSAGES]
            for message in seen:
                self._waiting[message.receipt] = (now + HIDDEN_SECONDS, message)
            return seen

    def done(self, message: FailedExecution) -> None:
        """See `ports.FailedExecutions.done`."""
        with self._lock:
            self._waiting.pop(message.receipt, None)
