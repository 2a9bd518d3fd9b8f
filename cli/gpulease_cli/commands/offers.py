"""`gpulease offers`: what can be rented."""

from decimal import Decimal
from typing import Any

import click

from gpulease_cli.app import App
from gpulease_cli.options import api_options, json_option, offer_options
from gpulease_cli.request import from_options, query

_MOST = 1000
"""As many as the API gives at once."""


@click.command("offers")
@offer_options
@click.option("--all", "all_offers", is_flag=True, help="All lines; without it at most 40 are shown on a terminal.")
@json_option
@api_options
def command(app: App, all_offers: bool, as_json: bool, **values: Any) -> None:
    """Show what can be rented, the cheapest first. Stock is as last seen, never a promise.

    \b
    gpulease offers --gpu A100 --gpu H100 --max-price 4
    gpulease offers --min-gpu-memory 40 --region ewr --kind vm
    gpulease offers --json | jq '.offers[0]'
    """
    from gpulease_cli.offer_tables import print_catalogue, print_offers

    found = app.client().offers([*query(from_options(values)), ("limit", str(_MOST))])
    if as_json:
        app.print_json(found.raw)
        return
    offers = sorted(found.offers, key=lambda offer: (offer.price_per_hour_usd or Decimal("Infinity"), offer.place))
    if not offers:
        app.say("No offer fits.")
    else:
        print_offers(app, offers, most=None if all_offers else 40, total=found.total)
    print_catalogue(app, found.catalogue)
