"""Alarms that several parts raise: told once in a while and not at every turn. Each has an entry in docs/runbook.md."""

from gpulease.domain.event import Fact
from gpulease.domain.resource import Resource
from gpulease.domain.sweep import ALARM_AGAIN_AFTER
from gpulease.errors import LeaseConflict, LedgerUnavailable, ProviderAuthFailed
from gpulease.ports import Deps

RELEASE_STUCK = "ReleaseStuck"
AUTH_FAILED = "ProviderAuthFailed"
SWEEP_INCOMPLETE = "SweepIncomplete"
UNOWNED_FOUND = "UnownedResourceFound"


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


def _first_this_hour(deps: Deps, account: str) -> bool:
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
