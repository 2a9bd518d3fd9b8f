"""Keys from Secrets Manager: what means that there is none, and what means nothing."""

from typing import Any

import pytest
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from botocore.exceptions import ClientError, EndpointConnectionError
from gpulease.errors import ProviderAuthFailed, ProviderThrottled
from gpulease.runtime.aws import client_config
from gpulease.runtime.secrets import SecretsManagerSecrets


class Store:
    """Secrets Manager, as far as it is asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.asked: list[str] = []

    def get_secret_value(self, **request: Any) -> dict[str, str]:
        self.asked.append(request["SecretId"])
        if self.failure is not None:
            raise self.failure
        return {"SecretString": "a-key"}


def secrets_of(store: Any) -> SecretsManagerSecrets:
    return SecretsManagerSecrets("gpulease/stack", SecretsProvider(boto3_client=store))


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetSecretValue")


def test_a_key_is_read_once_and_anew_when_it_was_refused() -> None:
    store = Store()
    secrets = secrets_of(store)

    assert [secrets.provider_key("vultr") for _ in range(3)] == ["a-key"] * 3
    assert store.asked == ["gpulease/stack/vultr"]
    secrets.provider_key("vultr", fresh=True)
    assert len(store.asked) == 2


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException", "DecryptionFailure"])
def test_no_secret_is_no_key(code: str) -> None:
    with pytest.raises(ProviderAuthFailed, match="gpulease secrets set vultr"):
        secrets_of(Store(refused(code))).provider_key("vultr")


@pytest.mark.parametrize(
    "failure",
    [
        refused("ThrottlingException"),
        refused("InternalServiceError"),
        EndpointConnectionError(endpoint_url="https://s"),
    ],
)
def test_a_store_that_does_not_tell_is_not_a_refused_key(failure: Exception) -> None:
    with pytest.raises(ProviderThrottled) as caught:
        secrets_of(Store(failure)).provider_key("vultr")

    assert caught.value.facts.status == 0, "the provider was not asked"


def test_calls_of_aws_services_end_before_the_shortest_function_does() -> None:
    config: Any = client_config()

    longest = config.retries["total_max_attempts"] * (config.connect_timeout + config.read_timeout)

    assert longest < 25
