"""Tables that fit: on a narrow terminal the least important columns go first; into a pipe goes everything."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
_STYLES = {
    "running": "green",
    "requested": "cyan",
    "provisioning": "cyan",
    "resuming": "cyan",
    "pausing": "yellow",
    "paused": "yellow",
    "releasing": "yellow",
    "available": "green",
    "in_use": "green",
    "creating": "cyan",
    "removing": "yellow",
    "removed": "dim",
    "released": "dim",
    "error": "red",
    "warning": "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` 0 stays longest. A column that may be cut keeps at least `least` characters (0 = never cut)."""

    title: str
    rank: int
    right: bool = False
    least: int = 0


def style_of(word: str) -> str:
    """The colour of a state or level; empty for others."""
    return _STYLES.get(word, "")


def print_table(console: "Console", columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Write the rows under their titles, one line per row."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    widths = [max([cell_len(column.title), *(cell_len(row[i]) for row in rows)]) for i, column in enumerate(columns)]
    shown = _fit(columns, widths, console.width)
    for number, row in enumerate([[column.title for column in columns], *rows]):
        line = Text()
        for i in shown:
            text = row[i]
            if cell_len(text) > widths[i]:
                text = set_cell_size(text, widths[i] - 3).rstrip() + "..."
            blank = " " * (widths[i] - cell_len(text))
            style = "bold" if number == 0 else style_of(text)
            line.append(blank + text if columns[i].right else text + blank, style)
            line.append(" " * _GAP)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop", crop=True)


def _fit(columns: Sequence[Column], widths: list[int], available: int) -> list[int]:
    """Indexes of the columns to show; narrows `widths` of those that may be cut."""
    shown = list(range(len(columns)))
    while len(shown) > 1:
        over = sum(widths[i] for i in shown) + _GAP * (len(shown) - 1) - available
        if over <= 0:
            return shown
        for i in shown:
            spare = widths[i] - columns[i].least
            if columns[i].least and spare >= over:
                widths[i] -= over
                return shown
        shown.remove(max(shown, key=lambda i: columns[i].rank))
    return shown
