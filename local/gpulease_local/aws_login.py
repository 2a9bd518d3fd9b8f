"""Whether the user's AWS credentials work, found out before anything is served, and told in one line with what to do.

Two calls that change nothing: who we are, and in each region one that every lease needs. An account that cannot be
reached just now is not refused: what is rented there must be watched all the same.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from gpulease.providers.aws.options import AwsOptions
from gpulease.providers.aws.session import DEFAULT_REGION, Sessions

from gpulease_local.asl import ScaledClock
from gpulease_local.options import AwsSetup, ServerRefused
from gpulease_local.world import DepsClock

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException"})
_CLOCK = frozenset({"RequestExpired", "RequestInTheFuture", "InvalidSignatureException"})
_WRONG = frozenset({"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"})
_NOT_ALLOWED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
_NOT_ENABLED = frozenset({"AuthFailure", "OptInRequired", "InvalidClientTokenId", "UnrecognizedClientException"})
_READ = "describe_instance_type_offerings"


def regions_of(setup: AwsSetup) -> tuple[str, ...]:
    """The named regions, else the user's own one. Raises ServerRefused for one that AWS does not have."""
    session = _session(setup.profile)
    regions = setup.region_names or ((session.region_name,) if session.region_name else ())
    if not regions:
        raise ServerRefused("AWS: no region is named; give --aws-regions us-east-1,us-west-2")
    partitions = session.get_available_partitions()
    known = [each for partition in partitions for each in session.get_available_regions("ec2", partition)]
    for region in regions:
        if region not in known:
            near = get_close_matches(region, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ServerRefused(f"AWS has no region {region!r}{hint}")
    return regions


def log_in(options: AwsOptions, say: Callable[[str], None]) -> str:
    """Try the credentials; whose they are. Raises ServerRefused."""
    sessions = Sessions(options, DepsClock(ScaledClock()))
    first = options.regions[0] if options.regions else DEFAULT_REGION
    told = _asked(options, say, lambda: sessions.client("sts", first)[0].get_caller_identity(), _refused)
    for region in options.regions:

        def read(region: str = region) -> Any:
            return getattr(sessions.client("ec2", region)[0], _READ)(MaxResults=5)

        def refused(code: str, text: str, options: AwsOptions, region: str = region) -> str:
            return _refused_in(region, code, text, options)

        _asked(options, say, read, refused)
    return f"account {told['Account']}" if told else "account not known yet"


def _asked(
    options: AwsOptions,
    say: Callable[[str], None],
    call: Callable[[], Any],
    refused: Callable[[str, str, AwsOptions], str],
) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NotConnected

    try:
        return call()
    except ClientError as error:
        told = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
        if status >= 500:
            say(f"AWS does not answer as it should ({told.get('Code', status)}); going on, it is asked again")
            return None
        raise ServerRefused(refused(str(told.get("Code", "")), str(told.get("Message", "")), options)) from None
    except (HTTPClientError, NotConnected) as error:
        say(f"AWS cannot be reached now ({type(error).__name__}); going on, it is asked again")
        return None
    except BotoCoreError as error:
        raise ServerRefused(_without_credentials(error, options)) from None


def _refused(code: str, text: str, options: AwsOptions) -> str:
    if code in _EXPIRED:
        return f"AWS: the credentials{_of(options)} are expired: {_renew(options)}"
    if code in _CLOCK:
        return f"AWS refuses what this computer signs ({code}): is its clock right?"
    if code in _WRONG:
        first = options.regions[0] if options.regions else DEFAULT_REGION
        return (
            f"AWS does not know the credentials{_of(options)} in {first} ({code}): give another --aws-profile, or mend "
            "them; a region that is not enabled for the account says the same"
        )
    return f"AWS refuses{_of(options)}: {code}: {_one_line(text)}"


def _refused_in(region: str, code: str, text: str, options: AwsOptions) -> str:
    if code in _NOT_ENABLED:
        return f"AWS: region {region} is not enabled for this account ({code}): enable it, or leave it out"
    if code in _NOT_ALLOWED:
        return (
            f"AWS: these credentials{_of(options)} may not use EC2 in {region} ({code}): "
            "docs/security.md lists what a role needs"
        )
    return _refused(code, text, options)


def _without_credentials(error: Exception, options: AwsOptions) -> str:
    """What failed before anything was sent."""
    from botocore import exceptions as of

    if isinstance(error, of.NoCredentialsError):
        return "AWS: no credentials: run `aws configure`, set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give --aws-profile"
    if isinstance(error, of.PartialCredentialsError):
        return f"AWS: the credentials{_of(options)} are incomplete: {_one_line(str(error))}"
    if isinstance(error, of.SSOError | of.TokenRetrievalError | of.NoAuthTokenError):
        return f"AWS: signing in{_of(options)} is needed: {_sign_in(options)}"
    if isinstance(error, of.CredentialRetrievalError | of.RefreshWithMFAUnsupportedError):
        return f"AWS: the credentials{_of(options)} cannot be had: {_one_line(str(error))}"
    return f"AWS{_of(options)}: {_one_line(str(error))}"


def _session(profile: str) -> Any:
    import boto3
    from botocore.exceptions import BotoCoreError, ProfileNotFound

    try:
        return boto3.Session(profile_name=profile or None)
    except ProfileNotFound as error:
        raise ServerRefused(f"AWS: {_one_line(str(error))}; `aws configure list-profiles` shows yours") from None
    except BotoCoreError as error:
        raise ServerRefused(f"AWS: {_one_line(str(error))}") from None


def _of(options: AwsOptions) -> str:
    return f" of profile {options.profile}" if options.profile else ""


def _sign_in(options: AwsOptions) -> str:
    return "`aws sso login" + (f" --profile {options.profile}`" if options.profile else "`")


def _renew(options: AwsOptions) -> str:
    return f"{_sign_in(options)}, or get new ones as you got these"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
