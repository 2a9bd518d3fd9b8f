"""Offers as tables, for `offers` and for `up --dry-run`."""

import sys
from collections.abc import Sequence

from gpulease_cli.app import App
from gpulease_cli.tables import Column, print_table
from gpulease_cli.text import duration, number, rate
from gpulease_cli.views import CatalogueView, OfferView

_COLUMNS = (
    Column("GPU", 0),
    Column("MEM/GPU", 3, right=True),
    Column("WHERE", 1),
    Column("PLAN", 2, least=12),
    Column("KIND", 6),
    Column("VCPUS", 7, right=True),
    Column("MEMORY", 8, right=True),
    Column("DISK", 9, right=True),
    Column("$/H", 0, right=True),
    Column("SPOT", 5),
    Column("STOCK", 4),
)
_STOCK = {True: "yes", False: "no", None: "?"}


def print_offers(
    app: App,
    offers: Sequence[OfferView],
    *,
    most: int | None = None,
    total: int = 0,
    numbered: bool = False,
    stderr: bool = False,
) -> None:
    """One line per offer. `most` limits a terminal only; a pipe gets all. `total`: how many there are at the API."""
    stream = sys.stderr if stderr else sys.stdout
    limit = most if most is not None and stream.isatty() else len(offers)
    rows = [_row(offer) for offer in offers[:limit]]
    columns: Sequence[Column] = _COLUMNS
    if numbered:
        columns = (Column("TRY", 1, right=True), *_COLUMNS)
        rows = [[str(i), *row] for i, row in enumerate(rows, 1)]
    print_table(app.console(stderr=stderr), columns, rows)
    if limit < len(offers):
        app.note(f"{len(offers) - limit} more; --all shows them")
    elif total > len(offers):
        app.note(f"{total - len(offers)} more at the API; filters narrow the list")


def print_catalogue(app: App, catalogue: Sequence[CatalogueView]) -> None:
    """How old the prices are, beside the result."""
    if catalogue:
        app.note("Catalogue: " + ", ".join(f"{item.provider} {duration(item.age_seconds)} old" for item in catalogue))


def _row(offer: OfferView) -> list[str]:
    return [
        offer.gpu,
        f"{number(offer.gpu_memory_gib)} GiB",
        offer.place,
        offer.plan,
        offer.kind,
        str(offer.vcpus),
        f"{number(offer.memory_gib)} GiB",
        f"{offer.disk_gb} GB",
        rate(offer.price_per_hour_usd),
        "spot" if offer.spot else "-",
        _STOCK[offer.in_stock],
    ]
