"""What Vultr sells and what it has right now."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta

from gpulease.domain.offer import Offer, PlanKind
from gpulease.errors import ProviderError, ProviderFacts, ProviderRejected
from gpulease.ports import Clock, Log, SharedReads
from gpulease.providers.vultr.catalog import PROVIDER, offers_of, price_in
from gpulease.providers.vultr.client import VultrClient
from gpulease.providers.vultr.models import MetalPlan, Plan, Region
from gpulease.sharing import read_through

PLANS_FRESH_SECONDS = 60.0
"""How long a plan list serves the next question about a price, in all workers together."""
PLANS_USABLE_SECONDS = 600.0
"""While another worker reads the plans, older ones have to do."""
STOCK_FRESH_SECONDS = 15.0
"""How long a region's stock serves the next one who chooses. Whether a create works, only the create tells."""
STOCK_USABLE_SECONDS = 120.0

PAUSE_BETWEEN_REGIONS_SECONDS = 0.05
"""Keeps 33 questions in a row below the limit of 30 calls per second and address."""

_AVAILABILITY_TYPES = frozenset({"vdc", "vhp", "vhf", "vc2", "voc", "vcg", "vdg", "vdm", "vx1"})


class Stock:
    """Plans and stock of one account."""

    def __init__(
        self,
        client: VultrClient,
        clock: Clock,
        log: Log,
        sleep: Callable[[float], None],
        shared: SharedReads | None = None,
        *,
        account: str = PROVIDER,
    ) -> None:
        self._client = client
        self._shared = shared
        self._account = account
        self._sleep = sleep
        self._clock = clock
        self._log = log
        self._read_at: datetime | None = None
        self._plans: dict[tuple[PlanKind, str], Plan | MetalPlan] = {}

    def offers(self) -> list[Offer]:
        """All GPU plans whose GPUs are known, in the regions that they list or that have whole-GPU VMs in stock."""
        offers, skipped = offers_of(self._all_plans().values(), self._whole_gpu_stock())
        for each in skipped:
            self._log.warning("gpu_plan_not_offered", provider=PROVIDER, plan=each.plan, why=each.why)
        return offers

    def live(self, offer: Offer) -> Offer:
        """The offer with today's price and stock. Raises ProviderRejected when there is no such plan or region."""
        plan = self.plan(offer.plan, offer.kind)
        if plan is None:
            raise ProviderRejected(ProviderFacts(PROVIDER, f"there is no plan {offer.plan!r}", region=offer.region))
        # What is sold as preemptible only cannot be ordered: the create call has no field for it.
        in_stock = plan.deploy_ondemand is not False and plan.id in self._stock_of(plan, offer.region)
        return offer.model_copy(update={"price_per_hour_usd": price_in(plan, offer.region), "in_stock": in_stock})

    def in_stock(self, plan: Plan | MetalPlan, region: str) -> bool:
        """Whether it can be had there now, as far as the provider tells: asked anew, after a refusal."""
        return plan.id in self._client.available_plans(region, _availability_type(plan))

    def _stock_of(self, plan: Plan | MetalPlan, region: str) -> frozenset[str]:
        """Plans of this plan's type in stock, asked once for all who choose at this time."""
        plan_type = _availability_type(plan)
        if self._shared is None:
            return self._client.available_plans(region, plan_type)
        text = read_through(
            self._shared,
            self._clock,
            f"{self._account}/stock/{region}/{plan_type}",
            lambda: json.dumps(sorted(self._client.available_plans(region, plan_type))),
            fresh_seconds=STOCK_FRESH_SECONDS,
            usable_seconds=STOCK_USABLE_SECONDS,
        )
        return frozenset(json.loads(text))

    def plan(self, plan_id: str, kind: PlanKind) -> Plan | MetalPlan | None:
        """The plan; None = a complete list does not have it."""
        return self._all_plans().get((kind, plan_id))

    def regions(self) -> list[str]:
        """All regions, sorted."""
        return sorted(region.id.lower() for region in self._client.listing("/regions", "regions", Region))

    def _whole_gpu_stock(self) -> dict[str, list[str]]:
        """Whole-GPU VM plan to the regions that have it now.

        Such plans list no or wrong regions (measured 2026; gpuhunt 0.1.34 does not rely on them either). Where stock
        cannot be read, what the plans list has to do: an offer is looked at again before it is taken.
        """
        found: dict[str, list[str]] = {}
        try:
            for region in self.regions():
                for plan in sorted(self._client.available_plans(region, "vdm")):
                    found.setdefault(plan, []).append(region)
                self._sleep(PAUSE_BETWEEN_REGIONS_SECONDS)
        except ProviderError as exc:
            self._log.warning("stock_not_read", provider=PROVIDER, reason=exc.reason, status=exc.facts.status)
        return found

    def _all_plans(self) -> dict[tuple[PlanKind, str], Plan | MetalPlan]:
        now = self._clock.now()
        if self._read_at is None or not timedelta(0) <= now - self._read_at < timedelta(seconds=PLANS_FRESH_SECONDS):
            self._plans, self._read_at = self._shared_plans(), now
        return self._plans

    def _shared_plans(self) -> dict[tuple[PlanKind, str], Plan | MetalPlan]:
        """The plan lists, read once for all workers."""
        if self._shared is None:
            return self._read_plans()
        text = read_through(
            self._shared,
            self._clock,
            f"{self._account}/plans",
            lambda: json.dumps([[key[0], plan.model_dump(mode="json")] for key, plan in self._read_plans().items()]),
            fresh_seconds=PLANS_FRESH_SECONDS,
            usable_seconds=PLANS_USABLE_SECONDS,
        )
        plans: dict[tuple[PlanKind, str], Plan | MetalPlan] = {}
        for kind, raw in json.loads(text):
            plan = (MetalPlan if kind == PlanKind.BARE_METAL else Plan).model_validate(raw)
            plans[PlanKind(kind), plan.id] = plan
        return plans

    def _read_plans(self) -> dict[tuple[PlanKind, str], Plan | MetalPlan]:
        plans: dict[tuple[PlanKind, str], Plan | MetalPlan] = {}
        # `all` has been seen to miss a plan and `vcg` never lists whole-GPU plans (measured, 2026).
        for plan_type in ("all", "vcg", "vdm"):
            for plan in self._client.listing("/plans", "plans", Plan, {"type": plan_type}):
                plans.setdefault((PlanKind.VM, plan.id), plan)
        for metal in self._client.listing("/plans-metal", "plans_metal", MetalPlan):
            plans[PlanKind.BARE_METAL, metal.id] = metal
        return plans


def _availability_type(plan: Plan | MetalPlan) -> str:
    """The filter under which a region's stock shows the plan."""
    if isinstance(plan, MetalPlan):
        return "vbm"
    return plan.type if plan.type in _AVAILABILITY_TYPES else "all"
