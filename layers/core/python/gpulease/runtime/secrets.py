"""`ports.Secrets` on AWS Secrets Manager, cached for an hour and read anew after a refused key.

Only an answer that says so means that there is no key. Anything else (throttled, no answer) says nothing of the
provider's key, and the provider was not called.
"""

from aws_lambda_powertools.utilities import parameters
from botocore.exceptions import ClientError

from gpulease.errors import ProviderAuthFailed, ProviderFacts, ProviderThrottled
from gpulease.runtime.aws import client_config

CACHE_SECONDS = 3600
"""A key that was replaced is refused by the provider, and a refused key is read anew at once."""
ASK_AGAIN_SECONDS = 2.0
# https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html
_NO_KEY = frozenset(
    {
        "AccessDeniedException",
        "DecryptionFailure",
        "InvalidParameterException",
        "InvalidRequestException",
        "ResourceNotFoundException",
    }
)


class SecretsManagerSecrets:
    """`provider`: Powertools' reader, made at the first use."""

    def __init__(self, prefix: str, provider: parameters.SecretsProvider | None = None) -> None:
        self._prefix = prefix
        self._provider = provider

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        """See `ports.Secrets.provider_key`. Raises ProviderThrottled where the store does not tell."""
        name = f"{self._prefix}/{account}"
        if self._provider is None:
            self._provider = parameters.SecretsProvider(boto_config=client_config())
        try:
            value = self._provider.get(name, max_age=CACHE_SECONDS, force_fetch=fresh)
        except parameters.GetParameterError as error:
            cause = error.__context__
            if isinstance(cause, ClientError) and cause.response.get("Error", {}).get("Code") in _NO_KEY:
                message = f"the secret {name} cannot be read; store the key with `gpulease secrets set {account}`"
                raise ProviderAuthFailed(ProviderFacts(provider=account, message=message)) from error
            message = f"not called: the secret {name} could not be read now ({type(cause).__name__})"
            facts = ProviderFacts(provider=account, message=message, retry_after_seconds=ASK_AGAIN_SECONDS)
            raise ProviderThrottled(facts) from error
        return value.decode() if isinstance(value, bytes) else str(value)
