"""Makes short-lived keys for one prefix of a bucket out of a stored AWS key."""

import json
from typing import Any

from gpulease.domain.cache_spec import ObjectStore
from gpulease.ports import Deps
from gpulease.steps.agent_keys import StoredKey

LIFE_SECONDS = 12 * 3600


def prefix_policy(bucket: str, prefix: str) -> dict[str, Any]:
    """What a machine may do there: list and read its prefix and add to it. Never delete."""
    arn = f"arn:aws:s3:::{bucket}"
    listing: dict[str, Any] = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": arn}
    if prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": [prefix, f"{prefix}/*"]}}
    objects = {
        "Effect": "Allow",
        "Action": ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
        "Resource": f"{arn}/{prefix}/*" if prefix else f"{arn}/*",
    }
    return {"Version": "2012-10-17", "Statement": [listing, objects]}


class FederatedKeys:
    """`steps.agent_keys.Mint` by GetFederationToken, which keys of IAM users may call.

    https://docs.aws.amazon.com/STS/latest/APIReference/API_GetFederationToken.html
    """

    def __init__(self, deps: Deps, client: Any = None) -> None:
        self._deps = deps
        self._client = client

    def __call__(self, stored: StoredKey, store: ObjectStore) -> tuple[StoredKey, int] | None:
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client or self._client_of(stored, store.region)
        try:
            answer = client.get_federation_token(
                Name="gpulease-cache",
                Policy=json.dumps(prefix_policy(store.bucket, store.prefix), separators=(",", ":")),
                DurationSeconds=LIFE_SECONDS,
            )
        except (ClientError, BotoCoreError) as error:
            # The key of a role, or of a user who may not: the stored one is what there is.
            self._deps.log.warning("no_short_lived_key", bucket=store.bucket, error=type(error).__name__)
            return None
        made = answer["Credentials"]
        key = StoredKey(
            access_key_id=made["AccessKeyId"],
            secret_access_key=made["SecretAccessKey"],
            session_token=made["SessionToken"],
            provider=stored.provider,
        )
        return key, LIFE_SECONDS

    @staticmethod
    def _client_of(stored: StoredKey, region: str) -> Any:
        from botocore.session import get_session

        from gpulease.runtime.aws import client_config

        return get_session().create_client(
            "sts",
            region_name=region,
            aws_access_key_id=stored.access_key_id,
            aws_secret_access_key=stored.secret_access_key,
            config=client_config(),
        )
