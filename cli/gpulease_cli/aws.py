"""The few AWS calls of the command line (which stack, which secret), and their errors as one line each.

Invariant: boto3 is imported when the first of them is made, never with this module.
"""

from typing import Any

from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_UNKNOWN = frozenset({"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_SECONDS = 10


class Aws:
    """One account and region, as the user's own credentials see it."""

    def __init__(self, region: str | None, aws_profile: str | None) -> None:
        self._wanted = (region or None, aws_profile or None)
        self._session: Any = None

    def stack(self, name: str) -> dict[str, str]:
        """The stack's outputs. Raises CliError."""
        from botocore.exceptions import ClientError

        try:
            stacks = self._client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if "does not exist" in str(error):
                raise CliError(
                    f"there is no stack {name!r} in {self.region()}; give the right --stack and --region",
                    field="--stack",
                    code=ExitCode.NOT_FOUND,
                ) from error
            raise self._said_no(error, "cloudformation:DescribeStacks") from error
        except Exception as error:
            raise self._unreachable(error) from error
        return {each["OutputKey"]: each["OutputValue"] for each in stacks[0].get("Outputs", ())}

    def store_secret(self, name: str, value: str) -> None:
        """Make the secret, or give it a new value. Raises CliError."""
        from botocore.exceptions import ClientError

        try:
            client = self._client("secretsmanager")
            try:
                client.put_secret_value(SecretId=name, SecretString=value)
            except client.exceptions.ResourceNotFoundException:
                client.create_secret(Name=name, SecretString=value, Description="Provider key, kept by gpulease")
        except ClientError as error:
            raise self._said_no(error, "secretsmanager:PutSecretValue and secretsmanager:CreateSecret") from error
        except Exception as error:
            raise self._unreachable(error) from error

    def region(self) -> str:
        """The region that is used. Raises CliError where none is set."""
        region = self._made().region_name
        if not region:
            raise CliError("no AWS region is set; give --region", field="--region")
        return str(region)

    def _made(self) -> Any:
        if self._session is None:
            import boto3
            from botocore.exceptions import ProfileNotFound

            region, profile = self._wanted
            try:
                self._session = boto3.Session(region_name=region, profile_name=profile)
            except ProfileNotFound as error:
                raise CliError(f"{error}; see `aws configure list-profiles`", field="--profile") from error
        return self._session

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        config = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": 2})
        return self._made().client(service, region_name=self.region(), config=config)

    def _said_no(self, error: Any, action: str) -> CliError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _EXPIRED:
            text = "the AWS credentials have expired; log in again (`aws sso login`)"
        elif code in _UNKNOWN:
            text = f"AWS does not accept the credentials ({code}); check AWS_PROFILE, or log in again"
        elif code in _DENIED:
            text = f"the AWS credentials do not allow {action} in {self.region()}"
        else:
            text = f"AWS answered {code}: {error.response.get('Error', {}).get('Message', '')}"
        return CliError(text, code=ExitCode.REFUSED)

    def _unreachable(self, error: Exception) -> Exception:
        """What is no answer of the service: no credentials, or no way there."""
        from botocore.exceptions import (
            BotoCoreError,
            ConnectionError,
            HTTPClientError,
            NoCredentialsError,
            TokenRetrievalError,
        )

        if isinstance(error, NoCredentialsError):
            return CliError(
                "no AWS credentials found; log in (`aws sso login`) or give --profile", code=ExitCode.REFUSED
            )
        if isinstance(error, TokenRetrievalError):
            return CliError("the AWS login has expired; log in again (`aws sso login`)", code=ExitCode.REFUSED)
        if isinstance(error, (ConnectionError, HTTPClientError)):
            return CliError(
                f"AWS in {self.region()} cannot be reached ({error}); is the region right?", code=ExitCode.UNREACHABLE
            )
        if isinstance(error, BotoCoreError):
            # Its text may repeat what was to be sent, and that may be a key.
            return CliError(f"the call to AWS could not be made ({type(error).__name__})", code=ExitCode.REFUSED)
        return error
