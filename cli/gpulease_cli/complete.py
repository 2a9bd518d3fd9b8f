"""Completion of lease names. Quiet and quick: a key press must neither wait for long nor print an error."""

import click
from click.shell_completion import CompletionItem


def cache_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of caches that begin like this; none when the API does not answer at once."""
    from gpulease_cli.app import App
    from gpulease_cli.client import ApiError
    from gpulease_cli.errors import CliError

    app = ctx.find_object(App) or App()
    try:
        caches = list(app.client(timeout_seconds=1.0).caches())
    except (ApiError, CliError):
        return []
    return [CompletionItem(cache.name, help=cache.state) for cache in caches if cache.name.startswith(incomplete)]


def lease_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids of live leases that begin like this; none when the API does not answer at once."""
    from gpulease_cli.app import App
    from gpulease_cli.client import ApiError
    from gpulease_cli.errors import CliError
    from gpulease_cli.views import LIVE_STATES

    app = ctx.find_object(App) or App()
    try:
        leases = list(app.client(timeout_seconds=1.0).leases(states=LIVE_STATES))
    except (ApiError, CliError):
        return []
    words = {word: lease.state for lease in leases for word in (lease.name, lease.id)}
    return [CompletionItem(word, help=state) for word, state in words.items() if word.startswith(incomplete)]
