"""Read every provider's catalogue again. Only the function `refresh_offers` imports this: gpuhunt is heavy."""

from gpulease.ports import Deps
from gpulease.providers.offers_gpuhunt import collect


def refresh(deps: Deps) -> dict[str, int]:
    """Store what each provider offers. One that fails keeps its old offers, which carry their age."""
    adapters = [deps.providers.get(account) for account in deps.providers.accounts()]
    collected = collect(adapters, clock=deps.clock, log=deps.log)
    for snapshot in collected.snapshots:
        deps.offers.save(snapshot)
    return {
        "providers": len(collected.snapshots),
        "offers": sum(len(snapshot.offers) for snapshot in collected.snapshots),
        "failed": len(collected.failures),
    }
