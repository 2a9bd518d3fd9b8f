"""The HTTP API."""

from typing import Any

from gpulease.api.app import create_app
from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import api

deps = LazyDeps()
app = create_app(deps)


@api
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app.resolve(event, context)
