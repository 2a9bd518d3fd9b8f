"""Alarms that several parts raise: told once in a while and not at every turn. Each has an entry in docs/runbook.md."""

from gpulease.domain.sweep import ALARM_AGAIN_AFTER
from gpulease.errors import LeaseConflict, LedgerUnavailable, ProviderAuthFailed
from gpulease.ports import Deps

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
