"""What the demo shows: a live table on a terminal, plain lines elsewhere, and the bill at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TextIO

from gpulease_cli.views import EventView, LeaseView
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gpulease_local.books import Comparison

_STYLES = {"running": "green", "releasing": "yellow", "released": "dim", "provisioning": "cyan"}


@dataclass
class Row:
    """One lease as it is shown."""

    name: str
    story: str
    lease: LeaseView | None = None
    events: list[EventView] = field(default_factory=list)


class View:
    """Shows rows while they change. `terminal` None: as the stream is."""

    def __init__(self, out: TextIO, started: datetime, terminal: bool | None = None) -> None:
        self.console = Console(file=out, force_terminal=terminal, highlight=False, soft_wrap=True)
        self._started = started
        self._live: Live | None = None
        self._printed: dict[str, int] = {}
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8)
            self._live.start()

    def show(self, rows: Sequence[Row], now: datetime) -> None:
        """The present state of all rows."""
        if self._live is not None:
            self._live.update(self._table(rows, now))
            return
        for row in rows:
            for event in row.events[self._printed.get(row.name, 0) :]:
                self.console.print(f"{self._clock(event.at or now)}  {row.name:<9} {event.text}", markup=False)
            self._printed[row.name] = len(row.events)

    def end(self) -> None:
        """Leave the last table standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def bill(self, found: Comparison, happened: Mapping[str, str | None]) -> None:
        """Per lease: what happened, and both sides' cost."""
        table = Table(title="The bill, and the simulated provider's own book beside our ledger", title_justify="left")
        for heading in ("lease", "what went wrong", "end"):
            table.add_column(heading)
        for heading in ("machines", "ledger", "its book"):
            table.add_column(heading, justify="right")
        for bill in found.bills:
            story = happened.get(bill.name) or "NOT AS PLANNED"
            costs = (f"${bill.ledger_usd:.3f}", f"${bill.book_usd:.3f}")
            table.add_row(bill.name, story, str(bill.state), str(bill.machines), *costs)
        self.console.print()
        if self.console.is_terminal:
            self.console.print(table)
        else:
            for bill in found.bills:
                story = happened.get(bill.name) or "NOT AS PLANNED"
                self.console.print(
                    f"{bill.name:<9} {bill.state}; {story}; machines {bill.machines}, "
                    f"ledger ${bill.ledger_usd:.3f}, provider's book ${bill.book_usd:.3f}",
                    markup=False,
                )

    def say(self, text: str) -> None:
        """One plain line."""
        self.console.print(text, markup=False)

    def _clock(self, at: datetime) -> str:
        seconds = max(0, int((at - self._started).total_seconds()))
        return f"{seconds // 60:>3}:{seconds % 60:02}"

    def _table(self, rows: Sequence[Row], now: datetime) -> Table:
        table = Table(title=f"simulated time {self._clock(now)} (minutes:seconds)", title_justify="left", expand=True)
        for heading in ("lease", "state", "$/h", "so far"):
            table.add_column(heading, no_wrap=True, justify="left" if heading in ("lease", "state") else "right")
        table.add_column("last event", no_wrap=True, overflow="ellipsis", ratio=1)
        for row in rows:
            lease = row.lease
            state = "" if lease is None else lease.state
            price = "" if lease is None else f"{lease.price_per_hour_usd or 0:.3f}"
            cost = "" if lease is None else f"{lease.cost_so_far_usd or 0:.2f}"
            last = row.events[-1].text if row.events else row.story
            style = _STYLES.get(state, "")
            table.add_row(row.name, f"[{style}]{state}[/]" if style else state, price, cost, _plain(last))
        return table


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
