"""The messages that go with EC2's error codes, and the same in other words.

The codes are the interface; whoever reads the messages instead is found out by `Settings.reworded`.
"""

from gpulease_sim.aws.wire import ApiError

_NO_CAPACITY = (
    "We currently do not have sufficient {type} capacity in the Availability Zone you requested ({zone}).",
    "No room for {type} in {zone} at the moment.",
)
TEXTS: dict[str, tuple[str, str]] = {
    "AuthFailure": ("AWS was not able to validate the provided access credentials", "Credentials refused."),
    "Blocked": ("This account is currently blocked.", "Account on hold."),
    "ConnectionLost": ("The service is unavailable.", "Nobody there."),
    "DependencyViolation": ("resource {id} has a dependent object", "{id} is still needed by something else."),
    "DryRunOperation": ("Request would have succeeded, but DryRun flag is set.", "Only tried."),
    "ExpiredToken": ("The security token included in the request is expired", "Session is over."),
    "IdempotentInstanceTerminated": (
        "The instance launched with the provided client token has been terminated.",
        "What this token made is gone.",
    ),
    "IdempotentParameterMismatch": (
        "The client token was used before with other parameters.",
        "Token and request do not belong together.",
    ),
    "IncorrectInstanceState": (
        "The instance '{id}' is not in a state from which it can be {verb}.",
        "{id} cannot be {verb} now.",
    ),
    "IncorrectSpotRequestState": (
        "The Spot request '{request}' of '{id}' is in a state in which the instance cannot be started.",
        "{request} says no to {id}.",
    ),
    "IncorrectState": ("{what}", "State of the thing does not allow this: {what}"),
    "InstanceLimitExceeded": ("You have requested more instances than your limit allows.", "Too many machines."),
    "InsufficientInstanceCapacity": _NO_CAPACITY,
    "InsufficientHostCapacity": _NO_CAPACITY,
    "InsufficientCapacity": _NO_CAPACITY,
    "UnfulfillableCapacity": _NO_CAPACITY,
    "InternalError": ("An internal error has occurred", "Oops."),
    "InvalidAMIID.NotFound": ("The image id '[{id}]' does not exist", "No image {id}."),
    "InvalidAttachment.NotFound": ("The volume '{id}' is not attached to that instance", "Not joined: {id}."),
    "InvalidClientTokenId": ("The security token included in the request is invalid", "Unknown key."),
    "InvalidInstanceID.Malformed": ('Invalid id: "{id}"', "Not an instance id: {id}"),
    "InvalidInstanceID.NotFound": ("The instance ID '{id}' does not exist", "No machine {id} here."),
    "InvalidSpotInstanceRequestID.NotFound": (
        "The spot instance request ID '{id}' does not exist",
        "No request {id} here.",
    ),
    "InvalidVolume.NotFound": ("The volume '{id}' does not exist.", "No volume {id} here."),
    "InvalidVolume.ZoneMismatch": (
        "The volume '{id}' is not in the same availability zone as instance '{instance}'",
        "{id} and {instance} are in two zones.",
    ),
    "MaxSpotInstanceCountExceeded": ("Max spot instance count exceeded", "Spot quota used up."),
    "MissingParameter": ("The request must contain the parameter {name}", "{name} is not there."),
    "OperationNotPermitted": (
        "The instance '{id}' may not be terminated. Modify its 'disableApiTermination' instance attribute.",
        "{id} is protected.",
    ),
    "OptInRequired": ("You are not subscribed to this service.", "Subscribe first."),
    "PendingVerification": ("Your account is being verified.", "Wait for the account's check."),
    "RequestLimitExceeded": ("Request limit exceeded.", "Too fast."),
    "SpotMaxPriceTooLow": ("Your Spot request price is lower than the minimum required.", "Bid too low."),
    "Throttling": ("Rate exceeded", "Too fast."),
    "UnauthorizedOperation": ("You are not authorized to perform this operation.", "Not allowed."),
    "Unavailable": ("The service is unavailable. Please try again shortly.", "Come back later."),
    "ServiceUnavailable": ("The request has failed due to a temporary failure of the server.", "Come back later."),
    "Unsupported": (
        "Your requested instance type ({type}) is not supported in your requested Availability Zone ({zone}).",
        "{zone} has no {type}.",
    ),
    "UnsupportedOperation": ("{what}", "This cannot be done with it."),
    "VcpuLimitExceeded": (
        "You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance"
        " bucket that the specified instance type belongs to.",
        "Quota of {limit} vCPUs used up.",
    ),
    "VolumeInUse": ("{id} is already attached to an instance", "{id} is taken."),
    "VolumeLimitExceeded": ("Maximum number of volumes reached", "Too many disks."),
    "AttachmentLimitExceeded": ("Volume attachment limit reached for instance {id}", "{id} holds no more disks."),
}
_SERVER_SIDE = {"InternalError": 500, "ConnectionLost": 503, "Unavailable": 503, "ServiceUnavailable": 503}
_STATUS = _SERVER_SIDE | {
    "AuthFailure": 401,
    "Blocked": 403,
    "DryRunOperation": 412,
    "InvalidClientTokenId": 403,
    "OptInRequired": 401,
    "RequestLimitExceeded": 503,
    "Throttling": 400,
    "UnauthorizedOperation": 403,
}


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def text_of(code: str, values: dict[str, str], reworded: bool) -> str:
    """The message of a code; a code without one of its own gets a general one."""
    usual, other = TEXTS.get(code, ("The request was refused: " + code, "Refused."))
    return (other if reworded else usual).format_map(_Blank(values))


def message(error: ApiError, reworded: bool) -> str:
    """What the answer says."""
    if error.text and not reworded:
        return error.text
    return text_of(error.code, error.values, reworded) if error.code in TEXTS else "Refused."


def status_of(code: str) -> int:
    """The HTTP status that usually comes with a code."""
    return _STATUS.get(code, 400)
