"""What a create call that was refused means for the attempt, and when an intent is too old to be sent."""

from datetime import timedelta

from gpulease.domain.lease import Reason
from gpulease.errors import (
    CapacityRefused,
    NetworkUnsupported,
    ProviderAuthFailed,
    ProviderError,
    ProviderThrottled,
    QuotaRefused,
)

STALE_AFTER = timedelta(seconds=30)
"""An intent so old is never sent: somebody else may have closed it by now."""
_REASONS: tuple[tuple[type[ProviderError], Reason], ...] = (
    (CapacityRefused, Reason.NO_CAPACITY),
    (QuotaRefused, Reason.QUOTA_EXCEEDED),
    (NetworkUnsupported, Reason.NETWORK_UNSUPPORTED),
    (ProviderAuthFailed, Reason.AUTH_FAILED),
    (ProviderThrottled, Reason.THROTTLED),
)


def reason_of(refused: ProviderError) -> Reason:
    """Why nothing was created."""
    return next((reason for kind, reason in _REASONS if isinstance(refused, kind)), Reason.REJECTED)
