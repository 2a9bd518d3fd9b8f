"""Alarms that several parts raise: told once in a while and not at every turn. Each has an entry in docs/runbook.md."""

from gpulease.domain.cost import lease_cost, price_per_hour
from gpulease.domain.event import Fact
from gpulease.domain.lease import Lease
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource
from gpulease.errors import LeaseConflict, LedgerUnavailable, ProviderAuthFailed
from gpulease.ports import Deps

RELEASE_STUCK = "ReleaseStuck"
AUTH_FAILED = "ProviderAuthFailed"
SWEEP_INCOMPLETE = "SweepIncomplete"
UNOWNED_FOUND = "UnownedResourceFound"
PAUSE_STUCK = "PauseStuck"
STOPPED_STILL_BILLED = "stopped_still_billed"
BUDGET = "BudgetNearlySpent"
CACHE_EXPIRING = "CacheExpiring"
CACHE_LOST = "CacheLost"


def auth_failed(deps: Deps, account: str, error: ProviderAuthFailed) -> None:
    """The account's key is refused: tell people, at most once per account and hour."""
    if not _first_this_hour(deps, account):
        return
    facts = error.facts
    deps.notifier.alarm(
        AUTH_FAILED,
        f"{facts.provider} refuses the key of account {account}: nothing of it can be created, given back or verified",
        {
            "account": account,
            "provider": facts.provider,
            "region": facts.region or "all",
            "resource_id": facts.resource_id,
            "reason": error.reason,
            "status": facts.status,
            "last_error": facts.message,
        },
    )


def release_stuck(deps: Deps, resource: Resource, reason: str, last_error: str) -> None:
    """Something has not been given back for ten minutes. The resource's row remembers that it was told."""
    text = f"{resource.kind} {resource.provider_id or resource.id} at {resource.provider}/{resource.region} is not gone"
    facts: dict[str, Fact] = {
        "lease_id": resource.lease_id,
        "provider": resource.provider,
        "region": resource.region,
        "resource_id": resource.id,
        "provider_id": resource.provider_id,
        "reason": reason,
        "last_error": last_error,
    }
    deps.notifier.alarm(RELEASE_STUCK, text, facts)


def budget_nearly_spent(deps: Deps, record: LeaseRecord) -> None:
    """Most of a lease's budget is spent; at all of it the lease is given back."""
    lease, spent = record.lease, lease_cost(record, deps.clock.now())
    facts: dict[str, Fact] = {
        "lease_id": lease.id,
        "name": lease.name,
        "owner": lease.owner,
        "spent_usd": f"{spent:.2f}",
        "budget_usd": str(lease.rules.budget_usd),
        "usd_per_hour": str(price_per_hour(record, deps.clock.now())),
    }
    deps.notifier.alarm(BUDGET, f"${spent:.2f} of ${lease.rules.budget_usd} are spent by {lease.name}", facts)


def pause_stuck(deps: Deps, machine: Resource, reason: str, last_error: str) -> None:
    """A machine that is stopped, or should be, is billed in full. Its lease remembers that it was told."""
    where = f"{machine.provider}/{machine.region}"
    text = f"{machine.kind} {machine.provider_id or machine.id} at {where} is billed in full although it was to stop"
    if reason == STOPPED_STILL_BILLED:
        text = f"{machine.kind} {machine.provider_id} at {where} is stopped, and the provider bills it in full"
    facts: dict[str, Fact] = {
        "lease_id": machine.lease_id,
        "provider": machine.provider,
        "region": machine.region,
        "resource_id": machine.id,
        "provider_id": machine.provider_id,
        "reason": reason,
        "last_error": last_error,
    }
    deps.notifier.alarm(PAUSE_STUCK, text, facts)


def cache_alarm(deps: Deps, name: str, cache: Lease, text: str, reason: str, volume: Resource | None = None) -> None:
    """Something about a cache that its owner must know before it costs data. `volume` where it is about that."""
    spec = cache.cache
    facts: dict[str, Fact] = {
        "cache_id": cache.id,
        "cache": cache.name,
        "user": spec.user if spec else "",
        "provider": (spec.provider if spec else "") or "object store",
        "region": (spec.region if spec else "") or "any",
        "resource_id": volume.id if volume else "",
        "provider_id": volume.provider_id if volume else "",
        "reason": reason,
    }
    deps.notifier.alarm(name, text, facts)


def _first_this_hour(deps: Deps, account: str) -> bool:
    from gpulease.domain.sweep import ALARM_AGAIN_AFTER  # models that no other step needs

    now = deps.clock.now()
    try:
        state = deps.sweeps.load(account, "")
        if state.auth_alarmed_at is not None and now - state.auth_alarmed_at < ALARM_AGAIN_AFTER:
            return False
        deps.sweeps.save(state.model_copy(update={"auth_alarmed_at": now}))
    except LeaseConflict:
        # Somebody else raised it just now.
        return False
    except LedgerUnavailable as error:
        deps.log.warning("alarm_not_remembered", account=account, reason=str(error))
    return True
