"""The one table of AWS's codes."""

import pytest
from gpulease.domain.lease import Reason
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
from gpulease.providers.aws.errors import _STATE_REASONS, ABSENT, EXPIRED, LAUNCHED, TABLE, class_of, reason_of

MEANT = {
    CapacityRefused: """InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity
        UnfulfillableCapacity Unsupported SpotMaxPriceTooLow""",
    QuotaRefused: """VcpuLimitExceeded InstanceLimitExceeded MaxSpotInstanceCountExceeded VolumeLimitExceeded
        AddressLimitExceeded InsufficientFreeAddressesInSubnet AttachmentLimitExceeded PendingVerification
        OptInRequired""",
    ProviderThrottled: "RequestLimitExceeded Throttling",
    ProviderUnavailable: "InternalError ServiceUnavailable Unavailable ServerInternal RequestExpired",
    ProviderAuthFailed: "AuthFailure UnauthorizedOperation ExpiredToken InvalidClientTokenId Blocked",
    ProviderBusy: """IncorrectInstanceState IncorrectState IncorrectSpotRequestState VolumeInUse
        OperationNotPermitted DependencyViolation""",
    ProviderRejected: """InvalidInstanceID.NotFound InvalidVolume.NotFound InvalidAttachment.NotFound
        InvalidSpotInstanceRequestID.NotFound InvalidAllocationID.NotFound InvalidParameterValue
        InvalidParameterCombination InvalidAMIID.NotFound InvalidVolume.ZoneMismatch IdempotentParameterMismatch""",
}


@pytest.mark.parametrize(
    ("code", "kind"), [(code, kind) for kind, codes in MEANT.items() for code in codes.split()], ids=str
)
@pytest.mark.parametrize("status", [400, 500, 503])
def test_a_code_means_the_same_whatever_the_status(code: str, kind: type[ProviderError], status: int) -> None:
    assert class_of(code, status) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ProviderUnexpected),
        (404, ProviderUnexpected),
        (401, ProviderAuthFailed),
        (403, ProviderAuthFailed),
        (429, ProviderThrottled),
        (500, ProviderUnavailable),
        (503, ProviderUnavailable),
        (0, ProviderUnexpected),
    ],
)
def test_a_code_that_nobody_knows_is_told_by_its_status_alone(status: int, kind: type[ProviderError]) -> None:
    assert class_of("SomethingNew", status) is kind
    assert class_of("", status) is kind


def test_what_is_absent_expired_or_launched_has_its_class_too() -> None:
    assert {TABLE[code] for code in ABSENT | LAUNCHED} == {ProviderRejected}
    assert {TABLE[code] for code in EXPIRED} == {ProviderAuthFailed}


def test_no_refusal_of_a_key_is_ever_read_as_absence() -> None:
    assert not [code for code in ABSENT if TABLE[code] is ProviderAuthFailed]


def test_reasons_of_ended_machines_are_reasons_of_leases() -> None:
    assert {Reason(value) for value in _STATE_REASONS.values()} >= {Reason.NO_CAPACITY, Reason.INTERRUPTED}
    assert reason_of("Server.Unheard") == reason_of("") == ""
