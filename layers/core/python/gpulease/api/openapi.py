"""The OpenAPI description: generated from routes and schemas once per process, errors described as what they are."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler.api_gateway import ApiGatewayResolver
from pydantic import BaseModel

from gpulease import __version__
from gpulease.api.problems import CONTENT_TYPE, ProblemDetails

PUBLIC_PATHS = frozenset({"/v1/health", "/openapi.json"})
_ALWAYS = (401, 422, 500)
_REPLACED = ("HTTPValidationError", "ValidationError", "ResponseValidationError")
"""What the generator describes as the framework's own errors, which this API never sends."""


def answers(models: Mapping[int, tuple[str, type[BaseModel]]], *problems: int) -> dict[int, Any]:
    """A route's `responses`: its bodies, and the problems it may end in."""
    bodies = {
        status: {"description": text, "content": {"application/json": {"model": model}}}
        for status, (text, model) in models.items()
    }
    wrong = {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {CONTENT_TYPE: {"model": ProblemDetails}},
        }
        for status in sorted({*_ALWAYS, *problems})
    }
    return {**bodies, **wrong}


class Document:
    """The description as text, made at the first request for it."""

    def __init__(self) -> None:
        self._app: ApiGatewayResolver | None = None
        self._text = ""

    def describes(self, app: ApiGatewayResolver) -> None:
        """Name the app; its routes hold this object, so it comes after them."""
        self._app = app

    def text(self) -> str:
        if not self._text:
            if self._app is None:
                raise RuntimeError("the description was asked for before the app was made")
            self._text = _describe(self._app)
        return self._text


def _describe(app: ApiGatewayResolver) -> str:
    # The models of OpenAPI take longer to import than a request to answer, and few processes are asked for them.
    from aws_lambda_powertools.event_handler.openapi.models import APIKey, HTTPBearer

    text = app.get_openapi_json_schema(
        title="gpulease",
        version=__version__,
        description="Rent GPU machines, and never pay for one you forgot. Errors are problem details (RFC 9457).",
        security_schemes={
            "token": HTTPBearer(description="A JWT, or the token of the local server"),
            "sigv4": APIKey.model_validate(
                {"name": "Authorization", "in": "header", "description": "AWS Signature Version 4, execute-api"}
            ),
        },
        security=[{"token": []}, {"sigv4": []}],
    )
    document = json.loads(text)
    for name in _REPLACED:
        document["components"]["schemas"].pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            # The generator puts its own error over the one that the route names.
            operation["responses"]["500"] = {
                "description": HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
                "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
            }
    for public in PUBLIC_PATHS & document["paths"].keys():
        for operation in document["paths"][public].values():
            operation["security"] = []
            operation["responses"].pop("401", None)
    return json.dumps(document, separators=(",", ":"), sort_keys=True)
