"""Counts what one simulated stack would be charged for: it stands where the functions meet providers, logs and time.

CPU is measured in this process and only while our own code runs: what the simulated provider, SQLite and the meter
itself use is left out. Nothing here changes what happens. The stores are in `metered_stores`.
"""

import io
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aws_lambda_powertools import Logger
from gpulease.domain.event import Fact
from gpulease.providers.http import RawResponse, Transport


class Meter:
    """What was used since the last `take`. One thread."""

    def __init__(self) -> None:
        self.use: Counter[str] = Counter()
        self.detail: Counter[str] = Counter()
        """Has no price: `state <name>` entered, and of each function `calls`, `cpu_ms` and `billed_ms`."""
        self.database_calls = 0
        self.provider_calls = 0
        self.log_lines = 0
        self._outside_ns = 0
        self._depth = 0

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What runs now is not the function's own work."""
        began = time.process_time_ns()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._outside_ns += time.process_time_ns() - began

    def own_cpu_ns(self) -> int:
        """The process's CPU time so far without what was outside."""
        return time.process_time_ns() - self._outside_ns

    def wrote(self, units: float, calls: int = 1) -> None:
        """A write of DynamoDB."""
        self.use["write_units"] += units  # type: ignore[assignment]
        self.database_calls += calls

    def read(self, units: float, calls: int = 1) -> None:
        """A read of DynamoDB."""
        self.use["read_units"] += units  # type: ignore[assignment]
        self.database_calls += calls

    def take(self) -> Counter[str]:
        """What was used; counting starts again, also of the detail."""
        taken, self.use, self.detail = self.use, Counter(), Counter()
        return taken


class MeteredTransport:
    """`providers.http.Transport` whose CPU is not ours (it is the simulator's)."""

    def __init__(self, meter: Meter, inner: Transport) -> None:
        self._meter = meter
        self._inner = inner

    def send(self, method: str, url: str, **how: Any) -> RawResponse:
        """One call."""
        self._meter.provider_calls += 1
        with self._meter.outside():
            return self._inner.send(method, url, **how)


_STREAM = io.StringIO()
_LOGGER = Logger(service="gpumeter", use_rfc3339=True, level="INFO", stream=_STREAM)
"""The library keeps one logger per service and process. The name is as long as the deployed one's."""


class MeteredLog:
    """`ports.Log` and `ports.Notifier` that write with the deployed logger, and count the bytes."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def info(self, event: str, **facts: object) -> None:
        """One line."""
        _LOGGER.info(event, extra=facts)
        self._count()

    def warning(self, event: str, **facts: object) -> None:
        """One line."""
        _LOGGER.warning(event, extra=facts)
        self._count()

    def error(self, event: str, **facts: object) -> None:
        """One line."""
        _LOGGER.error(event, extra=facts)
        self._count()

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        """One line, and a message to a topic (half a dollar per million: not counted)."""
        self.error("alarm", alarm=name, text=text, **facts)

    def _count(self) -> None:
        text = _STREAM.getvalue()
        _STREAM.seek(0)
        _STREAM.truncate()
        self._meter.use["log_bytes"] += len(text.encode()) + LINE_OVERHEAD_BYTES + TRACE_ID_BYTES
        self._meter.log_lines += 1


LINE_OVERHEAD_BYTES = 26
"""That CloudWatch adds to each line when it counts (https://aws.amazon.com/cloudwatch/pricing/)."""
TRACE_ID_BYTES = 57
"""`"xray_trace_id":"1-…"`, which the logger adds where there is a trace."""
