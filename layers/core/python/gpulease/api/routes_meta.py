"""Routes about the service itself. They ask for no identity and tell nothing of anybody's leases."""

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from gpulease import __version__
from gpulease.api.catalogue import CatalogueReader
from gpulease.api.openapi import Document, answers
from gpulease.api.query import only
from gpulease.api.schemas import Health
from gpulease.ports import Deps


def meta_router(deps: Deps, catalogue: CatalogueReader, document: Document) -> Router:
    """Health and the description of the API."""
    router = Router()

    @router.get(
        "/v1/health",
        summary="Whether the service answers, and how old its catalogue is",
        tags=["service"],
        operation_id="getHealth",
        middlewares=[only()],
        responses=answers({200: ("It answers", Health)}, 503),
    )
    def health() -> Health:
        return Health(
            version=__version__,
            deployment=deps.policy.deployment,
            catalogue=catalogue.read().age(deps.clock.now()),
        )

    @router.get("/openapi.json", include_in_schema=False, enable_validation=False)
    def openapi() -> Response[str]:
        return Response(status_code=200, content_type="application/json", body=document.text())

    return router
