"""The HTTP API."""

from functools import partial
from typing import Any

from gpulease.api.app import create_app
from gpulease.runtime.deps import LazyDeps
from gpulease.runtime.handler import api
from gpulease.steps import sweep

deps = LazyDeps()
app = create_app(deps, sweep=partial(sweep.run_now, deps))


@api
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app.resolve(event, context)
