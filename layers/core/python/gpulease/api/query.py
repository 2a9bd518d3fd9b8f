"""Query parameters: none that nobody knows, lists in both spellings.

A misspelt parameter is refused, because `?dryrun=true` that is silently ignored rents a machine.
"""

from collections.abc import Callable, Iterable
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import ApiGatewayResolver

from gpulease.api.problems import FieldError, invalid, unknown_name

Next = Callable[[ApiGatewayResolver], Response[Any]]


def only(*known: str) -> Callable[[ApiGatewayResolver, Next], Response[Any]]:
    """Middleware of one route: refuses query parameters other than these."""

    def only_known_parameters(app: ApiGatewayResolver, next_middleware: Next) -> Response[Any]:
        given = app.current_event.get("queryStringParameters")
        if given and not given.keys() <= set(known):
            raise invalid(
                [
                    FieldError(field=name[:100], message=unknown_name("query parameter", name[:100], known))
                    for name in list(given)[:10]
                    if name not in known
                ]
            )
        return next_middleware(app)

    return only_known_parameters


def separated(given: Iterable[str] | None) -> list[str]:
    """Values of a parameter that may be repeated or hold several separated by commas."""
    return [part.strip() for text in given or () for part in text.split(",") if part.strip()]
