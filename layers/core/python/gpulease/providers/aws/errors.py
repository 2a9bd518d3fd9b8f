"""What AWS's refusals mean: by their codes, never by their words. The only place that knows the codes.

A code makes a common case quick. One that is in no row must still end right: it is ProviderUnexpected, and the adapter
decides by what the provider shows.

Sources: EC2's list of error codes (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html);
`C..` = a case of our collection.
"""

from gpulease.errors import (
    CapacityRefused,
    ProviderAuthFailed,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
    QuotaRefused,
)

ABSENT = frozenset(
    {
        "InvalidInstanceID.NotFound",
        "InvalidVolume.NotFound",
        "InvalidAttachment.NotFound",
        "InvalidSpotInstanceRequestID.NotFound",
        "InvalidAllocationID.NotFound",
        "InvalidGroup.NotFound",
        "InvalidGroupId.NotFound",
    }
)
"""Not there (any more, or not yet). Also ProviderRejected in the table."""

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException"})
"""Temporary credentials are too old; refused, so the call may be sent again with new ones (C64)."""

LAUNCHED = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})
"""Of RunInstances: under this token an instance was launched already (C07; boto/boto3#4406)."""

EXISTS = frozenset({"InvalidGroup.Duplicate", "InvalidPermission.Duplicate"})
"""What was asked for is there already."""

_CODES: dict[type[ProviderError], tuple[str, ...]] = {
    CapacityRefused: (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientVolumeCapacity",
        "UnfulfillableCapacity",
        # The type is not offered in this zone.
        "Unsupported",
        "SpotMaxPriceTooLow",
    ),
    QuotaRefused: (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "VolumeLimitExceeded",
        "AddressLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "AttachmentLimitExceeded",
        "SecurityGroupLimitExceeded",
        "SecurityGroupsPerInterfaceLimitExceeded",
        "PendingVerification",
        "OptInRequired",
    ),
    ProviderThrottled: (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "EC2ThrottledException",
        "TooManyRequestsException",
    ),
    ProviderUnavailable: (
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "ServiceUnavailable",
        "Unavailable",
        "ServerInternal",
        "RequestExpired",
        "RequestTimeout",
    ),
    ProviderAuthFailed: (
        "AuthFailure",
        "UnauthorizedOperation",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "AccessDenied",
        "AccessDeniedException",
        "NotAuthorized",
        "Blocked",
    ),
    ProviderBusy: (
        "IncorrectInstanceState",
        "IncorrectState",
        "IncorrectSpotRequestState",
        "VolumeInUse",
        # Protected from termination.
        "OperationNotPermitted",
        "DependencyViolation",
        "ConcurrentTagAccess",
    ),
    ProviderRejected: (
        *ABSENT,
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "InvalidParameter",
        "MissingParameter",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Malformed",
        "InvalidAMIID.Unavailable",
        "InvalidSubnetID.NotFound",
        "InvalidSubnet",
        "InvalidVolume.ZoneMismatch",
        "InvalidInstanceID.Malformed",
        "InvalidVolumeID.Malformed",
        "InvalidInstanceType",
        "ParameterNotFound",
        # A one-time spot instance cannot be stopped, nor one whose root disk is the machine's own.
        "UnsupportedOperation",
        *LAUNCHED,
        *EXISTS,
    ),
}

TABLE: dict[str, type[ProviderError]] = {code: kind for kind, codes in _CODES.items() for code in codes}


def class_of(code: str, status: int) -> type[ProviderError]:
    """The class of a refusal: by its code, else by the status alone."""
    known = TABLE.get(code)
    if known is not None:
        return known
    if status == 429:
        return ProviderThrottled
    if status in (401, 403):
        return ProviderAuthFailed
    return ProviderUnavailable if status >= 500 else ProviderUnexpected


# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
_STATE_REASONS: dict[str, str] = {
    "Server.InsufficientInstanceCapacity": "no_capacity",
    "Server.SpotInstanceTermination": "interrupted",
    "Server.SpotInstanceShutdown": "interrupted",
    "Server.ScheduledStop": "lost",
    "Server.InternalError": "boot_failed",
    "Client.VolumeLimitExceeded": "quota_exceeded",
    "Client.InstanceInitiatedShutdown": "lost",
    "Client.UserInitiatedShutdown": "lost",
    # The disk's key cannot be used.
    "Client.InternalError": "rejected",
    "Client.InvalidSnapshot.NotFound": "rejected",
}


def reason_of(state_reason_code: str) -> str:
    """Why an instance ended or stopped, as a value of `lease.Reason`; empty = not told."""
    return _STATE_REASONS.get(state_reason_code, "")
