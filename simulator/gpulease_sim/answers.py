"""What a simulated API gives back: an answer, or a connection that ends without one."""

import json
from typing import Any, NamedTuple


class SimResponse(NamedTuple):
    """An answer; `elapsed_seconds` is how long the call took on the simulator's clock."""

    status: int
    headers: dict[str, str]
    body: bytes
    elapsed_seconds: float = 0.0

    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


class ConnectionCut(Exception):
    """No answer came: the call was carried out or not, and the connection is gone after `elapsed_seconds`."""

    def __init__(self, elapsed_seconds: float, executed: bool) -> None:
        super().__init__(f"connection cut after {elapsed_seconds} s")
        self.elapsed_seconds = elapsed_seconds
        self.executed = executed
