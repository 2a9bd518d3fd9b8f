"""Which provider names exist and where their adapters live. An adapter is imported when it is first asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from gpulease.errors import InputInvalid
from gpulease.ports import Clock, Log, Provider, Secrets, SharedReads
from gpulease.providers.http import Transport

PROVIDERS: dict[str, str] = {
    "aws": "gpulease.providers.aws.adapter:AwsProvider",
    "vultr": "gpulease.providers.vultr.adapter:VultrProvider",
}
"""Name to `module:Class`; the class takes one AdapterContext."""


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """What every adapter is built from. `sleep` pauses between tries of a GET and nowhere else."""

    account: str
    transport: Transport
    secrets: Secrets
    clock: Clock
    log: Log
    sleep: Callable[[float], None]
    base_url: str = ""
    """Empty = the provider's own address; set for a simulator."""
    shared: SharedReads | None = None
    """Where price and stock lists are read once for all workers; None = each reads for itself."""
    options: object | None = None
    """What this provider's adapter needs besides; a class of its own (`providers/aws/options.py`)."""


def build(
    account: str,
    name: str,
    transport: Transport,
    secrets: Secrets,
    *,
    clock: Clock,
    log: Log,
    sleep: Callable[[float], None],
    base_url: str = "",
    shared: SharedReads | None = None,
    options: object | None = None,
) -> Provider:
    """The adapter of provider `name` for one account. Raises InputInvalid(field="provider") for an unknown name."""
    try:
        module, _, attribute = PROVIDERS[name].partition(":")
    except KeyError:
        known = ", ".join(sorted(PROVIDERS))
        raise InputInvalid(f"no provider is called {name!r}; known: {known}", field="provider") from None
    factory: Callable[[AdapterContext], Provider] = getattr(import_module(module), attribute)
    return factory(AdapterContext(account, transport, secrets, clock, log, sleep, base_url, shared, options))
