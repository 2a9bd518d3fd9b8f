"""Signs requests with the user's own AWS credentials, for an API that asks for IAM (a deployed stack).

Invariant: botocore is imported when the first request is signed; a command that talks to a local server never pays
for it.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode

_SERVICE = "execute-api"
_SIGNED = frozenset({"content-type", "idempotency-key"})
"""Beside `host` and those that signing adds. The others may be changed on the way (or by urllib) without harm."""


class Sigv4Signer:
    """Gives the headers that prove who sends a request. Raises CliError where there are no usable credentials."""

    def __init__(self, region: str, aws_profile: str | None = None) -> None:
        self._region = region
        self._profile = aws_profile
        self._credentials: Any = None

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        kept = {name: value for name, value in headers.items() if name.lower() in _SIGNED}
        request = AWSRequest(method=method, url=url, data=body or b"", headers={**kept, "Host": urlsplit(url).netloc})
        SigV4Auth(self._frozen(), _SERVICE, self._region).add_auth(request)
        added = {"authorization", "x-amz-date", "x-amz-security-token"}
        return {name: value for name, value in request.headers.items() if name.lower() in added}

    def _frozen(self) -> Any:
        """The credentials of now: those of a role are renewed by botocore when they run out."""
        from botocore.exceptions import BotoCoreError, ProfileNotFound
        from botocore.session import Session

        try:
            if self._credentials is None:
                self._credentials = Session(profile=self._profile).get_credentials()
            if self._credentials is None:
                raise CliError(
                    "no AWS credentials found; log in (`aws sso login`) or set AWS_PROFILE", code=ExitCode.REFUSED
                )
            return self._credentials.get_frozen_credentials()
        except ProfileNotFound as error:
            raise CliError(f"{error}; run `gpulease configure` again", code=ExitCode.REFUSED) from error
        except BotoCoreError as error:
            raise CliError(
                f"the AWS credentials cannot be used ({error}); log in again (`aws sso login`)", code=ExitCode.REFUSED
            ) from error
