"""Shows leases while somebody waits for them: drawn in place on a terminal, else one line per change.

All of it goes to stderr; stdout is for the result.
"""

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gpulease_cli import words
from gpulease_cli.app import App
from gpulease_cli.tables import style_of
from gpulease_cli.text import rate
from gpulease_cli.views import LeaseView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class Progress:
    """Lines. Each fact is told once: a state, a new attempt, its failure, a notice, a warning, what is waited for."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._told: set[str] = set()
        self._last: dict[str, tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def know(self, leases: Sequence[LeaseView], now: datetime) -> Self:
        """What was told of these leases when they were asked for is no news."""
        for lease in leases:
            self._told.update(f"{lease.id} {line}" for line in _news(lease, now))
        return self

    def note(self, line: str) -> None:
        """Something beside the leases, such as an API that does not answer."""
        self._app.note(line)

    def show(self, leases: Sequence[LeaseView], now: datetime) -> None:
        """The leases as they are now."""
        for lease in leases:
            self._tell_news(lease, now)
            seen = (
                lease.state,
                lease.waiting_for,
                lease.offer.place + lease.offer.plan if lease.offer else "",
                *(item.id for item in lease.still_billed if lease.state == "releasing"),
            )
            if self._last.get(lease.id) != seen:
                self._last[lease.id] = seen
                self._changed(lease, now)

    def _tell_news(self, lease: LeaseView, now: datetime) -> None:
        for line in _news(lease, now):
            if (key := f"{lease.id} {line}") not in self._told:
                self._told.add(key)
                self.note(f"{lease.label}: {line}")

    def _changed(self, lease: LeaseView, now: datetime) -> None:
        self.note(words.headline(lease, now))


def _news(lease: LeaseView, now: datetime) -> list[str]:
    failed = (words.attempt(item, lease.state, now) for item in lease.attempts if item.failed)
    notices = (f"note: {text}" for text in lease.notices)
    warnings = (f"warning: {text}" for text in lease.warnings)
    return [*failed, *notices, *warnings]


class LiveProgress(Progress):
    """The present state drawn in place, the news as lines above it."""

    def __init__(self, app: App) -> None:
        from rich.live import Live

        super().__init__(app)
        self._console: Console = app.console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def note(self, line: str) -> None:
        self._console.print(line)

    def show(self, leases: Sequence[LeaseView], now: datetime) -> None:
        super().show(leases, now)
        self._live.update(self._drawn(leases, now), refresh=True)

    def _changed(self, lease: LeaseView, now: datetime) -> None:
        # Drawn below, with a time that goes on; a line for each would say it twice.
        return None

    def _drawn(self, leases: Sequence[LeaseView], now: datetime) -> "Table":
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for lease in leases:
            head, *rest = words.headline(lease, now).split("; ")
            grid.add_row(Text(lease.label, "bold"), Text(head.removeprefix(f"{lease.label}: "), style_of(lease.state)))
            for part in rest:
                grid.add_row("", Text(part))
            if lease.attempts and not lease.attempts[-1].failed and len(lease.attempts) > 1:
                current = lease.attempts[-1]
                grid.add_row("", Text(f"attempt {current.number}, {rate(current.price_per_hour_usd)}/h"))
        return grid


def progress(app: App) -> Progress:
    """What fits the place where stderr goes."""
    return LiveProgress(app) if app.live else Progress(app)
