"""What spot machines cost now, zone by zone: DescribeSpotPriceHistory, one call per region for all types asked for.

A price tells what a launch would pay at this moment; what it may pay at most is said in the launch itself. So a price
that cannot be read holds up nobody: then the catalogue's stays, and that is logged.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotPriceHistory.html (asked from now on, it
tells the last change before, which is the price in effect).
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation

from gpulease.errors import ProviderError
from gpulease.ports import Clock, Log
from gpulease.providers.aws.client import PROVIDER, AwsClient
from gpulease.providers.aws.shared import Shared

FRESH_SECONDS = 300.0
"""Spot prices change slowly, some times a day."""
USABLE_SECONDS = 1800.0
PAGE = 1000
TYPES_PER_CALL = 100
_PRODUCT = "Linux/UNIX"

Prices = Mapping[str, Mapping[str, Decimal]]
"""Type to zone to US dollars per hour of compute."""


class SpotPrices:
    """Spot prices of one account. Raises nothing of the provider's."""

    def __init__(self, client: AwsClient, shared: Shared, clock: Clock, log: Log) -> None:
        self._client = client
        self._shared = shared
        self._clock = clock
        self._log = log

    def read(self, region: str, plans: Iterable[str]) -> Prices:
        """As of this moment."""
        return self._or_none(region, lambda: self._read(region, sorted(set(plans))))

    def known(self, region: str, plans: Iterable[str]) -> Prices:
        """As of the last minutes, read once for all who ask for the same types."""
        types = sorted(set(plans))
        named = types[0] if len(types) == 1 else hashlib.sha256(" ".join(types).encode()).hexdigest()[:20]

        def shared() -> Prices:
            text = self._shared.read(
                f"spot/{region}/{named}",
                lambda: json.dumps(self._read(region, types), default=str),
                fresh_seconds=FRESH_SECONDS,
                usable_seconds=USABLE_SECONDS,
            )
            found = json.loads(text)
            return {plan: {zone: Decimal(price) for zone, price in zones.items()} for plan, zones in found.items()}

        return self._or_none(region, shared) if types else {}

    def _or_none(self, region: str, read: Callable[[], Prices]) -> Prices:
        try:
            return read()
        except ProviderError as error:
            self._log.warning("spot_prices_not_read", provider=PROVIDER, region=region, reason=str(error))
            return {}

    def _read(self, region: str, types: list[str]) -> Prices:
        now = self._clock.now()
        latest: dict[tuple[str, str], tuple[str, Decimal]] = {}
        for first in range(0, len(types), TYPES_PER_CALL):
            listed = self._client.listing(
                region,
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=types[first : first + TYPES_PER_CALL],
                ProductDescriptions=[_PRODUCT],
                StartTime=now,
                EndTime=now,
                MaxResults=PAGE,
            )
            for each in listed:
                price = _price(each.get("SpotPrice"))
                if price is None:
                    continue
                place = (str(each.get("InstanceType", "")), str(each.get("AvailabilityZone", "")))
                told = str(each.get("Timestamp", ""))
                if place not in latest or latest[place][0] < told:
                    latest[place] = (told, price)
        found: dict[str, dict[str, Decimal]] = {}
        for (plan, zone), (_, price) in sorted(latest.items()):
            found.setdefault(plan, {})[zone] = price
        return found


def _price(text: object) -> Decimal | None:
    try:
        price = Decimal(str(text))
    except InvalidOperation:
        return None
    return price if price.is_finite() and price > 0 else None
