"""What AWS sells where: the catalogue's GPU types, in the zones that offer them to this account.

- An offer's price is all that its machine costs while it runs: compute, root disk and public address.
- A spot offer costs what its zone asks now; the catalogue knows a region's price only, and is hours old.
- Nobody tells stock. An offer is out of stock only where its zone does not have its type at all; whether there is
  capacity, the create call tells.
"""

import json
from collections.abc import Callable, Iterable, Sequence

from gpulease.domain.offer import Offer, PlanKind
from gpulease.errors import ProviderAuthFailed, ProviderError
from gpulease.ports import Log
from gpulease.providers.aws.client import PROVIDER, AwsClient, rejected
from gpulease.providers.aws.options import AwsOptions, CatalogueRow
from gpulease.providers.aws.prices import MAX_VOLUME_GB, ROOT_DISK_GB, besides_compute_per_hour, per_gb_month
from gpulease.providers.aws.shared import Shared
from gpulease.providers.aws.spot_prices import Prices, SpotPrices

FRESH_SECONDS = 3600.0
USABLE_SECONDS = 86400.0
FILTER_VALUES = 200
"""The most that one filter takes."""


class Shop:
    """Offers of one account."""

    def __init__(
        self,
        client: AwsClient,
        options: AwsOptions,
        shared: Shared,
        spot_prices: SpotPrices,
        catalogue: Callable[[], Sequence[CatalogueRow]],
        log: Log,
    ) -> None:
        self._client = client
        self._options = options
        self._shared = shared
        self._spot_prices = spot_prices
        self._catalogue = catalogue
        self._log = log

    def offers(self) -> list[Offer]:
        """Per zone, on-demand and spot. A region that does not answer is left out and logged, unless it is the only
        one. Raises ProviderRejected where no region is configured."""
        if not self._options.regions:
            raise rejected("no AWS region is configured", "")
        rows = self._catalogue()
        found: dict[str, Offer] = {}
        failed: list[ProviderError] = []
        for region in self._options.regions:
            here = [row for row in rows if row.region == region]
            try:
                zones = self._read_zones(region, sorted({row.plan for row in here}))
            except ProviderAuthFailed:
                raise
            except ProviderError as error:
                self._log.warning("region_not_offered", provider=PROVIDER, region=region, reason=str(error))
                failed.append(error)
                continue
            spot = {row.plan for row in here if row.spot and zones.get(row.plan)}
            prices = self._spot_prices.read(region, spot) if spot else {}
            for row in here:
                for zone in self._usable(zones.get(row.plan, ())):
                    offer = _priced(_offer(row, zone), prices)
                    found[offer.key] = offer
        if failed and len(failed) == len(self._options.regions):
            raise failed[0]
        return [found[key] for key in sorted(found)]

    def live(self, offer: Offer) -> Offer:
        """`in_stock` is False where the zone does not have the type, else not known; the price of a spot machine is
        that of now, any other stays."""
        text = self._shared.read(
            f"offerings/{offer.region}/{offer.plan}",
            lambda: json.dumps(self._read_zones(offer.region, [offer.plan]).get(offer.plan, [])),
            fresh_seconds=FRESH_SECONDS,
            usable_seconds=USABLE_SECONDS,
        )
        offered = offer.zone in self._usable(json.loads(text))
        return self.priced([offer])[0].model_copy(update={"in_stock": None if offered else False})

    def priced(self, offers: Sequence[Offer]) -> list[Offer]:
        """Offers of one region with spot prices as of now."""
        plans = {offer.plan for offer in offers if offer.spot}
        prices = self._spot_prices.known(offers[0].region, plans) if plans else {}
        return [_priced(offer, prices) for offer in offers]

    def _usable(self, zones: Iterable[str]) -> list[str]:
        """Zones in which machines can stand."""
        subnets = self._options.subnets
        return [zone for zone in zones if not subnets or zone in subnets]

    def _read_zones(self, region: str, plans: list[str]) -> dict[str, list[str]]:
        """Type to the zones of the region that offer it."""
        zones: dict[str, set[str]] = {}
        for first in range(0, len(plans), FILTER_VALUES):
            listed = self._client.listing(
                region,
                "describe_instance_type_offerings",
                "InstanceTypeOfferings",
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": plans[first : first + FILTER_VALUES]}],
            )
            for each in listed:
                zones.setdefault(str(each["InstanceType"]), set()).add(str(each["Location"]))
        return {plan: sorted(zones[plan]) for plan in sorted(zones)}


def _priced(offer: Offer, prices: Prices) -> Offer:
    price = prices.get(offer.plan, {}).get(offer.zone) if offer.spot else None
    if price is None:
        return offer
    whole = price + besides_compute_per_hour(offer.region, offer.disk_gb)
    return offer.model_copy(update={"price_per_hour_usd": whole})


def _offer(row: CatalogueRow, zone: str) -> Offer:
    return Offer(
        provider=PROVIDER,
        region=row.region,
        plan=row.plan,
        kind=PlanKind.VM,
        gpu_model=row.gpu_model,
        gpu_count=row.gpu_count,
        gpu_memory_gib=row.gpu_memory_gib,
        vcpus=row.vcpus,
        memory_gib=row.memory_gib,
        disk_gb=ROOT_DISK_GB,
        max_disk_gb=MAX_VOLUME_GB,
        disk_usd_per_gb_month=per_gb_month(row.region),
        price_per_hour_usd=row.price_per_hour_usd + besides_compute_per_hour(row.region, ROOT_DISK_GB),
        spot=row.spot,
        cpu_arch=row.cpu_arch,
        private_network=True,
        zone=zone,
    )
