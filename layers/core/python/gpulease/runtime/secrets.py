"""`ports.Secrets` on AWS Secrets Manager, cached for minutes and read anew after a refused key."""

from aws_lambda_powertools.utilities import parameters

from gpulease.errors import ProviderAuthFailed, ProviderFacts

CACHE_SECONDS = 300


class SecretsManagerSecrets:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        name = f"{self._prefix}/{account}"
        try:
            value = parameters.get_secret(name, max_age=CACHE_SECONDS, force_fetch=fresh)
        except parameters.GetParameterError as error:
            message = f"the secret {name} cannot be read; store the key with `gpulease secrets set {account}`"
            raise ProviderAuthFailed(ProviderFacts(provider=account, message=message)) from error
        return value.decode() if isinstance(value, bytes) else str(value)
