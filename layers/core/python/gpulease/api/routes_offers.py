"""`GET /v1/offers`: what could be rented, with the same filters and in the same order as a lease would try it."""

from collections.abc import Iterable
from typing import Annotated

from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import ValidationError

from gpulease.api.caller import caller_of
from gpulease.api.catalogue import CatalogueReader
from gpulease.api.openapi import answers
from gpulease.api.preflight import unknown_names
from gpulease.api.problems import field_errors, invalid
from gpulease.api.query import only, separated
from gpulease.api.schemas import OfferPage
from gpulease.domain.offer import Offer
from gpulease.domain.selection import matching
from gpulease.domain.spec import LeaseSpec
from gpulease.ports import Deps

Texts = Annotated[list[str] | None, Query(description="Repeated, or separated by commas")]
Text = Annotated[str | None, Query(max_length=64)]
Number = Annotated[float | None, Query(gt=0)]
Count = Annotated[int | None, Query(ge=1)]
FILTERS = (
    "gpu",
    "gpu_count",
    "min_gpu_memory_gib",
    "min_vcpus",
    "min_memory_gib",
    "min_disk_gb",
    "providers",
    "regions",
    "plans",
    "plan_kinds",
    "spot",
    "max_price_per_hour_usd",
    "private_network",
)


def offers_router(deps: Deps, catalogue: CatalogueReader) -> Router:
    """The offer routes over these dependencies."""
    router = Router()

    @router.get(
        "/v1/offers",
        summary="What could be rented now, cheapest first",
        description="Filters have the names of the fields of a lease's request. `gpu_count` is any when missing.",
        tags=["offers"],
        operation_id="listOffers",
        middlewares=[only(*FILTERS, "limit")],
        responses=answers({200: ("Offers", OfferPage)}, 503),
    )
    def list_offers(
        gpu: Texts = None,
        gpu_count: Count = None,
        min_gpu_memory_gib: Number = None,
        min_vcpus: Count = None,
        min_memory_gib: Number = None,
        min_disk_gb: Count = None,
        providers: Texts = None,
        regions: Texts = None,
        plans: Texts = None,
        plan_kinds: Texts = None,
        spot: Annotated[str, Query(description="on-demand, spot or any")] = "any",
        max_price_per_hour_usd: Text = None,
        private_network: Text = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> OfferPage:
        caller_of(router.current_event.raw_event, deps.policy.admins)
        given = {
            "gpu": separated(gpu),
            "gpu_count": gpu_count,
            "min_gpu_memory_gib": min_gpu_memory_gib,
            "min_vcpus": min_vcpus,
            "min_memory_gib": min_memory_gib,
            "min_disk_gb": min_disk_gb,
            "providers": separated(providers),
            "regions": separated(regions),
            "plans": separated(plans),
            "plan_kinds": separated(plan_kinds),
            "spot": spot,
            "max_price_per_hour_usd": max_price_per_hour_usd,
            "private_network": private_network,
        }
        try:
            spec = LeaseSpec.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise invalid(field_errors(error.errors(include_url=False), FILTERS)) from None
        known = catalogue.loaded()
        if errors := unknown_names(spec, known):
            raise invalid(errors)
        found = _with_any_count(spec, known.with_gpus(spec.gpu)) if gpu_count is None else matching(spec, known.offers)
        found.sort(key=lambda o: (o.price_per_hour_usd, o.key))
        return OfferPage(offers=tuple(found[:limit]), total=len(found), catalogue=known.age(deps.clock.now()))

    return router


def _with_any_count(spec: LeaseSpec, offers: Iterable[Offer]) -> list[Offer]:
    """A lease has exactly so many GPUs; somebody who looks around has not said how many."""
    by_count: dict[int, list[Offer]] = {}
    for offer in offers:
        by_count.setdefault(offer.gpu_count, []).append(offer)
    return [
        offer
        for count, these in by_count.items()
        for offer in matching(spec.model_copy(update={"gpu_count": count}), these)
    ]
