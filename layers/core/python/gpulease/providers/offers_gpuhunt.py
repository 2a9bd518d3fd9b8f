"""Offers of all providers through one catalogue interface, gpuhunt's. Used by `refresh_offers` alone: gpuhunt is heavy.

- gpuhunt is fed, never let loose: its own providers and downloads have no timeouts, drop plans they do not know and ask
  the network at every query. Here each adapter is asked once, within a deadline, and its offers are what it is fed.
- A provider that fails, is late or shows nothing at all gives no snapshot, so that the stored one stays in use.
- The result is in a fixed order: gpuhunt merges by price without a rule for ties.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from queue import Empty, SimpleQueue
from threading import Thread

from gpuhunt import AcceleratorVendor, Catalog, CatalogItem, CPUArchitecture, QueryFilter, find_accelerators  # type: ignore[import-untyped]
from gpuhunt.providers.base import OnlineProvider  # type: ignore[import-untyped]

from gpulease.domain.offer import Offer, OfferSnapshot, PlanKind
from gpulease.errors import GpuleaseError
from gpulease.ports import Clock, Log, Provider

DEADLINE_SECONDS = 240.0
"""For one provider; Vultr's 40 calls take about a minute at the latencies measured (0.9 to 2 s)."""

VESSEL = "vultr"
"""Under which name every provider's offers are fed, each into a catalogue of its own: gpuhunt knows a fixed set of
names, and for some of them (`aws`) it would ask files of its own that were never loaded."""

_ARCHITECTURES = {"x86_64": CPUArchitecture.X86, "arm64": CPUArchitecture.ARM}


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of one round."""

    snapshots: tuple[OfferSnapshot, ...]
    failures: Mapping[str, str]
    """Provider to why its old offers stay in use."""


def collect(
    adapters: Sequence[Provider], *, clock: Clock, log: Log, deadline_seconds: float = DEADLINE_SECONDS
) -> Collected:
    """Ask each adapter for its offers (one account per provider is enough) and give them back as snapshots.

    Never raises for a provider's failure: it is logged and named in `failures`.
    """
    failures: dict[str, str] = {}
    read: dict[str, Catalog] = {}
    for adapter in adapters:
        if adapter.name in read:
            continue
        result = _offers_in_time(adapter, deadline_seconds)
        if isinstance(result, str):
            failures[adapter.name] = result
            log.warning("offers_not_refreshed", provider=adapter.name, why=result)
            continue
        failures.pop(adapter.name, None)
        read[adapter.name] = Catalog(balance_resources=False, auto_reload=False)
        read[adapter.name].add_provider(_fed(adapter.name, result, log))
    as_of = clock.now()
    return Collected(
        tuple(OfferSnapshot(provider=name, as_of=as_of, offers=query(catalog, name)) for name, catalog in read.items()),
        failures,
    )


def query(catalog: Catalog, provider: str) -> tuple[Offer, ...]:
    """All GPU offers of a provider in the catalogue: by price, then by key."""
    items = catalog.query(provider=VESSEL, min_gpu_count=1)
    offers = {offer.key: offer for item in items for offer in [offer_of_item(replace(item, provider=provider))]}
    return tuple(sorted(offers.values(), key=lambda offer: (offer.price_per_hour_usd, offer.key)))


def item_of_offer(offer: Offer) -> CatalogItem | None:
    """An offer in gpuhunt's terms; None when gpuhunt does not know whose GPU it is (it wants a vendor)."""
    vendor = _vendor(offer.gpu_model)
    architecture = _ARCHITECTURES.get(offer.cpu_arch)
    if vendor is None or architecture is None:
        return None
    return CatalogItem(
        provider=offer.provider,
        instance_name=offer.plan,
        location=offer.region,
        price=float(offer.price_per_hour_usd),
        cpu=offer.vcpus,
        memory=offer.memory_gib,
        gpu_count=offer.gpu_count,
        gpu_name=offer.gpu_model,
        gpu_memory=offer.gpu_memory_gib,
        spot=offer.spot,
        disk_size=float(offer.disk_gb),
        gpu_vendor=vendor,
        cpu_arch=architecture,
        # What a catalogue item has no field for; the price also exactly.
        provider_data={
            "kind": offer.kind.value,
            "price_per_hour_usd": str(offer.price_per_hour_usd),
            "private_network": offer.private_network,
            "zone": offer.zone,
            "max_disk_gb": offer.max_disk_gb,
            "disk_usd_per_gb_month": str(offer.disk_usd_per_gb_month),
        },
    )


def offer_of_item(item: CatalogItem) -> Offer:
    """A catalogue item as an offer. Items not fed by us have no extra data: a VM at the price shown."""
    extra = item.provider_data
    private_network = extra.get("private_network")
    return Offer(
        provider=item.provider,
        region=item.location,
        plan=item.instance_name,
        kind=PlanKind(str(extra.get("kind", PlanKind.VM.value))),
        gpu_model=item.gpu_name or "",
        gpu_count=item.gpu_count,
        gpu_memory_gib=item.gpu_memory or 0.0,
        vcpus=item.cpu,
        memory_gib=item.memory,
        disk_gb=int(item.disk_size or 0),
        price_per_hour_usd=Decimal(str(extra.get("price_per_hour_usd", item.price))),
        spot=item.spot,
        cpu_arch=next(name for name, known in _ARCHITECTURES.items() if known is item.cpu_arch),
        private_network=private_network if isinstance(private_network, bool) else None,
        zone=str(extra.get("zone", "")),
        max_disk_gb=int(str(extra.get("max_disk_gb", 0))),
        disk_usd_per_gb_month=Decimal(str(extra.get("disk_usd_per_gb_month", 0))),
    )


def _offers_in_time(adapter: Provider, deadline_seconds: float) -> list[Offer] | str:
    """The adapter's offers, or why there are none. A late answer is dropped; its thread ends with its last timeout."""
    answers: SimpleQueue[list[Offer] | BaseException] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(adapter.offers())
        except BaseException as exc:  # carried to the waiting thread and judged there, whatever it is
            answers.put(exc)

    Thread(target=ask, name=f"offers-{adapter.name}", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline_seconds)
    except Empty:
        return f"no answer within {deadline_seconds:g} s"
    if isinstance(answer, GpuleaseError):
        return str(answer)
    if isinstance(answer, BaseException):
        raise answer
    # A provider without one GPU is less likely than an answer that hides them (Vultr, asked without a key, does that).
    return answer or "the provider shows no offers at all"


def _fed(provider: str, offers: Sequence[Offer], log: Log) -> OnlineProvider:
    """An online provider of gpuhunt that holds these offers."""
    items: list[CatalogItem] = []
    for offer in offers:
        item = item_of_offer(offer)
        if item is None:
            log.warning("offer_not_in_catalogue", provider=provider, plan=offer.plan, gpu=offer.gpu_model)
        else:
            items.append(replace(item, provider=VESSEL))

    class Fed(OnlineProvider):  # type: ignore[misc]  # gpuhunt ships no types
        NAME = VESSEL

        @classmethod
        def from_env(cls) -> "Fed":
            return cls()

        def get(
            self,
            query_filter: QueryFilter | None = None,
            balance_resources: bool = True,
            apply_filter: bool = False,
        ) -> list[CatalogItem]:
            return list(items)

    return Fed()


def _vendor(model: str) -> AcceleratorVendor | None:
    known = find_accelerators(names=[model])
    return known[0].vendor if known else None
