"""The whole exception tree of gpulease.

Class names are an interface: AWS Lambda reports `type(exc).__name__` and the state machines retry and catch by that
name. Expected conditions ("not ready yet", "no capacity") are outcomes of a step, not exceptions of this tree, except
between an adapter and the step that called it.

    GpuleaseError
      InputInvalid                    the request or task input is wrong; nothing was done
      LeaseNotFound
      LeaseConflict                   a conditional write lost against another writer; read again, decide again
      LeaseSuperseded                 the lease's epoch moved on; the workflow must end
      LeaseExists                     create with an id that is taken (idempotency key used before)
      LedgerUnavailable               the ledger did not answer or throttled; whether it wrote is unknown
      ProviderError
        ProviderThrottled             429, or not sent (circuit open, asked to pause); the call was not carried out
        ProviderUnavailable           no answer, 502 to 504, broken body; the call may have been carried out
        ProviderBusy                  refused in the present state (locked, not active, still attached)
        ProviderAuthFailed            401, 403
        ProviderRejected              other 4xx: the call was not carried out
          CapacityRefused             no capacity for this plan in this region
          QuotaRefused                a limit of the account
          NetworkUnsupported          the plan has no private networking
        ProviderUnexpected            an answer nobody mapped; the call may have been carried out
"""

from dataclasses import dataclass, replace


class GpuleaseError(Exception):
    """Base of everything that gpulease raises on purpose."""


class InputInvalid(GpuleaseError):
    """The input is wrong. `field` names where, the message says what would be right."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class LeaseNotFound(GpuleaseError):
    """No lease with this id (or it belongs to somebody else, which looks the same)."""


class LeaseConflict(GpuleaseError):
    """A conditional write lost: somebody else changed the row since it was read."""


class LeaseSuperseded(GpuleaseError):
    """The lease's epoch is no longer the one this workflow was started for."""


class LeaseExists(GpuleaseError):
    """A lease with this id is already in the ledger."""


class LedgerUnavailable(GpuleaseError):
    """The ledger did not answer. Whether it wrote is unknown; to try again is safe: every write is conditional."""


@dataclass(frozen=True)
class ProviderFacts:
    """What every provider error names. `message` is the provider's own text, masked of keys, cut to 500 characters."""

    provider: str
    message: str
    region: str = ""
    resource_id: str = ""
    status: int = 0
    method: str = ""
    path: str = ""
    request_id: str = ""
    retry_after_seconds: float = 0.0
    reason: str = ""
    """Where the cause is finer than the class: `circuit_open`."""
    code: str = ""
    """The provider's own error code, where it has such (`InsufficientInstanceCapacity`)."""


class ProviderError(GpuleaseError):
    """A provider call that did not end well. `reason` is stable and machine-readable; wording of providers is not."""

    reason = "provider_error"

    def __init__(self, facts: ProviderFacts) -> None:
        super().__init__(facts)
        self.facts = facts
        if facts.reason:
            self.reason = facts.reason

    def __str__(self) -> str:
        f = self.facts
        where = " ".join(part for part in (f.provider, f.region, f.resource_id) if part)
        answer = " ".join(str(part) for part in (f.status, f.code) if part) or "no answer"
        call = f" ({' '.join(part for part in (f.method, f.path) if part)}: {answer})" if f.method else ""
        return f"{where}: {self.reason}{call}: {f.message}"

    def at(self, *, region: str = "", resource_id: str = "") -> "ProviderError":
        """The same error with the place filled in where it was empty."""
        facts = replace(
            self.facts,
            region=self.facts.region or region,
            resource_id=self.facts.resource_id or resource_id,
        )
        return type(self)(facts)


class ProviderThrottled(ProviderError):
    reason = "throttled"


class ProviderUnavailable(ProviderError):
    reason = "unavailable"


class ProviderBusy(ProviderError):
    reason = "busy"


class ProviderAuthFailed(ProviderError):
    reason = "auth_failed"


class ProviderRejected(ProviderError):
    reason = "rejected"


class CapacityRefused(ProviderRejected):
    reason = "no_capacity"


class QuotaRefused(ProviderRejected):
    reason = "quota_exceeded"


class NetworkUnsupported(ProviderRejected):
    reason = "network_unsupported"


class ProviderUnexpected(ProviderError):
    reason = "unexpected"
