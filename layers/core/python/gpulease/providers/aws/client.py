"""AWS's operations as calls that answer or raise a ProviderError. Lists are complete or an error.

Reads are repeated twice after no answer, changes never; any call once more with new credentials after the old ones
were refused as expired, which proves that nothing was carried out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from gpulease.errors import (
    ProviderAuthFailed,
    ProviderError,
    ProviderFacts,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.providers.aws.errors import ABSENT, EXPIRED, class_of
from gpulease.providers.aws.session import Sessions
from gpulease.providers.http import mask

PROVIDER = "aws"
MAX_PAGES = 2000
"""More is not an answer: a million of our machines in one region."""
READ_PAUSES_SECONDS = (0.5, 2.0)
THROTTLED_STATUS = 429
"""As which a throttled call is told: EC2 answers 503."""

Answer = Mapping[str, Any]


class AwsClient:
    """Calls of one account. `sleep` pauses between tries of a read."""

    def __init__(self, sessions: Sessions, sleep: Callable[[float], None], page_size: int) -> None:
        self._sessions = sessions
        self._sleep = sleep
        self._page_size = page_size

    def __repr__(self) -> str:
        return f"AwsClient({self._sessions!r})"

    @property
    def generation(self) -> int:
        """See `Sessions.generation`."""
        return self._sessions.generation

    def read(self, region: str, operation: str, /, *, service: str = "ec2", **params: Any) -> Answer:
        """One read. Raises ProviderError."""
        for pause in READ_PAUSES_SECONDS:
            try:
                return self._once(service, region, operation, False, params)
            except ProviderUnavailable:
                self._sleep(pause)
        return self._once(service, region, operation, False, params)

    def change(self, region: str, operation: str, /, **params: Any) -> Answer:
        """One change, sent once. Raises ProviderError."""
        return self._once("ec2", region, operation, True, params)

    def listing(self, region: str, operation: str, key: str, /, **params: Any) -> list[Mapping[str, Any]]:
        """All items of all pages. Raises ProviderError when any page fails. What is asked for by ids has no pages."""
        if "Filters" in params:
            params["MaxResults"] = self._page_size
        found: list[Mapping[str, Any]] = []
        tokens: set[str] = set()
        token = ""
        for _ in range(MAX_PAGES):
            page = self.read(region, operation, **params, **({"NextToken": token} if token else {}))
            found.extend(items(page, key, region, operation))
            token = page.get("NextToken") or ""
            if not token:
                return found
            if token in tokens:
                unexpected("a page token came twice", region, operation)
            tokens.add(token)
        unexpected("a list without an end", region, operation)

    def _once(self, service: str, region: str, operation: str, change: bool, params: Mapping[str, Any]) -> Answer:
        generation = self._sessions.generation
        try:
            return self._exchange(service, region, operation, change, params)
        except ProviderAuthFailed as error:
            if error.facts.code not in EXPIRED:
                raise
        self._sessions.renew(generation)
        return self._exchange(service, region, operation, change, params)

    def _exchange(self, service: str, region: str, operation: str, change: bool, params: Mapping[str, Any]) -> Answer:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
        from botocore.exceptions import ConnectionError as NotConnected
        from botocore.parsers import ResponseParserError

        try:
            client, _ = self._sessions.client(service, region, change=change)
            answer: Answer = getattr(client, operation)(**params)
        except ClientError as error:
            raise _refusal(error.response, region, operation) from None
        except (HTTPClientError, NotConnected, IncompleteReadError) as error:
            raise ProviderUnavailable(_facts(region, operation, type(error).__name__)) from None
        except ResponseParserError:
            message = "an answer that cannot be read"
            raise ProviderUnavailable(_facts(region, operation, message)) from None
        except BotoCoreError as error:
            raise _not_sent(error)(_facts(region, operation, f"{type(error).__name__}: {error}")) from None
        if not isinstance(answer, dict) or "ResponseMetadata" not in answer:
            unexpected("an answer of no known form", region, operation)
        return answer


def items(answer: Answer, key: str, region: str, operation: str) -> Sequence[Mapping[str, Any]]:
    """The list of that name in the answer. An answer without it says nothing, least of all that nothing is there."""
    value = answer.get(key)
    if not isinstance(value, list):
        unexpected(f"the answer has no {key!r}", region, operation)
    return value


def unexpected(why: str, region: str, operation: str) -> NoReturn:
    """Raise ProviderUnexpected about an answer."""
    raise ProviderUnexpected(_facts(region, operation, why))


def is_absent(error: ProviderError) -> bool:
    """Whether the refusal says that the thing is not there."""
    return error.facts.code in ABSENT


def rejected(why: str, region: str, resource_id: str = "") -> ProviderRejected:
    """Refused by us, without a call."""
    return ProviderRejected(ProviderFacts(PROVIDER, why[:300], region=region, resource_id=resource_id))


def _refusal(response: Mapping[str, Any], region: str, operation: str) -> ProviderError:
    told = response.get("Error", {})
    meta = response.get("ResponseMetadata", {})
    code, status = str(told.get("Code", "")), int(meta.get("HTTPStatusCode", 0) or 0)
    kind = class_of(code, status)
    return kind(
        replace(
            _facts(region, operation, str(told.get("Message", ""))),
            status=THROTTLED_STATUS if kind is ProviderThrottled else status,
            request_id=str(meta.get("RequestId", "")),
            code=code,
        )
    )


def _not_sent(error: Exception) -> type[ProviderError]:
    """The class of a failure of botocore's own, before anything was sent."""
    from botocore import exceptions as of

    if isinstance(error, of.ParamValidationError):
        return ProviderRejected
    who = (
        of.NoCredentialsError,
        of.PartialCredentialsError,
        of.CredentialRetrievalError,
        of.ProfileNotFound,
        of.NoAuthTokenError,
        of.SSOError,
        of.TokenRetrievalError,
        of.RefreshWithMFAUnsupportedError,
        of.ConfigParseError,
        of.InvalidConfigError,
    )
    return ProviderAuthFailed if isinstance(error, who) else ProviderUnexpected


def _facts(region: str, operation: str, message: str) -> ProviderFacts:
    return ProviderFacts(PROVIDER, mask(message, ""), region=region, method=operation)
